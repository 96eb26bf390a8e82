"""The pull consumer against scripted name servers and brokers, on a fake clock."""

from twisted.internet.defer import Deferred

from rocketd.client.consumer.options.member_options import MemberOptions
from rocketd.client.consumer.options.subscription import Sql
from rocketd.client.consumer.pull_consumer import PullConsumerEngine, PullStatus
from rocketd.client.errors import (
    BrokerError,
    ClientClosedError,
    CommitError,
    IllegalTopicError,
    NotStartedError,
    RequestTimeoutError,
    TopicNotFoundError,
    UsageError,
)
from rocketd.common.sysflag import PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketd.remoting.bodies.tables import ConsumeType, MessageQueue
from rocketd.remoting.errors import RemotingTimeoutError
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand
from tests.support.client_cluster import ClientTestCase

A = MessageQueue("T", "a", 0)
B = MessageQueue("T", "b", 0)
AT_A, AT_B = "a:10911", "b:10911"


class PullTestCase(ClientTestCase):
    def setUp(self):
        super().setUp()
        self.consumer = PullConsumerEngine(self.client, "cg")
        self.result_of(self.consumer.start())

    def pulling(self, *arguments, **options):
        return Deferred.fromCoroutine(self.consumer.pull(*arguments, **options))

    def answer(self, pulling, code, **fields):
        """Answer the pull under way, and return its result."""
        header = {"suggestWhichBrokerId": "0", "nextBeginOffset": "9", "minOffset": "2", "maxOffset": "9", **fields}
        self.cluster.held.pop()[2].callback(RemotingCommand.response(code, "because", header))
        return self.successResultOf(pulling)


class PullTests(PullTestCase):
    def test_found(self):
        pulling = self.pulling(A, "Aa", 5, 3)
        ((address, fields, _),) = self.cluster.held
        self.assertEqual(
            (address, fields["queueOffset"], fields["maxMsgNums"], fields["subscription"], fields["sysFlag"]),
            (AT_A, "5", "3", "Aa", str(PULL_SUBSCRIPTION)),
        )
        self.cluster.deliver(AT_A, [(b"no", "TAGS\x01BB"), (b"yes", "TAGS\x01Aa")], 5)
        result = self.successResultOf(pulling)
        self.assertEqual((result.status, result.next_begin_offset), (PullStatus.FOUND, 7))
        self.assertEqual([(message.body, message.queue) for message in result.messages], [(b"yes", A)])

    def test_damaged_message_is_left_out(self):
        pulling = self.pulling(A, None, 5, 3)
        self.cluster.deliver(AT_A, [(b"one", ""), (b"wrong", ""), (b"two", "")], 5, damaged=[1])
        result = self.successResultOf(pulling)
        self.assertEqual([message.body for message in result.messages], [b"one", b"two"])
        self.assertEqual(result.next_begin_offset, 8)

    def test_pull_is_one_of_a_limited_number_of_requests(self):
        self.pulling(A, "Aa", 5, 3)
        self.assertEqual(self.cluster.bounded, [RequestCode.PULL_MESSAGE])

    def test_tag_with_equal_hash_gives_no_matched_message(self):
        pulling = self.pulling(A, "Aa", 0)
        self.cluster.deliver(AT_A, [(b"no", "TAGS\x01BB")], 0)
        result = self.successResultOf(pulling)
        self.assertEqual((result.status, result.next_begin_offset), (PullStatus.NO_MATCHED_MSG, 1))

    def test_nothing_found(self):
        for code, status in (
            (19, PullStatus.NO_NEW_MSG),
            (20, PullStatus.NO_MATCHED_MSG),
            (21, PullStatus.OFFSET_ILLEGAL),
        ):
            result = self.answer(self.pulling(A, None, 1), code)
            self.assertEqual((result.status, result.messages), (status, []))
            self.assertEqual((result.next_begin_offset, result.min_offset, result.max_offset), (9, 2, 9))

    def test_next_pull_goes_to_broker_suggested_in_answer(self):
        self.cluster.slaves = {"a": {1: "a-slave:10911"}}
        self.result_of(self.client.routes.refresh(["T"]))
        self.answer(self.pulling(A, None, 1), 19, suggestWhichBrokerId="1")
        self.pulling(A, None, 1)
        self.assertEqual(self.cluster.held[-1][0], "a-slave:10911")

    def test_blocking_pull_is_held_by_the_broker(self):
        Deferred.fromCoroutine(self.consumer.pull_block_if_not_found(A, None, 1))
        fields = self.cluster.held[0][1]
        self.assertEqual(int(fields["sysFlag"]), PULL_SUBSCRIPTION | PULL_SUSPEND)
        self.assertEqual(fields["suspendTimeoutMillis"], "20000")

    def test_sql_travels_with_its_version(self):
        self.pulling(A, Sql("a > 1"), 0)
        fields = self.cluster.held[0][1]
        self.assertEqual((fields["expressionType"], fields["subscription"]), ("SQL92", "a > 1"))
        self.assertGreater(int(fields["subVersion"]), 0)

    def test_errors(self):
        self.failure_of(self.consumer.pull(A, None, -1), UsageError)
        self.failure_of(self.consumer.pull(A, None, 0, 0), UsageError)
        self.failure_of(self.consumer.pull(MessageQueue("Nope", "a", 0), None, 0), TopicNotFoundError)
        self.cluster.refusals[11, AT_A] = 16
        self.failure_of(self.consumer.pull(A, None, 0), BrokerError)
        pulling = self.pulling(B, None, 0)
        self.cluster.held[-1][2].errback(RemotingTimeoutError(AT_B, 10_000))
        self.failureResultOf(pulling, RequestTimeoutError)

    def test_queues(self):
        self.assertEqual(self.result_of(self.consumer.fetch_subscribe_queues("T")), [A, B])


class ShareTests(PullTestCase):
    def share(self):
        return self.result_of(self.consumer.fetch_queues_in_balance("T"))

    def test_share_follows_current_group_members(self):
        self.assertEqual(self.share(), [A, B])
        self.assertEqual({address for address, _ in self.cluster.of(34)}, {"a:10911", "b:10911"})
        self.cluster.others = ("10.0.0.1@before",)
        self.assertEqual(self.share(), [B])
        self.assertEqual(self.cluster.codes().count(34), 2)

    def test_no_broker_knows_the_group(self):
        for address in ("a:10911", "b:10911"):
            self.cluster.refusals[38, address] = 1
        self.assertEqual(self.share(), [])

    def test_broadcasting_members_have_all(self):
        self.cluster.others = ("10.0.0.1@before",)
        consumer = PullConsumerEngine(self.client, "other", options=MemberOptions(broadcast=True, offset_directory="."))
        starting = Deferred.fromCoroutine(consumer.start())
        self.end_of(starting)
        self.assertEqual(self.result_of(consumer.fetch_queues_in_balance("T")), [A, B])
        self.end_of(consumer.stop())

    def test_errors(self):
        self.failure_of(self.consumer.fetch_queues_in_balance("a b"), IllegalTopicError)
        self.failure_of(self.consumer.fetch_queues_in_balance("Missing"), TopicNotFoundError)


class OffsetTests(PullTestCase):
    def test_offsets_are_stored_from_time_to_time_and_at_the_end(self):
        self.result_of(self.consumer.fetch_subscribe_queues("T"))
        self.consumer.update_consume_offset(A, 3)
        self.clock.advance(5)
        self.assertEqual(self.cluster.offsets, {(AT_A, "T"): 3})
        self.consumer.update_consume_offset(B, 4)
        self.end_of(self.consumer.stop())
        self.assertEqual(self.cluster.offsets, {(AT_A, "T"): 3, (AT_B, "T"): 4})

    def test_persist_returns_once_offsets_are_stored(self):
        self.consumer.update_consume_offset(A, 3)
        self.result_of(self.consumer.persist_consume_offsets())
        self.assertEqual(self.cluster.offsets, {(AT_A, "T"): 3})
        self.cluster.refusals[15, AT_A] = 1
        self.failure_of(self.consumer.persist_consume_offsets(), CommitError)

    def test_fetch_returns_remembered_or_stored_offset(self):
        self.assertIsNone(self.result_of(self.consumer.fetch_consume_offset(A)))
        self.cluster.offsets[AT_A, "T"] = 8
        self.assertEqual(self.result_of(self.consumer.fetch_consume_offset(A)), 8)
        self.consumer.update_consume_offset(A, 3)
        self.assertEqual(self.result_of(self.consumer.fetch_consume_offset(A)), 3)
        self.assertEqual(self.result_of(self.consumer.fetch_consume_offset(A, from_store=True)), 8)


class SendBackTests(PullTestCase):
    def message(self):
        pulling = self.pulling(A, None, 0)
        self.cluster.deliver(AT_A, [(b"one", "UNIQ_KEY\x01U")], 0)
        (message,) = self.successResultOf(pulling).messages
        return message

    def test_message_goes_back_to_its_broker(self):
        message = self.message()
        self.result_of(self.consumer.send_message_back(message, 3))
        ((address, fields),) = self.cluster.of(36)
        self.assertEqual(
            (address, fields["group"], fields["offset"], fields["delayLevel"], fields["originTopic"]),
            (AT_A, "cg", "100", "3", "T"),
        )
        self.assertEqual((fields["originMsgId"], fields["maxReconsumeTimes"]), (message.offset_msg_id, "16"))

    def test_message_may_go_to_another_group(self):
        self.result_of(self.consumer.send_message_back(self.message(), group="other"))
        self.assertEqual([fields["group"] for _, fields in self.cluster.of(36)], ["other"])

    def test_refusal_is_an_error(self):
        message = self.message()
        self.cluster.refusals[36, AT_A] = 1
        self.failure_of(self.consumer.send_message_back(message), BrokerError)


class LifeTests(ClientTestCase):
    def test_before_start_and_after_stop(self):
        consumer = PullConsumerEngine(self.client, "cg")
        self.failure_of(consumer.pull(A, None, 0), NotStartedError)
        self.result_of(consumer.start())
        (member,) = self.client.consumers.values()
        self.assertIs(member.consumer_data().consume_type, ConsumeType.CONSUME_ACTIVELY)
        self.end_of(consumer.stop())
        self.failure_of(consumer.pull(A, None, 0), ClientClosedError)
        self.assertEqual(self.client.consumers, {})
