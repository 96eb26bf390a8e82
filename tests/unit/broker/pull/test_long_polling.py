"""The table of held pulls by itself: wake-ups, timeouts, races."""

from types import SimpleNamespace

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.pull.long_polling import (
    AT_ONCE,
    HERE_LIMIT,
    LOOK_MS,
    NEAR,
    HeldPull,
    LongPolling,
    PullRequest,
)
from rocketd.remoting.headers.client import PullMessageRequestHeader


class LongPollingTests(SynchronousTestCase):
    def setUp(self):
        self.now = 0
        self.ends = {}
        self.again = []
        self.calls = []
        self.table = LongPolling(
            lambda: self.now,
            lambda topic, queue_id: self.ends.get((topic, queue_id), 0),
            self.again.append,
            self.calls.append,
        )
        self.storage_may_answer = True
        self.arrivals = []
        self.after_jobs = self.table.answers_after(self.make_visible, lambda: self.storage_may_answer)

    def make_visible(self, idle):
        if self.arrivals:
            self.table.arrived(self.arrivals)
        return idle

    def pull(self, offset=0, topic="T", queue_id=0, tags=None, matches_unit=None, matches=None, deadline=100):
        header = PullMessageRequestHeader("G", topic, queue_id, offset, 32, 2, 0, 0, 0)
        request = PullRequest(SimpleNamespace(closed=False), 1, False, 0, 0, header)
        wanted = SimpleNamespace(tags_codes=tags, matches_unit=matches_unit, matches=matches)
        return HeldPull(request, wanted, deadline)

    def hold(self, **more):
        pull = self.pull(**more)
        self.table.hold(pull)
        return pull

    def arrive(self, end=1, topic="T", queue_id=0, tags_code=0, properties=b"", stored=0, bitmap=None):
        self.ends[topic, queue_id] = end
        self.table.arrived([(topic, queue_id, end, tags_code, stored, properties, bitmap)])
        calls, self.calls[:] = list(self.calls), []
        for call in calls:
            call()

    def test_pulls_of_ended_topics_run_again(self):
        ended = [self.hold(topic=topic, queue_id=queue_id) for topic, queue_id in (("T", 0), ("T", 1), ("U", 0))]
        self.hold(topic="V")
        self.table.end({"T", "U"})
        self.assertEqual(self.again, [])
        (run,) = self.calls
        run()
        self.assertEqual(self.again, ended)
        self.assertEqual(self.table.count, 1)

    def many(self, count, **more):
        connection = SimpleNamespace(closed=False)
        pulls = [self.pull(**more) for _ in range(count)]
        for pull in pulls:
            pull.request.connection = connection
        return pulls

    def test_wake_of_many_pulls_does_not_delay_others(self):
        """One message wakes 1,000 pulls of one connection, then one of another; other requests come in between."""
        greedy, honest = self.many(1_000), self.pull()
        self.assertTrue(all(map(self.table.hold, [*greedy, honest])))
        self.ends["T", 0] = 1
        self.table.arrived([("T", 0, 1, 0, 0, b"", None)])
        (wake,) = self.calls
        self.calls.clear()
        wake()
        self.assertEqual(len(self.again), AT_ONCE)
        self.assertIn(honest, self.again[:2])
        self.assertEqual(len(self.calls), 1)
        while self.calls:
            self.calls.pop()()
        self.assertEqual([pull for pull in self.again if pull is not honest], greedy)
        self.assertEqual(self.table.count, 0)

    def test_expired_pulls_run_in_batches(self):
        for pull in self.many(AT_ONCE * 2):
            self.table.hold(pull)
        self.now = 100
        self.table.check()
        self.assertEqual((len(self.again), len(self.calls)), (AT_ONCE, 1))

    def test_pulls_beyond_the_limits_are_not_held(self):
        self.table.max_held, self.table.max_of_connection = 5, 3
        greedy = self.many(4)
        self.assertEqual([self.table.hold(pull) for pull in greedy], [True, True, True, False])
        self.assertEqual([self.table.hold(self.pull()) for _ in range(3)], [True, True, False])
        self.arrive()
        self.assertEqual((len(self.again), self.table.count), (5, 0))
        self.assertEqual([self.table.hold(pull) for pull in self.many(1, offset=1)], [True])

    def test_arrival_without_held_pulls_does_nothing(self):
        self.table.arrived([("T", 0, 1, 0, 0, b"", None)])
        self.assertEqual(self.calls, [])

    def test_arrival_wakes_pulls_of_its_queue_in_order(self):
        first, other, second = self.hold(), self.hold(queue_id=1), self.hold()
        self.arrive()
        self.assertEqual(self.again, [first, second])
        self.assertEqual(self.table.count, 1)
        self.arrive(queue_id=1)
        self.assertEqual(self.again[2:], [other])
        self.assertEqual(self.table.count, 0)

    def test_arrival_for_other_queues_makes_no_call(self):
        self.hold()
        self.table.arrived([("U", 0, 1, 0, 0, b""), ("T", 1, 1, 0, 0, b"")])
        self.assertEqual(self.calls, [])

    def test_pulls_for_later_messages_stay_held(self):
        later = self.hold(offset=5)
        self.arrive(end=5)
        self.assertEqual(self.again, [])
        self.arrive(end=6)
        self.assertEqual(self.again, [later])

    def test_arrival_with_other_tag_keeps_pull_held(self):
        mine = self.hold(tags=frozenset({7}))
        self.arrive(tags_code=8)
        self.assertEqual(self.again, [])
        self.arrive(end=2, tags_code=7)
        self.assertEqual(self.again, [mine])

    def test_arrival_with_other_properties_keeps_pull_held(self):
        mine = self.hold(matches=lambda properties: properties == b"good")
        self.arrive(properties=b"bad")
        self.assertEqual(self.again, [])
        self.arrive(end=2, properties=b"good")
        self.assertEqual(self.again, [mine])

    def test_arrival_before_hold_runs_pull_again(self):
        self.ends["T", 0] = 1
        pull = self.hold()
        self.assertEqual((self.again, self.table.count), ([pull], 0))

    def test_bitmap_is_checked_before_properties(self):
        pull = self.hold(
            matches_unit=lambda stored, bitmap: (stored, bitmap) == (7, b"good"), matches=lambda properties: True
        )
        self.arrive(stored=7, bitmap=b"bad")
        self.assertEqual(self.again, [])
        self.arrive(stored=7, bitmap=b"good")
        self.assertEqual(self.again, [pull])

    def test_arrival_during_hold_runs_pull_once(self):
        pull = self.pull()

        def max_offset(topic, queue_id):
            # The message becomes visible and is told right now, in another thread.
            self.table.arrived([("T", 0, 1, 0, 0, b"", None)])
            return 1

        self.table._max_offset = max_offset
        self.table.hold(pull)
        self.assertEqual(len(self.calls), 1)
        self.calls[0]()
        self.assertEqual((self.again, self.table.count), ([pull], 0))

    def test_pull_without_match_advances_periodically(self):
        pull = self.hold(tags=frozenset({7}), deadline=15_000)
        later = self.hold(offset=1, tags=frozenset({7}), deadline=15_000)
        self.arrive(tags_code=8)
        self.now = LOOK_MS - 1
        self.table.check()
        self.assertEqual(self.again, [])
        self.now = LOOK_MS
        self.table.check()
        self.assertEqual(self.again, [pull])
        self.now = 2 * LOOK_MS - 1
        self.arrive(end=2, tags_code=8)
        self.table.check()
        self.assertEqual(self.again, [pull])
        self.now = 2 * LOOK_MS
        self.table.check()
        self.assertEqual(self.again, [pull, later])

    def test_expired_pulls_run_again(self):
        soon, late = self.hold(deadline=10), self.hold(deadline=11)
        self.now = 9
        self.table.check()
        self.assertEqual(self.again, [])
        self.now = 10
        self.table.check()
        self.assertEqual(self.again, [soon])
        self.now = 11
        self.table.check()
        self.assertEqual(self.again, [soon, late])

    def test_pull_held_again_while_run_stays(self):
        pulls = []

        def again(pull):
            pulls.append(pull)
            self.table.hold(pull._replace(deadline_ms=1000))

        self.table._run_again = again
        self.hold(deadline=10)
        self.now = 10
        self.table.check()
        self.assertEqual((len(pulls), self.table.count), (1, 1))

    # ------------------------------------------------------------ answers of the storage thread

    def dispatch(self, *keys, end=1, tags_code=0):
        self.arrivals = [(topic, queue_id, end, tags_code, 0, b"", None) for topic, queue_id in keys]
        self.assertIs(self.after_jobs(False), False)
        self.arrivals = []

    def test_few_pulls_are_answered_without_a_call(self):
        first, second, other = self.hold(), self.hold(queue_id=1), self.hold(queue_id=2)
        self.dispatch(("T", 0), ("T", 1))
        self.assertEqual((self.again, self.calls), ([first, second], []))
        self.assertEqual(self.table.count, 1)
        self.dispatch(("T", 2))
        self.assertEqual((self.again[2:], self.calls), ([other], []))

    def test_other_tag_keeps_pull_held_without_a_call(self):
        self.hold(tags=frozenset({7}))
        self.dispatch(("T", 0), tags_code=8)
        self.assertEqual((self.again, self.calls, self.table.count), ([], [], 1))

    def assert_handed_over(self, *pulls):
        self.assertEqual(self.again, [])
        self.assertEqual(len(self.calls), 1)
        self.calls.pop()()
        self.assertEqual(self.again, list(pulls))
        self.again.clear()

    def test_pulls_that_may_take_long_are_handed_over(self):
        pull = self.hold(matches=lambda properties: True)
        self.dispatch(("T", 0))
        self.assert_handed_over(pull)
        pull = self.hold(offset=1, matches_unit=lambda stored, bitmap: True)
        self.dispatch(("T", 0), end=2)
        self.assert_handed_over(pull)
        self.ends.clear()
        far, near = self.hold(offset=2), self.hold(offset=2, queue_id=1)
        self.dispatch(("T", 0), end=3 + NEAR)
        self.assert_handed_over(far)
        self.dispatch(("T", 1), end=2 + NEAR)
        self.assertEqual((self.again, self.calls), ([near], []))

    def test_many_pulls_or_arrivals_are_handed_over(self):
        pulls = [self.hold() for _ in range(HERE_LIMIT + 1)]
        self.dispatch(("T", 0))
        self.assert_handed_over(*pulls)
        pulls = [self.hold(queue_id=queue_id) for queue_id in range(HERE_LIMIT + 1)]
        self.dispatch(*[("T", queue_id) for queue_id in range(HERE_LIMIT + 1)])
        self.assert_handed_over(*pulls)

    def test_pulls_are_handed_over_while_others_run(self):
        """The pull pool's thread has the guard, or hooks of a plugin are in the way."""
        pull = self.hold()
        with self.table.guard:
            self.dispatch(("T", 0))
        self.assert_handed_over(pull)
        pull = self.hold(queue_id=1)
        self.storage_may_answer = False
        self.dispatch(("T", 1))
        self.assert_handed_over(pull)

    def test_arrivals_of_other_threads_are_handed_over(self):
        self.dispatch()
        pull = self.hold()
        self.table.arrived([("T", 0, 1, 0, 0, b"", None)])
        self.assert_handed_over(pull)

    def test_woken_pulls_are_not_overtaken(self):
        pulls = self.many(AT_ONCE + 1)
        for pull in pulls:
            self.table.hold(pull)
        self.arrive()
        self.assertEqual((len(self.again), len(self.calls)), (AT_ONCE, 1))
        late = self.hold(queue_id=1)
        self.dispatch(("T", 1))
        self.assertEqual(len(self.again), AT_ONCE)
        while self.calls:
            self.calls.pop(0)()
        self.assertEqual(self.again, [*pulls, late])
