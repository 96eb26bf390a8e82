"""Members of a group whose brokers lose their connections, and offsets stored early, on a fake clock."""

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.consumer.membership.rebalance import HANDOVER_SECONDS, MAX_HANDOVER_SECONDS
from rocketd.client.consumer.offsets.early_commits import COMMIT_SECONDS, EarlyCommits
from rocketd.client.consumer.options.kind_options import ConsumerOptions
from rocketd.client.consumer.push_consumer import LET_END_SECONDS, PushConsumerEngine
from rocketd.client.consumer.retries.handler_results import Reject, Retry
from rocketd.client.instance.client_instance import RETURN_SECONDS
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.errors import RemotingSendRequestError
from rocketd.remoting.wire.command import RemotingCommand
from tests.support.consuming import ConsumingTestCase

A, B = "a:10911", "b:10911"
HEARTBEAT, LIST, GET_OFFSET, COMMIT, PULL, UNLOCK = 34, 38, 14, 15, 11, 42


class MemberTestCase(ConsumingTestCase):
    """Has a member of a group that takes all messages, at two brokers."""

    def setUp(self):
        super().setUp()
        self.cluster.brokers.append("b")
        self.cluster.topics.add("%RETRY%cg")

        async def take(message):
            pass

        self.consumer = self.start(take)
        self.cluster.asked.clear()

    def lose(self, address):
        """Lose the connection to a broker, which forgets the member."""
        self.client.connection_lost(address)

    def rebalance(self):
        self.cluster.request(40, {"consumerGroup": "cg"})

    def brokers(self):
        return sorted(queue.broker_name for queue in self.consumer.queues())

    def heartbeats(self):
        return [address for address, _ in self.cluster.of(HEARTBEAT)]


class MemberListTests(MemberTestCase):
    def test_list_without_itself_is_asked_for_again_after_heartbeat(self):
        self.cluster.others, self.cluster.present = ("zzz",), ()

        def confirm(address, request, fields):
            self.cluster.others, self.cluster.present = (), (self.client.client_id,)
            return RemotingCommand.response(0)

        self.cluster.answer_34 = confirm
        self.rebalance()
        self.assertEqual([code for code in self.cluster.codes() if code in (HEARTBEAT, LIST)][:3], [38, 34, 38])
        self.assertEqual(self.heartbeats(), [A])
        self.assertEqual(self.brokers(), ["a", "b"])
        self.assertEqual(self.cluster.pulls(), {A: 0, B: 0})

    def test_refused_heartbeat_keeps_the_share(self):
        self.cluster.others, self.cluster.present = ("zzz",), ()
        self.cluster.refusals[HEARTBEAT, A] = 1
        self.cluster.refusals[HEARTBEAT, B] = 1
        self.rebalance()
        self.assertEqual(self.brokers(), ["a", "b"])

    def test_member_missing_after_heartbeat_gives_up(self):
        self.cluster.others, self.cluster.present = ("zzz",), ()
        self.rebalance()
        self.assertEqual(self.brokers(), [])

    def test_missing_members_keep_their_queues_until_their_next_heartbeat(self):
        self.cluster.others = ("zzz",)
        self.rebalance()
        self.assertEqual(self.brokers(), ["a"])
        self.lose(A)
        self.cluster.others = ()
        self.rebalance()
        self.assertEqual(self.brokers(), ["a"])
        self.clock.pump([1.0] * 30)
        self.assertEqual(self.brokers(), ["a", "b"])

    def test_missing_members_wait_once_through_repeated_losses(self):
        self.cluster.others = ("zzz",)
        self.rebalance()
        self.cluster.others = ()
        for _ in range(70):
            self.lose(A)
            self.clock.advance(1)
        self.assertEqual(self.brokers(), ["a", "b"])

    def test_member_that_returned_after_a_loss_and_left_does_not_count(self):
        self.cluster.others = ("zzz",)
        self.rebalance()
        self.lose(A)
        self.rebalance()
        self.assertEqual(self.brokers(), ["a"])
        self.cluster.others = ()
        self.rebalance()
        self.assertEqual(self.brokers(), ["a", "b"])

    def test_member_that_joined_after_a_loss_and_left_does_not_count(self):
        self.lose(A)
        self.rebalance()
        self.cluster.others = ("zzz",)
        self.rebalance()
        self.assertEqual(self.brokers(), ["a"])
        self.cluster.others = ()
        self.rebalance()
        self.assertEqual(self.brokers(), ["a", "b"])

    def test_returned_member_is_awaited_again_after_the_next_loss(self):
        self.cluster.others = ("zzz",)
        for _ in range(2):
            self.rebalance()
            self.lose(A)
        self.cluster.others = ()
        self.rebalance()
        self.assertEqual(self.brokers(), ["a"])

    def test_new_member_counts_at_once_after_loss(self):
        self.lose(A)
        self.cluster.others = ("zzz",)
        self.rebalance()
        self.assertEqual(self.brokers(), ["a"])

    def test_forgotten_member_sends_one_heartbeat_before_it_pulls(self):
        self.lose(A)
        self.fail_pulls()
        answer = Deferred()
        self.cluster.answer_34 = lambda address, request, fields: answer
        self.clock.advance(0.1)
        self.assertEqual(self.heartbeats(), [A])
        self.assertEqual(self.cluster.of(PULL), [])
        answer.callback(RemotingCommand.response(0))
        self.assertEqual({address for address, _ in self.cluster.of(PULL)}, {A})
        self.assertEqual(len(self.cluster.of(PULL)), 2)  # the topic and its retries

    def fail_pulls(self):
        for address, _, held in list(self.cluster.held):
            if address == A and not held.called:
                held.errback(RemotingSendRequestError(A, "closed"))

    def test_refused_heartbeat_is_not_repeated_with_each_pull(self):
        self.lose(A)
        self.cluster.refusals[HEARTBEAT, A] = 1
        for _ in range(3):
            self.fail_pulls()
            self.clock.advance(1)
        self.assertEqual(self.heartbeats(), [A])
        self.assertGreater(len(self.cluster.of(PULL)), 2)

    def test_unreachable_broker_gets_the_heartbeat_when_it_is_back(self):
        self.lose(A)
        self.cluster.down.add(A)
        self.fail_pulls()
        self.clock.pump([0.1] * 20)
        self.cluster.down.clear()
        self.cluster.asked.clear()
        self.clock.pump([0.1] * 40)
        self.assertEqual(self.cluster.codes()[0], HEARTBEAT)
        self.assertEqual(self.heartbeats(), [A])

    def test_forgotten_member_without_queues_returns_soon(self):
        self.cluster.others = ("0", "1")
        self.rebalance()
        self.assertEqual(self.brokers(), [])
        self.lose(A)
        self.cluster.down.add(A)
        self.clock.advance(RETURN_SECONDS)
        self.cluster.down.clear()
        self.cluster.asked.clear()
        self.clock.advance(RETURN_SECONDS)
        self.assertEqual(self.heartbeats(), [A])
        self.clock.advance(RETURN_SECONDS)
        self.assertEqual(self.heartbeats(), [A])

    def test_loss_of_unknown_address_is_not_remembered(self):
        self.lose("ns:9876")
        self.assertFalse(self.client.is_forgotten_by("ns:9876"))


class UnannouncedTests(MemberTestCase):
    """A broker was away while its route was, so that it has no heartbeat of the member when its queues come back."""

    def restart_b(self, refusal):
        self.cluster.down.add(B)
        self.lose(B)
        self.cluster.brokers.remove("b")
        self.refresh()
        self.assertEqual(self.brokers(), ["a"])
        self.clock.pump([1.0] * 35)  # until the heartbeat without b
        self.cluster.down.clear()
        self.cluster.held.clear()
        self.cluster.asked.clear()
        self.cluster.refusals[PULL, B] = refusal
        self.cluster.brokers.append("b")

        def confirm(address, request, fields):
            self.cluster.refusals.pop((PULL, address), None)
            return RemotingCommand.response(0)

        self.cluster.answer_34 = confirm
        self.refresh()
        self.assertEqual(self.brokers(), ["a", "b"])

    def refresh(self):
        self.result_of(self.client.routes.refresh(self.client.routes.topics))
        self.rebalance()

    def test_broker_without_the_group_gets_a_heartbeat_at_once(self):
        self.restart_b(24)
        self.assertEqual(self.heartbeats(), [B])
        self.clock.advance(0.1)
        self.assertEqual(self.cluster.pulls(), {B: 0})

    def test_broker_with_an_older_subscription_gets_a_heartbeat_at_once(self):
        self.restart_b(25)
        self.assertEqual(self.heartbeats(), [B])
        self.clock.advance(0.1)
        self.assertEqual(self.cluster.pulls(), {B: 0})


class HandoverTests(MemberTestCase):
    """Another member joins and leaves, so that this one has the first queue, then the second."""

    def exchange(self):
        self.cluster.others = ("zzz",)
        self.rebalance()
        self.assertEqual(self.brokers(), ["a"])
        self.cluster.asked.clear()
        self.cluster.others = ("0",)
        self.rebalance()

    def test_queue_is_given_up_at_once_and_the_next_one_taken_after_a_pause(self):
        self.exchange()
        self.assertEqual(self.brokers(), [])
        self.assertEqual(self.cluster.of(GET_OFFSET), [])  # the other member has not stored it yet
        self.clock.advance(HANDOVER_SECONDS)
        self.assertEqual(self.brokers(), ["b"])

    def test_last_member_takes_queues_without_a_pause(self):
        self.exchange()
        self.clock.advance(HANDOVER_SECONDS)
        self.cluster.others = ()
        self.rebalance()
        self.assertEqual(self.brokers(), ["a", "b"])

    def test_stop_ends_the_pause(self):
        self.exchange()
        self.end_of(self.consumer.stop())
        self.assertEqual(self.cluster.of(GET_OFFSET), [])

    def test_change_in_the_pause_changes_the_queues_to_take(self):
        self.exchange()
        self.clock.advance(HANDOVER_SECONDS / 2)
        self.cluster.others = ("zzz",)
        self.rebalance()
        self.clock.advance(HANDOVER_SECONDS / 2)
        self.assertEqual(self.brokers(), [])  # the next member may still have the new queue
        self.clock.advance(HANDOVER_SECONDS / 2)
        self.assertEqual(self.brokers(), ["a"])
        self.assertEqual({address for address, _ in self.cluster.of(GET_OFFSET)}, {A})

    def test_queue_is_given_up_at_once_in_the_pause(self):
        self.exchange()
        self.clock.advance(HANDOVER_SECONDS)
        self.assertEqual(self.brokers(), ["b"])
        self.cluster.others = ("zzz",)
        self.rebalance()  # it gives up b, and pauses before a
        self.cluster.others = ()
        self.rebalance()
        self.assertEqual(self.brokers(), ["a", "b"])
        self.cluster.others = ("0",)
        self.rebalance()
        self.assertEqual(self.brokers(), ["b"])

    def test_constant_changes_do_not_keep_queues_from_being_taken(self):
        self.exchange()
        steps = 0
        while not self.brokers():
            self.clock.advance(HANDOVER_SECONDS / 2)
            self.rebalance()
            steps += 1
        self.assertEqual(steps * HANDOVER_SECONDS / 2, MAX_HANDOVER_SECONDS)
        self.assertEqual(self.brokers(), ["b"])

    def test_unsubscribed_topic_does_not_keep_others_from_being_taken(self):
        self.cluster.topics.add("U")
        self.cluster.others = ("0", "1")
        self.consumer.subscribe("U")
        self.rebalance()
        self.assertEqual(self.brokers(), [])
        answers = []

        def answer_later(address, request, fields):
            answers.append(Deferred())
            return answers[-1]

        self.cluster.answer_14 = answer_later
        self.cluster.others = ()
        self.rebalance()
        self.consumer.unsubscribe("U")
        del self.cluster.answer_14
        for answer in answers:
            answer.callback(RemotingCommand.response(22))
        self.assertEqual(
            [(queue.topic, queue.broker_name) for queue in self.consumer.queues()], [("T", "a"), ("T", "b")]
        )
        self.assertEqual(self.lines, [])


class LetEndTests(MemberTestCase):
    """A queue is given up while its handler runs: its result counts if it comes soon."""

    def setUp(self):
        super().setUp()
        self.end_of(self.consumer.stop())
        self.cluster.offsets.clear()
        self.waiting = []

        async def handler(message):
            self.waiting.append(Deferred())
            await self.waiting[-1]

        self.consumer = self.start(handler, group="cg", concurrency=1)
        self.cluster.deliver(B, [(b"one", ""), (b"two", "")], 0)
        self.assertEqual(len(self.waiting), 1)
        self.cluster.others = ("zzz",)
        self.rebalance()

    def test_result_within_the_time_counts(self):
        self.assertEqual(self.brokers(), ["a", "b"])
        self.waiting[0].callback(None)
        self.assertEqual(self.brokers(), ["a"])
        self.assertEqual(self.cluster.offsets[B, "T"], 1)
        self.assertEqual(len(self.waiting), 1)  # no further handler starts

    def test_slow_handler_is_not_waited_for_any_longer(self):
        self.clock.advance(LET_END_SECONDS)
        self.assertEqual(self.brokers(), ["a"])
        self.waiting[0].callback(None)
        self.clock.advance(10)
        self.assertEqual(self.cluster.offsets.get((B, "T"), 0), 0)

    def test_others_wait_for_longer_than_handlers_get(self):
        self.assertLess(LET_END_SECONDS, HANDOVER_SECONDS)


class GivenUpTests(MemberTestCase):
    """Queues are given up while handlers run."""

    def consume(self, handle, **options):
        self.end_of(self.consumer.stop())
        self.cluster.offsets.clear()
        self.consumer = self.start(handle, group="cg", **options)

    async def wait_if_slow(self, message):
        if message.body == b"slow":
            await Deferred()

    def test_offset_so_far_is_stored_before_handlers_are_waited_for(self):
        """Members with Apache's clients take the queue at once."""
        self.consume(self.wait_if_slow)
        self.cluster.deliver(B, [(b"one", ""), (b"slow", "")], 0)
        self.cluster.others = ("zzz",)
        self.rebalance()
        self.assertEqual(self.brokers(), ["a", "b"])
        self.assertEqual(self.cluster.offsets[B, "T"], 1)

    def test_queues_of_all_topics_are_given_up_at_once(self):
        self.cluster.topics.add("U")
        self.consume(self.wait_if_slow)
        self.consumer.subscribe("U")
        for topic in ("T", "U"):
            self.cluster.deliver(B, [(b"slow", "")], 0, topic=topic)
        self.cluster.others = ("zzz",)
        self.rebalance()
        self.assertEqual(self.brokers(), ["a", "a", "b", "b"])
        self.clock.advance(LET_END_SECONDS)
        self.assertEqual(self.brokers(), ["a", "a"])

    def test_result_of_handler_that_unsubscribes_at_once_counts(self):
        async def handle(message):
            self.consumer.unsubscribe("T")

        self.consume(handle)
        self.cluster.deliver(B, [(b"one", "")], 0)
        self.assertEqual(self.brokers(), [])
        self.assertEqual(self.cluster.offsets[B, "T"], 1)


class EarlyCommitTests(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.stored = []
        self.answers = []
        self.commits = EarlyCommits(self.clock, self.store)

    async def store(self, queues):
        self.stored.append([queue.queue_id for queue in queues])
        if self.answers:
            await self.answers.pop(0)

    def add(self, *numbers):
        for number in numbers:
            self.commits.add(MessageQueue("T", "a", number))

    def test_first_call_comes_at_once_with_all_queues(self):
        self.add(1, 0, 1)
        self.clock.advance(0)
        self.assertEqual(self.stored, [[0, 1]])

    def test_next_call_waits(self):
        self.add(0)
        self.clock.advance(0)
        for number in (1, 2):
            self.add(number)
            self.clock.advance(COMMIT_SECONDS / 4)
        self.assertEqual(self.stored, [[0]])
        self.clock.advance(COMMIT_SECONDS / 2)
        self.assertEqual(self.stored, [[0], [1, 2]])
        self.clock.advance(COMMIT_SECONDS)
        self.assertEqual(len(self.stored), 2)

    def test_next_call_waits_for_the_last(self):
        answer = Deferred()
        self.answers.append(answer)
        self.add(0)
        self.clock.advance(0)
        self.add(0)
        self.clock.advance(10 * COMMIT_SECONDS)
        self.assertEqual(self.stored, [[0]])
        answer.callback(None)
        self.clock.advance(0)
        self.assertEqual(self.stored, [[0], [0]])

    def test_error_is_logged_and_does_not_end_the_commits(self):
        self.answers.append(Deferred())
        self.answers[0].errback(ValueError("no"))
        self.add(0)
        self.clock.advance(0)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.add(1)
        self.clock.advance(COMMIT_SECONDS)
        self.assertEqual(self.stored, [[0], [1]])

    def test_stop_leaves_no_timer(self):
        self.add(0)
        self.commits.stop()
        self.add(1)
        self.assertEqual((self.clock.getDelayedCalls(), self.stored), ([], []))


class StoredEarlyTests(ConsumingTestCase):
    def stored_now(self):
        self.clock.advance(0)
        return self.cluster.offsets.get((A, "T"))

    def test_offset_is_stored_when_the_queue_runs_empty(self):
        for order in ("none", "key", "queue"):
            waiting = []

            def handler(message, waiting=waiting):
                waiting.append(Deferred())
                return waiting[-1]

            async def handle(message, handler=handler):
                await handler(message)

            consumer = self.start(handle, order=order, group=f"cg-{order}")
            self.deliver(b"one", b"two")
            waiting[0].callback(None)
            self.assertFalse(self.stored_now(), order)
            waiting[1].callback(None)
            self.assertEqual(self.stored_now(), 2, order)
            self.end_of(consumer.stop())
            self.cluster.offsets.clear()

    def test_broadcasting_consumer_stores_nothing_at_brokers(self):
        async def handler(message):
            pass

        options = ConsumerOptions(begin="earliest", broadcast=True, offset_directory=self.mktemp())
        consumer = PushConsumerEngine(self.client, "cg", handler, options=options)
        consumer.subscribe("T")
        self.end_of(consumer.start())
        self.deliver(b"one")
        self.assertNotIn("_begin", [getattr(call.func, "__name__", "") for call in self.clock.getDelayedCalls()])
        self.assertIsNone(self.stored_now())
        self.end_of(consumer.stop())


class BroadcastFailureTests(ConsumingTestCase):
    """No broker takes a message of a broadcasting consumer back: it tries again itself, or leaves the message behind."""

    def consume(self, error, tries, **options):
        handled = []

        async def handler(message):
            handled.append((message.body, message.reconsume_times))
            if message.body == b"bad":
                raise error

        given = ConsumerOptions(
            begin="earliest", broadcast=True, offset_directory=self.mktemp(), suspend_time=1, **options
        )
        consumer = PushConsumerEngine(self.client, "cg", handler, options=given)
        consumer.subscribe("T")
        self.end_of(consumer.start())
        self.deliver(b"bad", b"good")
        (assigned,) = [each for queue, each in consumer.assigned.items() if queue.broker_name == "a"]
        for pause in tries:
            self.assertEqual(assigned.held.count, 1)
            self.clock.advance(pause)
        self.assertEqual(assigned.held.count, 0)
        self.end_of(consumer.stop())
        return handled

    def test_failed_message_comes_again_as_often_as_wanted_with_longer_pauses(self):
        handled = self.consume(ValueError(), (1, 2), max_reconsume_times=2)
        self.assertEqual(handled, [(b"bad", 0), (b"good", 0), (b"bad", 1), (b"bad", 2)])
        self.assertEqual(self.given_back(), [])

    def test_pause_is_that_of_retry(self):
        self.assertEqual(len(self.consume(Retry(delay=0.5), (0.5,), max_reconsume_times=1)), 3)

    def test_failed_message_is_left_behind_by_default_and_if_rejected(self):
        self.assertEqual(self.consume(ValueError(), ()), [(b"bad", 0), (b"good", 0)])
        self.cluster.held.clear()
        self.assertEqual(self.consume(Reject(), (), max_reconsume_times=2), [(b"bad", 0), (b"good", 0)])


class GivenUpInOrderTests(ConsumingTestCase):
    """A queue in order is given up while its handler runs: it stays locked until then."""

    def give_up(self, result):
        waiting = Deferred()

        async def handler(message):
            await waiting
            if result is not None:
                raise result

        self.consumer = self.start(handler, order="queue")
        self.deliver(b"one", b"two")
        (self.queue,) = [queue for queue in self.consumer.assigned if queue.topic == "T"]
        self.assigned = self.consumer.assigned[self.queue]
        self.cluster.asked.clear()
        self.giving = Deferred.fromCoroutine(self.consumer.give_up([self.queue]))
        self.assertNoResult(self.giving)
        return waiting

    def test_result_of_the_handler_counts(self):
        self.give_up(None).callback(None)
        self.successResultOf(self.giving)
        self.assertEqual(self.cluster.offsets[A, "T"], 1)
        codes = self.cluster.codes()
        self.assertLess(codes.index(COMMIT), codes.index(UNLOCK))

    def test_failed_message_is_left_to_the_next_member_at_once(self):
        self.give_up(Retry()).callback(None)
        self.successResultOf(self.giving)
        self.assertEqual(self.cluster.offsets[A, "T"], 0)

    def test_result_does_not_count_without_the_lock(self):
        waiting = self.give_up(None)
        self.assigned.held.locked = False
        waiting.callback(None)
        self.successResultOf(self.giving)
        self.assertEqual(self.cluster.offsets.get((A, "T"), 0), 0)
