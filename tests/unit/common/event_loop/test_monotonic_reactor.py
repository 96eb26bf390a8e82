"""A reactor whose timers the wall clock does not move."""

from time import monotonic

from twisted.internet.selectreactor import SelectReactor
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.runtime.reactors import LoopReactor, ThreadReactor
from rocketd.common.event_loop.monotonic_reactor import use_monotonic_clock


class MonotonicReactorTests(SynchronousTestCase):
    def setUp(self):
        self.reactor = SelectReactor()
        self.addCleanup(self.reactor.waker.connectionLost, None)
        self.wall = Clock()
        self.wall.advance(1_700_000_000)
        self.reactor.seconds = self.wall.seconds

    def test_timers_do_not_follow_the_wall_clock(self):
        called = []
        use_monotonic_clock(self.reactor)
        self.reactor.callLater(0, called.append, 1)
        self.reactor.callLater(60, called.append, 2)
        self.wall.advance(300)
        self.reactor.runUntilCurrent()
        self.assertEqual(called, [1])

    def test_earlier_timers_keep_their_remaining_time(self):
        call = self.reactor.callLater(60, lambda: None)
        use_monotonic_clock(self.reactor)
        use_monotonic_clock(self.reactor)
        self.assertLess(abs(call.getTime() - monotonic() - 60), 30)
        call.reset(20)
        self.assertLess(abs(call.getTime() - monotonic() - 20), 10)

    def test_reactors_of_the_client_library_are_monotonic(self):
        self.assertIs(ThreadReactor.seconds, monotonic)
        self.assertIs(LoopReactor.seconds, monotonic)
