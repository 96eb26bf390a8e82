"""Waiting for several things at once."""

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.instance.all_of import all_of


class AllOfTests(SynchronousTestCase):
    def begin(self, *works):
        return Deferred.fromCoroutine(all_of(works))

    def test_results_come_in_order(self):
        async def work():
            return "a"

        late = Deferred()
        waiting = self.begin(late, work(), succeed("b"))
        self.assertNoResult(waiting)
        late.callback("late")
        self.assertEqual(self.successResultOf(waiting), ["late", "a", "b"])
        self.assertEqual(self.successResultOf(self.begin()), [])

    def test_first_failure_is_raised(self):
        late, other = Deferred(), Deferred()
        waiting = self.begin(late, other)
        other.errback(KeyError("other"))
        self.failureResultOf(waiting, KeyError)
        late.errback(ValueError("taken note of, not logged as unhandled"))

    def test_cancel_cancels_all(self):
        works = [Deferred(), Deferred()]
        waiting = self.begin(*works)
        waiting.cancel()
        self.failureResultOf(waiting, CancelledError)
        self.assertEqual([work.called for work in works], [True, True])
