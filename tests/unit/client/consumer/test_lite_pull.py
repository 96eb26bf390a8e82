"""The consumer that polls, against scripted name servers and brokers, on a fake clock."""

from datetime import UTC, datetime

from twisted.internet.defer import Deferred

from rocketd.client.consumer.lite_pull_consumer import LitePullConsumerEngine
from rocketd.client.consumer.membership.missing_topics import ROUTE_LOOK_SECONDS, ROUTE_LOOKS
from rocketd.client.consumer.options.kind_options import LitePullOptions
from rocketd.client.errors import (
    ClientClosedError,
    CommitError,
    IllegalMessageError,
    IllegalOptionError,
    NoRouteError,
    NotStartedError,
    UsageError,
)
from rocketd.client.messages.codec import TEXT
from rocketd.common.sysflag import PULL_LITE, PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketd.remoting.bodies.admin import ConsumerRunningInfo, ResetOffsetBody
from rocketd.remoting.bodies.tables import ConsumeType, MessageQueue
from rocketd.remoting.errors import RequestError
from rocketd.remoting.wire.command import RemotingCommand
from tests.support.client_cluster import ClientTestCase

A = MessageQueue("T", "a", 0)
B = MessageQueue("T", "b", 0)
AT_A, AT_B = "a:10911", "b:10911"


class LitePullTestCase(ClientTestCase):
    def make(self, codec=None, **options):
        options = LitePullOptions(begin="earliest", **options)
        self.consumer = LitePullConsumerEngine(
            self.client, "cg", options=options, **({"codec": codec} if codec else {})
        )
        return self.consumer

    def subscribed(self, expression=None, **options):
        consumer = self.make(**options)
        consumer.subscribe("T", expression)
        self.result_of(consumer.start())
        return consumer

    def assigned(self, *queues, **options):
        consumer = self.make(**options)
        self.result_of(consumer.assign(queues))
        self.result_of(consumer.start())
        return consumer

    def poll(self):
        return [message.body for message in self.result_of(self.consumer.poll(0))]

    def stored(self):
        return {address: offset for (address, _), offset in self.cluster.offsets.items()}


class PollTests(LitePullTestCase):
    def test_pull_requests_equal_apaches_lite_consumer(self):
        self.subscribed("Aa")
        _, fields, _ = self.cluster.held[0]
        self.assertEqual(int(fields["sysFlag"]), PULL_SUSPEND | PULL_SUBSCRIPTION | PULL_LITE)
        self.assertEqual((fields["subscription"], fields["maxMsgNums"]), ("Aa", "10"))
        self.assertEqual(fields["suspendTimeoutMillis"], "20000")
        (member,) = self.cluster.heartbeats[0].consumer_data_set
        self.assertIs(member.consume_type, ConsumeType.CONSUME_ACTIVELY)
        self.assertEqual([data.topic for data in member.subscription_data_set], ["T"])

    def test_poll_returns_messages_of_one_queue(self):
        self.subscribed()
        self.cluster.deliver(AT_A, [(b"one", ""), (b"two", "")], 0)
        self.cluster.deliver(AT_B, [(b"three", "")], 0)
        self.assertEqual([self.poll(), self.poll(), self.poll()], [[b"one", b"two"], [b"three"], []])

    def test_poll_waits_for_messages(self):
        consumer = self.subscribed()
        polled = Deferred.fromCoroutine(consumer.poll(5))
        self.clock.advance(4)
        self.assertNoResult(polled)
        self.cluster.deliver(AT_A, [(b"one", "")], 0)
        (message,) = self.successResultOf(polled)
        self.assertEqual((message.body, message.queue, message.queue_offset), (b"one", A, 0))

    def test_poll_gives_nothing_after_its_timeout(self):
        consumer = self.subscribed()
        polled = Deferred.fromCoroutine(consumer.poll())
        self.clock.advance(4.9)
        self.assertNoResult(polled)
        self.clock.advance(0.2)
        self.assertEqual(self.successResultOf(polled), [])

    def test_cancelled_poll_leaves_messages_to_the_next(self):
        consumer = self.subscribed()
        polled = Deferred.fromCoroutine(consumer.poll(5))
        polled.cancel()
        self.failureResultOf(polled)
        self.cluster.deliver(AT_A, [(b"one", "")], 0)
        self.assertEqual(self.poll(), [b"one"])

    def test_undecodable_body_fails_one_poll_only(self):
        consumer = self.make(codec=TEXT)
        consumer.subscribe("T")
        self.result_of(consumer.start())
        self.cluster.deliver(AT_A, [(b"one", ""), (b"\xff", ""), (b"three", "")], 0)
        self.assertEqual(self.poll(), ["one"])
        self.failure_of(consumer.poll(0), IllegalMessageError)
        self.assertEqual(self.poll(), ["three"])

    def test_messages_with_another_tag_are_skipped_and_committed(self):
        self.subscribed("Aa")
        self.cluster.deliver(AT_A, [(b"no", "TAGS\x01BB")], 0)
        self.assertEqual(self.poll(), [])
        self.clock.advance(5)
        self.assertEqual(self.stored()[AT_A], 1)

    def test_poll_before_start_or_after_stop_raises(self):
        consumer = self.make()
        self.failure_of(consumer.poll(0), NotStartedError)
        self.result_of(consumer.start())
        self.end_of(consumer.stop())
        self.failure_of(consumer.poll(0), ClientClosedError)

    def test_unknown_topic_fails_the_start_if_it_is_to_raise(self):
        consumer = self.make(missing="raise")
        consumer.subscribe("Nope")
        started = Deferred.fromCoroutine(consumer.start())
        self.clock.pump([ROUTE_LOOK_SECONDS] * ROUTE_LOOKS)
        self.failureResultOf(started, NoRouteError)

    def test_too_much_of_all_queues_together_holds_pulls_back(self):
        self.subscribed(max_held=2)
        self.cluster.deliver(AT_A, [(b"1", ""), (b"2", ""), (b"3", "")], 0)
        self.assertEqual(self.cluster.pulls(), {AT_B: 0})
        self.poll()
        self.assertEqual(self.cluster.pulls(), {AT_A: 3, AT_B: 0})


class PutBackTests(LitePullTestCase):
    """The caller of a poll was cancelled before it got the messages."""

    def take(self, bodies, put_back=True):
        """Poll messages, and put them back."""
        messages = self.result_of(self.consumer.poll(0))
        self.assertEqual([message.body for message in messages], bodies)
        if put_back:
            self.consumer.put_back(messages)
        return messages

    def start_with_three(self):
        self.subscribed()
        self.cluster.deliver(AT_A, [(b"one", ""), (b"two", ""), (b"three", "")], 0)

    def test_messages_come_next_and_in_order(self):
        self.start_with_three()
        first = self.result_of(self.consumer.next_message())
        second = self.result_of(self.consumer.next_message())
        self.consumer.put_back([second])
        self.assertEqual((first.body, self.poll(), self.poll()), (b"one", [b"two"], [b"three"]))
        self.assertEqual(self.consumer.stats().handled, 3)

    def test_messages_are_not_committed(self):
        self.start_with_three()
        self.take([b"one", b"two", b"three"])
        self.end_of(self.consumer.stop())
        self.assertEqual(self.stored()[AT_A], 0)

    def test_only_the_last_messages_are_put_back(self):
        self.start_with_three()
        messages = self.take([b"one", b"two", b"three"], put_back=False)
        self.assertEqual(self.poll(), [])
        self.consumer.put_back(messages)
        self.assertEqual(self.poll(), [])

    def test_queue_given_up_meanwhile_gets_nothing_back(self):
        self.start_with_three()
        messages = self.take([b"one", b"two", b"three"], put_back=False)
        self.result_of(self.consumer.give_up([A]))
        self.consumer.put_back(messages)
        self.assertEqual(self.poll(), [])


class CommitTests(LitePullTestCase):
    def test_next_poll_commits_messages_of_previous_poll(self):
        self.subscribed()
        self.cluster.deliver(AT_A, [(b"one", ""), (b"two", "")], 0)
        self.poll()
        self.clock.advance(5)
        self.assertEqual(self.stored()[AT_A], 0)
        self.poll()
        self.clock.advance(5)
        self.assertEqual(self.stored()[AT_A], 2)

    def test_without_auto_commit_only_commit_does(self):
        consumer = self.subscribed(auto_commit=False)
        self.cluster.deliver(AT_A, [(b"one", "")], 0)
        self.poll()
        self.poll()
        self.clock.advance(5)
        self.assertEqual(self.stored()[AT_A], 0)
        self.result_of(consumer.commit())
        self.assertEqual(self.stored(), {AT_A: 1, AT_B: 0})

    def test_commit_of_given_offsets_stores_them(self):
        consumer = self.subscribed(auto_commit=False)
        self.cluster.deliver(AT_A, [(b"one", ""), (b"two", "")], 0)
        self.poll()
        self.result_of(consumer.commit({A: 1}))
        self.assertEqual(self.stored()[AT_A], 1)
        self.assertEqual(self.result_of(consumer.committed(A)), 1)
        self.failure_of(consumer.commit({MessageQueue("T", "c", 0): 1}), UsageError)

    def test_commit_failure_names_the_queue(self):
        consumer = self.subscribed(auto_commit=False)
        self.cluster.refusals[15, AT_B] = 1
        self.assertIn("queue 0 of T at b", str(self.failure_of(consumer.commit(), CommitError)))

    def test_committed_of_new_group_is_none(self):
        consumer = self.assigned(A)
        self.assertIsNone(self.result_of(consumer.committed(B)))

    def test_stop_commits_polled_messages(self):
        consumer = self.subscribed()
        self.cluster.deliver(AT_A, [(b"one", "")], 0)
        self.cluster.deliver(AT_B, [(b"two", "")], 0)
        self.poll()
        self.end_of(consumer.stop())
        self.assertEqual(self.stored(), {AT_A: 1, AT_B: 0})
        self.assertEqual({fields["consumerGroup"] for _, fields in self.cluster.of(35)}, {"cg"})

    def test_stop_after_failure_does_not_commit_last_messages(self):
        consumer = self.subscribed()
        self.cluster.deliver(AT_A, [(b"one", "")], 0)
        self.poll()
        self.end_of(consumer.stop(consumed=False))
        self.assertEqual(self.stored()[AT_A], 0)

    def test_commit_in_on_revoked_after_failure_leaves_last_messages(self):
        async def on_revoked(queues):
            await consumer.commit()

        consumer = self.subscribed(auto_commit=False, on_revoked=on_revoked)
        self.cluster.deliver(AT_A, [(b"one", ""), (b"two", "")], 0)
        self.assertEqual(self.poll(), [b"one", b"two"])
        self.end_of(consumer.stop(consumed=False))
        self.assertEqual(self.stored().get(AT_A, 0), 0)

    def test_stop_ends_waiting_poll(self):
        consumer = self.subscribed()
        polled = Deferred.fromCoroutine(consumer.poll(60))
        self.end_of(consumer.stop())
        self.assertEqual(self.successResultOf(polled), [])
        self.assertEqual([call for call in self.clock.getDelayedCalls() if call.getTime() < 25], [])


class IterationTests(LitePullTestCase):
    def next(self):
        message = self.result_of(self.consumer.next_message())
        return None if message is None else message.body

    def test_iteration_commits_message_when_the_next_is_requested(self):
        self.subscribed()
        self.cluster.deliver(AT_A, [(b"one", ""), (b"two", ""), (b"three", "")], 0)
        self.cluster.deliver(AT_B, [(b"four", "")], 0)
        for number, body in enumerate((b"one", b"two", b"three")):
            self.assertEqual(self.next(), body)
            self.clock.advance(5)
            self.assertEqual(self.stored().get(AT_A, 0), number)
        self.assertEqual(self.next(), b"four")
        self.clock.advance(5)
        self.assertEqual(self.stored()[AT_A], 3)

    def test_iteration_left_early_commits_only_messages_given_out(self):
        consumer = self.subscribed()
        self.cluster.deliver(AT_A, [(b"one", ""), (b"two", ""), (b"three", "")], 0)
        self.assertEqual((self.next(), self.next()), (b"one", b"two"))
        self.end_of(consumer.stop())
        self.assertEqual(self.stored()[AT_A], 2)

    def test_iteration_whose_block_failed_leaves_its_last_message(self):
        consumer = self.subscribed()
        self.cluster.deliver(AT_A, [(b"one", ""), (b"two", ""), (b"three", "")], 0)
        self.assertEqual((self.next(), self.next()), (b"one", b"two"))
        self.end_of(consumer.stop(consumed=False))
        self.assertEqual(self.stored()[AT_A], 1)

    def test_iteration_without_auto_commit_commits_nothing(self):
        consumer = self.subscribed(auto_commit=False)
        self.cluster.deliver(AT_A, [(b"one", ""), (b"two", "")], 0)
        self.assertEqual((self.next(), self.next()), (b"one", b"two"))
        self.clock.advance(5)
        self.assertEqual(self.stored().get(AT_A, 0), 0)
        self.result_of(consumer.commit())
        self.assertEqual(self.stored()[AT_A], 2)

    def test_iteration_waits_for_messages_and_ends_with_the_consumer(self):
        consumer = self.subscribed()
        asking = Deferred.fromCoroutine(consumer.next_message())
        self.clock.advance(3600)
        self.assertNoResult(asking)
        self.cluster.deliver(AT_A, [(b"one", "")], 0)
        self.assertEqual(self.successResultOf(asking).body, b"one")
        asking = Deferred.fromCoroutine(consumer.next_message())
        self.end_of(consumer.stop())
        self.assertIsNone(self.successResultOf(asking))
        self.assertIsNone(self.next())

    def test_second_waiting_iteration_is_refused(self):
        consumer = self.subscribed()
        asking = Deferred.fromCoroutine(consumer.next_message())
        self.failure_of(consumer.next_message(), UsageError)
        self.cluster.deliver(AT_A, [(b"one", "")], 0)
        self.assertEqual(self.successResultOf(asking).body, b"one")

    def test_iteration_after_unreadable_message_continues_behind_it(self):
        self.make(codec=TEXT).subscribe("T")
        self.result_of(self.consumer.start())
        self.cluster.deliver(AT_A, [(b"one", ""), (b"\xff", ""), (b"three", "")], 0)
        self.assertEqual(self.next(), "one")
        self.failure_of(self.consumer.next_message(), IllegalMessageError)
        self.assertEqual(self.next(), "three")

    def test_iteration_and_poll_share_the_messages(self):
        self.subscribed()
        self.cluster.deliver(AT_A, [(b"one", ""), (b"two", ""), (b"three", "")], 0)
        self.assertEqual((self.next(), self.poll()), (b"one", [b"two", b"three"]))


class SeekTests(LitePullTestCase):
    def test_seek_drops_pulled_messages_and_pulls_from_new_offset(self):
        consumer = self.subscribed()
        self.cluster.deliver(AT_A, [(b"one", ""), (b"two", "")], 0)
        self.result_of(consumer.seek(A, 1))
        self.assertEqual((self.poll(), self.cluster.pulls()), ([], {AT_A: 1, AT_B: 0}))
        self.result_of(consumer.commit())
        self.assertEqual(self.stored()[AT_A], 1)

    def test_seek_to_begin_and_end(self):
        consumer = self.subscribed()
        self.result_of(consumer.seek_to_end(A))
        self.assertEqual(self.cluster.pulls()[AT_A], 7)
        self.result_of(consumer.seek_to_begin(A))
        self.assertEqual(self.cluster.pulls()[AT_A], 0)

    def test_seek_outside_offsets_is_refused(self):
        error = self.failure_of(self.subscribed().seek(A, 8), UsageError)
        self.assertIn("offsets from 0 to 7, not 8", str(error))

    def test_seek_in_unassigned_queue_is_refused(self):
        self.failure_of(self.assigned(A).seek(B, 0), UsageError)

    def test_offset_for_a_moment(self):
        consumer = self.assigned(A)
        found = Deferred.fromCoroutine(consumer.offset_for_timestamp(A, datetime(2026, 1, 2, tzinfo=UTC)))
        ((_, fields, held),) = [entry for entry in self.cluster.held if entry[1]["maxMsgNums"] == "1"]
        self.assertEqual((fields["queueOffset"], fields["consumerGroup"]), ("5", "cg"))
        nothing = dict.fromkeys(("suggestWhichBrokerId", "minOffset", "maxOffset", "nextBeginOffset"), "0")
        held.callback(RemotingCommand.response(19, ext_fields=nothing))
        self.assertEqual(self.successResultOf(found), 5)
        ((address, fields),) = self.cluster.of(29)
        self.assertEqual((address, fields["timestamp"]), (AT_A, "1767312000000"))

    def test_administrator_sets_the_offset(self):
        self.subscribed()
        command = RemotingCommand(
            220,
            {"topic": "T", "group": "cg", "timestamp": "0", "isForce": "true"},
            ResetOffsetBody({A: 4}).encode(),
        )
        self.cluster.processors[220](None, command)
        self.assertEqual((self.cluster.pulls()[AT_A], self.stored()[AT_A]), (4, 4))


class AssignTests(LitePullTestCase):
    def test_assigned_queues_are_read_despite_other_members(self):
        self.cluster.others = ("zzz", "aaa")
        consumer = self.assigned(B)
        self.assertEqual((consumer.queues(), self.cluster.pulls()), ([B], {AT_B: 0}))
        (member,) = self.cluster.heartbeats[0].consumer_data_set
        self.assertEqual(member.subscription_data_set, [])

    def test_assigning_anew_gives_the_old_queues_up(self):
        consumer = self.assigned(A)
        self.cluster.deliver(AT_A, [(b"one", "")], 0)
        self.result_of(consumer.assign([B], "Aa"))
        self.assertEqual((consumer.queues(), self.poll()), ([B], []))
        self.assertEqual([held[1]["subscription"] for held in self.cluster.held if not held[2].called], ["Aa"])

    def test_assign_and_subscribe_exclude_each_other(self):
        with self.assertRaises(UsageError):
            self.assigned(A).subscribe("T")
        consumer = self.make()
        consumer.subscribe("T")
        self.failure_of(consumer.assign([A]), UsageError)
        self.failure_of(self.make().assign([]), UsageError)

    def test_unsubscribe_gives_assigned_queues_up(self):
        consumer = self.assigned(A)
        consumer.unsubscribe("T")
        self.assertEqual(consumer.queues(), [])


class ShareTests(LitePullTestCase):
    def test_share_follows_the_group(self):
        consumer = self.subscribed()
        self.cluster.deliver(AT_B, [(b"one", "")], 0)
        self.cluster.others = ("zzz",)
        self.cluster.request(40, {"consumerGroup": "cg"})
        self.assertEqual(consumer.queues(), [A])
        self.assertEqual(self.poll(), [])

    def test_unsubscribe_gives_the_share_up(self):
        consumer = self.subscribed()
        consumer.unsubscribe("T")
        self.assertEqual(consumer.queues(), [])

    def test_paused_queue_is_not_pulled(self):
        consumer = self.subscribed()
        consumer.pause([A])
        self.assertEqual(self.cluster.pulls(), {AT_B: 0})  # the pull that waited at the broker is abandoned
        self.clock.advance(5)
        self.assertEqual(self.cluster.pulls(), {AT_B: 0})
        consumer.unpause([A])
        self.clock.advance(1)
        self.assertEqual(self.cluster.pulls(), {AT_A: 0, AT_B: 0})

    def test_messages_of_paused_queue_wait_until_it_goes_on(self):
        consumer = self.subscribed()
        self.cluster.deliver(AT_A, [(b"one", ""), (b"two", "")], 0)
        self.cluster.deliver(AT_B, [(b"three", "")], 0)
        consumer.pause([A])
        self.assertEqual((self.poll(), self.poll()), ([b"three"], []))
        polling = Deferred.fromCoroutine(consumer.poll(30))
        self.assertNoResult(polling)
        consumer.unpause([A])
        self.assertEqual([message.body for message in self.successResultOf(polling)], [b"one", b"two"])

    def test_queue_watcher_is_called_on_changes(self):
        heard = []

        async def listener(topic, queues):
            heard.append((topic, queues))

        consumer = self.subscribed()
        self.result_of(consumer.watch_queues("T", listener))
        self.clock.advance(30)
        self.assertEqual(heard, [])
        self.cluster.brokers.append("c")
        self.clock.advance(30)
        self.assertEqual(heard, [("T", [A, B, MessageQueue("T", "c", 0)])])

    def test_running_info_has_active_consume_type(self):
        self.subscribed()
        self.cluster.deliver(AT_A, [(b"one", "")], 0)
        answer = self.cluster.request(307, {"consumerGroup": "cg", "clientId": "x", "jstackEnable": "false"})
        info = ConsumerRunningInfo.decode(answer.body)
        self.assertEqual(info.properties["PROP_CONSUME_TYPE"], "CONSUME_ACTIVELY")
        self.assertEqual(info.mq_table[A].cached_msg_count, 1)

    def test_consume_directly_is_refused(self):
        self.failure_of(self.subscribed().consume_directly(None, None), RequestError)


class BroadcastTests(LitePullTestCase):
    def made(self):
        consumer = self.make(broadcast=True, offset_directory=self.directory)
        consumer.subscribe("T")
        self.end_of(consumer.start())
        return consumer

    def test_offsets_are_kept_in_a_file(self):
        self.directory = self.mktemp()
        self.cluster.others = ("zzz",)
        consumer = self.made()
        self.assertEqual(consumer.queues(), [A, B])
        self.cluster.deliver(AT_A, [(b"one", "")], 0)
        self.poll()
        self.end_of(consumer.commit({A: 1}))
        self.end_of(consumer.stop(consumed=False))
        self.cluster.held.clear()
        self.made()
        self.assertEqual(self.cluster.pulls()[AT_A], 1)
        self.assertEqual(self.cluster.of(15), [])
        self.end_of(self.consumer.stop())


class OptionTests(LitePullTestCase):
    def test_values_out_of_range_are_refused(self):
        for options in ({"pull_batch": 0}, {"max_held": True}, {"poll_timeout": -1}, {"watch_interval": 0}):
            with self.assertRaises(IllegalOptionError):
                LitePullOptions(**options)
