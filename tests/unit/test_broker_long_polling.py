"""The table of waiting pulls by itself: who is woken, who goes on waiting, and the races."""

from types import SimpleNamespace

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.long_polling import AT_ONCE, LOOK_MS, HeldPull, LongPolling
from rocketd.remoting.headers import PullMessageRequestHeader


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

    def pull(self, offset=0, topic="T", queue_id=0, tags=None, matches_unit=None, matches=None, deadline=100):
        header = PullMessageRequestHeader("G", topic, queue_id, offset, 32, 2, 0, 0, 0)
        request = SimpleNamespace(connection=SimpleNamespace(closed=False))
        wanted = SimpleNamespace(tags_codes=tags, matches_unit=matches_unit, matches=matches)
        return HeldPull(request, header, wanted, deadline)

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

    def many(self, count, **more):
        connection = SimpleNamespace(closed=False)
        pulls = [self.pull(**more) for _ in range(count)]
        for pull in pulls:
            pull.request.connection = connection
        return pulls

    def test_many_pulls_of_one_connection_do_not_hold_up_others(self):
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

    def test_pulls_whose_time_is_over_take_turns_too(self):
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

    def test_nobody_waits(self):
        self.table.arrived([("T", 0, 1, 0, 0, b"", None)])
        self.assertEqual(self.calls, [])

    def test_only_the_queues_waiters_are_woken_in_the_order_they_came(self):
        first, other, second = self.hold(), self.hold(queue_id=1), self.hold()
        self.arrive()
        self.assertEqual(self.again, [first, second])
        self.assertEqual(self.table.count, 1)
        self.arrive(queue_id=1)
        self.assertEqual(self.again[2:], [other])
        self.assertEqual(self.table.count, 0)

    def test_other_queues_cost_no_call(self):
        self.hold()
        self.table.arrived([("U", 0, 1, 0, 0, b""), ("T", 1, 1, 0, 0, b"")])
        self.assertEqual(self.calls, [])

    def test_waiters_for_later_messages_go_on(self):
        later = self.hold(offset=5)
        self.arrive(end=5)
        self.assertEqual(self.again, [])
        self.arrive(end=6)
        self.assertEqual(self.again, [later])

    def test_tags(self):
        mine = self.hold(tags=frozenset({7}))
        self.arrive(tags_code=8)
        self.assertEqual(self.again, [])
        self.arrive(end=2, tags_code=7)
        self.assertEqual(self.again, [mine])

    def test_properties(self):
        mine = self.hold(matches=lambda properties: properties == b"good")
        self.arrive(properties=b"bad")
        self.assertEqual(self.again, [])
        self.arrive(end=2, properties=b"good")
        self.assertEqual(self.again, [mine])

    def test_what_came_before_the_hold_counts(self):
        self.ends["T", 0] = 1
        pull = self.hold()
        self.assertEqual((self.again, self.table.count), ([pull], 0))

    def test_the_bitmap_decides_before_the_properties(self):
        pull = self.hold(
            matches_unit=lambda stored, bitmap: (stored, bitmap) == (7, b"good"), matches=lambda properties: True
        )
        self.arrive(stored=7, bitmap=b"bad")
        self.assertEqual(self.again, [])
        self.arrive(stored=7, bitmap=b"good")
        self.assertEqual(self.again, [pull])

    def test_an_arrival_in_the_middle_of_the_hold_runs_it_once(self):
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

    def test_who_wants_none_of_the_messages_gets_past_them_now_and_then(self):
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

    def test_deadlines(self):
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

    def test_a_pull_that_is_held_again_while_it_is_run_stays(self):
        pulls = []

        def again(pull):
            pulls.append(pull)
            self.table.hold(pull._replace(deadline_ms=1000))

        self.table._run_again = again
        self.hold(deadline=10)
        self.now = 10
        self.table.check()
        self.assertEqual((len(pulls), self.table.count), (1, 1))
