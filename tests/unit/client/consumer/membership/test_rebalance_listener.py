"""Functions called when a consumer gets, gives up or loses queues, on a fake clock."""

from threading import Event

from twisted.internet.defer import CancelledError, Deferred

from rocketd.client.consumer.lite_pull_consumer import LitePullConsumerEngine
from rocketd.client.consumer.options.kind_options import ConsumerOptions, LitePullOptions
from rocketd.client.consumer.push_consumer import PushConsumerEngine
from rocketd.client.errors import IllegalOptionError, UsageError
from rocketd.remoting.bodies.tables import LockBatchResponseBody, MessageQueue
from rocketd.remoting.wire.command import RemotingCommand
from tests.support.consuming import ORDERS, ConsumingTestCase

FIRST, SECOND = (MessageQueue("T", "a", number) for number in range(2))
GET_MEMBERS, UPDATE_OFFSET, LOCK, UNLOCK, PULL = 38, 15, 41, 42, 11


async def handle(message):
    pass


class ListenerTestCase(ConsumingTestCase):
    """Has two queues of the topic. ``told`` are the calls, with the number of requests of each code before them."""

    def setUp(self):
        super().setUp()
        self.cluster.queues = 2
        self.told = []

    def recorder(self, name):
        async def listen(queues):
            codes = self.cluster.codes()
            self.told.append((name, queues, {code: codes.count(code) for code in (UPDATE_OFFSET, UNLOCK, PULL)}))

        return listen

    def functions(self, **others):
        return {**{name: self.recorder(name) for name in ("on_assigned", "on_revoked", "on_lost")}, **others}

    def start(self, listener=handle, **options):
        return super().start(listener, **self.functions(**options))

    def calls(self):
        return [(name, queues) for name, queues, _ in self.told]

    def join_another(self, name="000"):
        """Have another member take half of the queues. One with a small name takes the first."""
        self.cluster.others = (name,)
        self.clock.advance(20)

    def refuse_locks(self):
        self.cluster.answer_41 = lambda *_: RemotingCommand.response(0, body=LockBatchResponseBody(set()).encode())


class AssignedTests(ListenerTestCase):
    def test_on_assigned_gets_queues_before_the_first_pull(self):
        for order in ORDERS:
            self.told.clear()
            consumer = self.start(order=order, group=f"cg-{order}")
            self.assertEqual(self.calls(), [("on_assigned", [FIRST, SECOND])])
            pulls = self.told[0][2][PULL]
            self.assertEqual(self.cluster.codes().count(PULL), pulls + 2)
            self.end_of(consumer.stop())
            self.cluster.held.clear()

    def test_start_waits_for_on_assigned(self):
        waiting = Deferred()
        consumer = PushConsumerEngine(
            self.client, "cg", handle, options=ConsumerOptions(on_assigned=lambda queues: waiting)
        )
        consumer.subscribe("T")
        started = Deferred.fromCoroutine(consumer.start())
        self.clock.run_call()  # the function has returned the Deferred in its thread
        self.assertNoResult(started)
        self.assertEqual(self.cluster.held, [])
        waiting.callback(None)
        self.successResultOf(started)
        self.assertEqual(len(self.cluster.held), 2)

    def test_seek_in_on_assigned_chooses_the_first_pull(self):
        async def seek(queues):
            await consumer.seek(queues[0], 3)

        for order in ORDERS:
            consumer = PushConsumerEngine(
                self.client, f"cg-{order}", handle, options=ConsumerOptions(order=order, on_assigned=seek)
            )
            consumer.subscribe("T")
            self.result_of(consumer.start())
            pulls = [(fields["queueId"], fields["queueOffset"]) for _, fields, _ in self.cluster.held]
            self.assertEqual(sorted(pulls), [("0", "3"), ("1", "7")])
            self.end_of(consumer.stop())
            self.cluster.held.clear()
            self.cluster.offsets.clear()

    def test_queue_back_from_another_member_is_assigned_again(self):
        self.start()
        self.join_another()
        self.cluster.others = ()
        self.clock.advance(20)
        self.assertEqual(self.calls()[1:], [("on_revoked", [FIRST]), ("on_assigned", [FIRST])])


class RevokedTests(ListenerTestCase):
    def test_on_revoked_runs_before_offset_and_lock_are_released(self):
        self.start(order="queue")
        before = self.cluster.codes().count(UPDATE_OFFSET)
        self.cluster.deliver("a:10911", [(b"one", "")], 0)
        self.join_another()
        name, queues, codes = self.told[1]
        self.assertEqual((name, queues, codes[UNLOCK]), ("on_revoked", [FIRST], 0))
        self.assertEqual(self.cluster.codes().count(UNLOCK), 1)
        self.assertGreaterEqual(codes[UPDATE_OFFSET], before)

    def test_offset_is_stored_before_a_slow_on_revoked_ends(self):
        """With other orders the next member does not wait for this one. It would handle the same messages again."""
        waiting = Deferred()

        async def on_revoked(queues):
            await waiting

        self.start(on_revoked=on_revoked)
        self.cluster.deliver("a:10911", [(b"one", "")], 0)
        self.cluster.others = ("000",)
        self.cluster.request(40, {"consumerGroup": "cg"})
        self.assertEqual(self.cluster.offsets["a:10911", "T"], 1)
        waiting.callback(None)

    def test_queue_is_kept_until_on_revoked_has_ended(self):
        waiting = Deferred()

        async def on_revoked(queues):
            await waiting

        consumer = self.start(order="queue", on_revoked=on_revoked)
        asked = self.cluster.codes().count(LOCK)
        self.join_another()
        self.assertIn(FIRST, consumer.assigned)
        self.assertEqual(self.cluster.codes().count(UNLOCK), 0)
        self.clock.advance(20)
        self.assertGreater(self.cluster.codes().count(LOCK), asked)  # the lock is renewed meanwhile
        waiting.callback(None)
        self.assertNotIn(FIRST, consumer.assigned)
        self.assertEqual(self.cluster.codes().count(UNLOCK), 1)

    def test_handler_ends_before_on_revoked_with_order_queue(self):
        waiting = Deferred()

        async def wait(message):
            await waiting

        self.start(wait, order="queue")
        self.cluster.deliver("a:10911", [(b"one", ""), (b"two", "")], 0)
        self.join_another()
        self.assertEqual(len(self.told), 1)
        waiting.callback(None)
        self.assertEqual(self.calls()[1:], [("on_revoked", [FIRST])])
        self.assertEqual(self.cluster.offsets["a:10911", "T"], 1)

    def test_handler_from_before_a_seek_ends_before_queue_is_unlocked_with_order_queue(self):
        waiting = Deferred()

        async def wait(message):
            await waiting

        consumer = self.start(wait, order="queue")
        self.cluster.deliver("a:10911", [(b"one", "")], 0)
        self.result_of(consumer.seek(FIRST, 3))
        self.join_another()
        self.assertEqual((len(self.told), self.cluster.codes().count(UNLOCK)), (1, 0))
        waiting.callback(None)
        self.assertEqual(self.calls()[1:], [("on_revoked", [FIRST])])
        self.assertEqual(self.cluster.codes().count(UNLOCK), 1)
        self.assertEqual(self.cluster.offsets["a:10911", "T"], 3)

    def test_handler_that_ends_during_on_revoked_counts(self):
        handling, revoking = Deferred(), Deferred()

        async def wait(message):
            await handling

        async def on_revoked(queues):
            await revoking

        self.start(wait, on_revoked=on_revoked)
        self.cluster.deliver("a:10911", [(b"one", "")], 0)
        self.join_another()
        handling.callback(None)
        revoking.callback(None)
        self.assertEqual(self.cluster.offsets["a:10911", "T"], 1)

    def test_no_handler_starts_after_on_revoked_has_begun(self):
        handled, first, revoking = [], Deferred(), Deferred()

        async def wait(message):
            handled.append(message.body)
            await first

        async def on_revoked(queues):
            await revoking

        self.start(wait, concurrency=1, on_revoked=on_revoked)
        self.cluster.deliver("a:10911", [(b"one", ""), (b"two", "")], 0)
        self.join_another()
        first.callback(None)
        self.assertEqual(handled, [b"one"])

    def test_stop_revokes_all_queues_before_the_last_commit(self):
        for order in ORDERS:
            self.told.clear()
            consumer = self.start(order=order, group=f"cg-{order}")
            self.end_of(consumer.stop())
            self.assertEqual(self.calls()[1:], [("on_revoked", [FIRST, SECOND])])
            self.assertLess(self.told[1][2][UPDATE_OFFSET], self.cluster.codes().count(UPDATE_OFFSET))
            self.cluster.held.clear()

    def test_polling_consumer_commits_and_gets_no_message_in_on_revoked(self):
        async def on_revoked(queues):
            await consumer.commit({queues[0]: 1})
            self.told.append((queues, await consumer.poll(0)))

        consumer = LitePullConsumerEngine(
            self.client, "cg", options=LitePullOptions(begin="earliest", auto_commit=False, on_revoked=on_revoked)
        )
        consumer.subscribe("T")
        self.result_of(consumer.start())
        self.cluster.deliver("a:10911", [(b"one", ""), (b"two", "")], 0)
        self.join_another()
        self.assertEqual(self.told, [([FIRST], [])])
        self.assertEqual(self.cluster.offsets["a:10911", "T"], 1)
        self.end_of(consumer.stop())
        self.assertEqual(self.told, [([FIRST], []), ([SECOND], [])])

    def test_reset_of_a_queue_being_given_up_outlasts_its_running_handler(self):
        for order in ORDERS:
            handling, revoking = Deferred(), Deferred()

            async def wait(message, handling=handling):
                await handling

            async def on_revoked(queues, revoking=revoking):
                await revoking

            consumer = self.start(wait, order=order, group=f"cg-{order}", on_revoked=on_revoked)
            self.cluster.deliver("a:10911", [(b"one", "")], 3)
            self.join_another()
            consumer.reset_offsets("Other", {FIRST: 5})
            self.assertNotIn(5, consumer.offsets.clone("T").values())
            consumer.reset_offsets("T", {FIRST: 2})
            handling.callback(None)
            revoking.callback(None)
            self.assertNotIn(FIRST, consumer.assigned)
            self.assertEqual(self.cluster.offsets["a:10911", "T"], 2, order)
            self.end_of(consumer.stop())
            self.cluster.others = ()
            self.cluster.held.clear()
            self.cluster.offsets.clear()

    def test_reset_of_a_queue_being_given_up_outlasts_polled_messages(self):
        revoking = Deferred()

        async def on_revoked(queues):
            await revoking

        consumer = LitePullConsumerEngine(
            self.client, "cg", options=LitePullOptions(begin="earliest", on_revoked=on_revoked)
        )
        consumer.subscribe("T")
        self.result_of(consumer.start())
        self.cluster.deliver("a:10911", [(b"one", "")], 3)
        self.assertEqual(len(self.result_of(consumer.poll(0))), 1)
        self.join_another()
        consumer.reset_offsets("T", {FIRST: 2})
        self.result_of(consumer.commit())
        revoking.callback(None)
        self.assertEqual(self.cluster.offsets["a:10911", "T"], 2)

    def test_assign_cancelled_in_on_revoked_gives_up_its_queues(self):
        async def on_revoked(queues):
            await Deferred()

        consumer = LitePullConsumerEngine(
            self.client, "cg", options=LitePullOptions(begin="earliest", on_revoked=on_revoked)
        )
        self.result_of(consumer.assign([FIRST]))
        self.result_of(consumer.start())
        self.cluster.deliver("a:10911", [(b"one", "")], 0)
        self.assertEqual(len(self.result_of(consumer.poll(0))), 1)
        self.result_of(consumer.commit())
        assigning = Deferred.fromCoroutine(consumer.assign([SECOND]))
        assigning.cancel()
        self.failureResultOf(assigning, CancelledError)
        self.assertNotIn(FIRST, consumer.assigned)
        self.assertEqual(self.cluster.offsets["a:10911", "T"], 1)
        self.cluster.held.clear()
        self.result_of(consumer.assign([FIRST, SECOND]))
        pulls = {fields["queueId"]: fields["queueOffset"] for _, fields, _ in self.cluster.held}
        self.assertEqual(pulls, {"0": "1", "1": "1"})  # the fake broker stores one offset per topic

    def test_seek_in_on_revoked_is_refused(self):
        refused = []

        async def on_revoked(queues):
            try:
                await consumers[-1].seek(queues[0], 0)
            except UsageError as error:
                refused.append(str(error))

        polling = LitePullConsumerEngine(
            self.client, "cg", options=LitePullOptions(begin="earliest", on_revoked=on_revoked)
        )
        handling = PushConsumerEngine(self.client, "other", handle, options=ConsumerOptions(on_revoked=on_revoked))
        consumers = []
        for consumer in (polling, handling):
            consumer.subscribe("T")
            self.result_of(consumer.start())
            consumers.append(consumer)
            self.cluster.held.clear()
            self.join_another()
            self.assertEqual(refused, ["queue 0 of T at a is being given up: it cannot seek any more"])
            self.assertEqual(self.cluster.held, [])
            refused.clear()
            self.end_of(consumer.stop())
            self.cluster.others = ()
            refused.clear()


class LostTests(ListenerTestCase):
    def test_lost_lock_calls_on_lost_and_not_on_revoked(self):
        consumer = self.start(order="queue")
        self.refuse_locks()
        self.clock.advance(20)
        self.assertEqual(self.calls()[1:], [("on_lost", [FIRST, SECOND])])
        self.assertEqual(consumer.queues(), [])
        self.end_of(consumer.stop())
        self.assertEqual(len(self.told), 2)

    def test_lock_regained_assigns_queues_again(self):
        consumer = self.start(order="queue")
        answer = self.cluster.answer_41
        self.refuse_locks()
        self.clock.advance(20)
        self.cluster.answer_41 = answer
        self.clock.advance(20)
        self.assertEqual(self.calls()[2:], [("on_assigned", [FIRST, SECOND])])
        self.assertEqual(consumer.queues(), [FIRST, SECOND])

    def test_queue_taken_again_waits_for_the_handler_from_before_its_loss(self):
        self.cluster.queues = 1
        handled, waiting = [], Deferred()

        async def wait(message):
            handled.append(message.body)
            await waiting

        self.start(wait, order="queue")
        self.cluster.deliver("a:10911", [(b"one", "")], 0)
        answer = self.cluster.answer_41
        self.refuse_locks()
        self.clock.advance(20)
        self.cluster.answer_41 = answer
        self.clock.advance(20)
        self.cluster.held[:] = self.cluster.held[-1:]
        self.cluster.deliver("a:10911", [(b"one", "")], 0)
        self.assertEqual((self.calls()[2:], handled), ([("on_assigned", [FIRST])], [b"one"]))
        waiting.callback(None)
        self.assertEqual(handled, [b"one", b"one"])

    def test_lock_without_confirmation_expires(self):
        self.start(order="queue")
        self.cluster.refusals[LOCK, "a:10911"] = 1
        self.clock.advance(20)
        self.assertEqual(len(self.told), 1)
        self.clock.advance(20)
        self.assertEqual(self.calls()[1:], [("on_lost", [FIRST, SECOND])])

    def test_expired_lock_before_a_message_calls_on_lost(self):
        handled = []

        async def record(message):
            handled.append(message.body)

        consumer = self.start(record, order="queue")
        consumer.assigned[FIRST].held.locked = False
        self.cluster.deliver("a:10911", [(b"one", "")], 0)
        self.assertEqual((self.calls()[1:], handled), ([("on_lost", [FIRST])], []))


class FailureTests(ListenerTestCase):
    def test_error_is_logged_with_traceback_and_rebalance_goes_on(self):
        async def fail(queues):
            raise KeyError("no such state")

        consumer = self.start(on_assigned=fail, on_revoked=fail)
        self.assertEqual(len(self.cluster.held), 2)
        self.join_another()
        self.assertEqual(consumer.queues(), [SECOND])
        self.assertEqual(len(self.lines), 2)
        self.assertRegex(self.lines[0], r"(?s)on_assigned of group cg failed: KeyError.*, in fail\n")
        self.assertRegex(self.lines[1], r"(?s)on_revoked of group cg failed: KeyError.*, in fail\n")

    def test_endless_function_is_given_up_after_listener_timeout_with_one_warning(self):
        async def hang(queues):
            await Deferred()

        consumer = self.start(on_revoked=hang, listener_timeout=5)
        self.join_another()
        self.clock.advance(4)
        self.assertIn(FIRST, consumer.assigned)
        self.clock.advance(1)
        self.assertNotIn(FIRST, consumer.assigned)
        self.assertEqual(
            self.lines, ["on_revoked of group cg has not returned within 5 s (listener_timeout): the rebalance goes on"]
        )

    def test_plain_function_runs_while_handlers_block_all_their_threads(self):
        told, leave = [], Event()
        consumer = PushConsumerEngine(
            self.client, "cg", handle, options=ConsumerOptions(on_assigned=told.append, concurrency=1)
        )
        consumer.subscribe("T")
        consumer.threads.run(leave.wait)
        try:
            self.end_of(consumer.start())
        finally:
            leave.set()
        self.assertEqual(told, [[FIRST, SECOND]])

    def test_cancelled_start_ends_the_function(self):
        waiting = Deferred()

        async def hang(queues):
            await waiting

        consumer = PushConsumerEngine(self.client, "cg", handle, options=ConsumerOptions(on_assigned=hang))
        consumer.subscribe("T")
        started = Deferred.fromCoroutine(consumer.start())
        started.cancel()
        self.failureResultOf(started)
        self.assertTrue(waiting.called)
        waiting.addErrback(lambda _: None)
        self.end_of(consumer.stop())

    def test_value_without_call_is_refused(self):
        for name in ("on_assigned", "on_revoked", "on_lost"):
            self.assertRaisesRegex(IllegalOptionError, f"^{name}=7", ConsumerOptions, **{name: 7})
            self.assertRaisesRegex(IllegalOptionError, f"^{name}=", LitePullOptions, **{name: self.generator})
        self.assertRaises(IllegalOptionError, ConsumerOptions, listener_timeout=0)

    async def generator(self, queues):
        yield queues
