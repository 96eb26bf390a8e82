"""``--watch``: a command that is repeated."""

from contextlib import redirect_stderr
from io import StringIO

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.errors import NoNameServerError
from rocketd.tools.base import cluster
from rocketd.tools.base.watch import repeat
from rocketd.tools.cli import main


class WatchTests(SynchronousTestCase):
    def test_command_is_repeated_until_cancelled_in_spite_of_errors(self):
        clock, runs, err = Clock(), [], StringIO()

        async def command(reactor):
            runs.append(reactor.seconds())
            if len(runs) == 2:
                raise NoNameServerError("away")
            return 0

        with redirect_stderr(err):
            watching = Deferred.fromCoroutine(repeat(clock, 2.0, command))
            clock.pump([1, 1, 1, 1])
        self.assertEqual(runs, [0, 2, 4])
        self.assertEqual(err.getvalue(), "rocketd: away\n")
        watching.cancel()
        self.failureResultOf(watching, CancelledError)
        self.assertEqual(clock.getDelayedCalls(), [])

    def watches(self, *words):
        """Return whether a command line is repeated."""
        seen = []

        def run(command, expected, reactor):
            seen.append(command)
            return 0

        self.patch(cluster, "run_command", run)
        self.patch(cluster, "show_log", lambda level: None)
        self.patch(cluster, "watched", lambda command: seen.append(command) or original(command))
        self.assertEqual(main(words), 0)
        return seen[0] is not seen[1]

    def test_option_repeats_the_command(self):
        for words in (("lag", "G"), ("broker", "list"), ("offset", "show", "G"), ("group", "members", "G")):
            self.assertFalse(self.watches(*words))
            self.assertTrue(self.watches(*words, "--watch", "2"))


original = cluster.watched
