"""Many deadlines on one timer of the reactor."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting.calling.deadlines import Deadlines
from tests.support.examples import examples


class DeadlinesTests(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.deadlines = Deadlines(self.clock)
        self.reached = []

    def add(self, seconds):
        return self.deadlines.add(seconds, lambda: self.reached.append((seconds, self.clock.seconds())))

    def test_deadlines_fire_at_their_times(self):
        for seconds in (3.0, 1.0, 2.0, 1.0, 0.0):
            self.add(seconds)
        self.clock.pump([0.0, 0.5, 0.5, 0.5, 0.5, 0.5])
        self.assertEqual(self.reached, [(0.0, 0.0), (1.0, 1.0), (1.0, 1.0), (2.0, 2.0)])
        self.assertEqual(len(self.deadlines), 1)
        self.clock.advance(9)
        self.assertEqual(len(self.reached), 5)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_time_goes_on_while_the_next_timer_is_set(self):
        class Restless(Clock):
            """Each look at it takes a while; as reactors, it takes no delay below 0."""

            def seconds(self):
                self.rightNow += 0.0001
                return self.rightNow

            def callLater(self, delay, function, *arguments, **keywords):  # noqa: N802
                assert delay >= 0
                return super().callLater(delay, function, *arguments, **keywords)

        self.clock = Restless()
        self.deadlines = Deadlines(self.clock)
        for number in range(10):
            self.add(1 - number * 0.00005)  # closer together than looks at the clock
        self.clock.pump([0.99] + [0.0] * 200)
        self.assertEqual(len(self.reached), 10)

    def test_cancelled_deadline_does_not_fire(self):
        first, second = self.add(1), self.add(2)
        first.cancel()
        first.cancel()
        self.clock.advance(2)
        self.assertEqual(self.reached, [(2, 2.0)])
        second.cancel()
        self.assertEqual(len(self.deadlines), 0)

    def test_callback_may_cancel_and_add_deadlines(self):
        self.deadlines.add(1, lambda: (other.cancel(), self.add(1)))
        other = self.add(1)
        self.clock.advance(1)
        self.assertEqual(self.reached, [])
        self.clock.advance(1)
        self.assertEqual(self.reached, [(1, 2.0)])

    def test_failing_callback_leaves_other_deadlines_alone(self):
        self.deadlines.add(1, lambda: 1 / 0)
        self.add(1)
        self.clock.advance(1)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(self.reached, [(1, 1.0)])

    def test_many_deadlines_use_one_timer(self):
        deadlines = [self.add(Random(number).uniform(1, 2)) for number in range(5000)]
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        for deadline in deadlines:
            deadline.cancel()
        self.assertLess(len(self.deadlines._heap), 2000)

    def test_stop_leaves_no_deadlines(self):
        late = self.add(1)
        self.deadlines.stop()
        late.cancel()
        self.assertEqual((self.clock.getDelayedCalls(), len(self.deadlines)), ([], 0))

    @settings(max_examples=examples(50), deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.integers(0, 2)), max_size=30))
    def test_deadlines_fire_as_separate_timers_would(self, steps):
        clock, other = Clock(), Clock()
        deadlines, reached, wanted = Deadlines(clock), [], []
        for number, (seconds, cancelled, wait) in enumerate(steps):
            deadline = deadlines.add(seconds, lambda number=number: reached.append((clock.seconds(), number)))
            timer = other.callLater(seconds, lambda number=number: wanted.append((other.seconds(), number)))
            if cancelled:
                deadline.cancel()
                timer.cancel()
            clock.advance(wait)
            other.advance(wait)
        for _ in range(6):
            clock.advance(1)
            other.advance(1)
        self.assertEqual(reached, wanted)
