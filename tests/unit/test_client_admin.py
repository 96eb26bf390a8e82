"""The client's administration, against scripted name servers and brokers."""

from datetime import UTC, datetime

from rocketd.client.admin import Admin
from rocketd.client.errors import (
    BrokerError,
    ClientClosedError,
    IllegalGroupError,
    IllegalTopicError,
    NoBrokerError,
    NotStartedError,
    TopicNotFoundError,
    UsageError,
)
from rocketd.common.record_host import offset_message_id, parse_offset_message_id
from rocketd.remoting.admin_bodies import ResetOffsetBody
from rocketd.remoting.bodies import MessageQueue, SubscriptionGroupConfig, TopicList
from rocketd.remoting.command import RemotingCommand
from rocketd.store.message import MessageInner
from rocketd.store.record import encode_record
from tests.unit.client_cluster import ClientTestCase, Cluster

A = MessageQueue("T", "a", 0)
B = MessageQueue("T", "b", 0)
AT_A, AT_B = "a:10911", "b:10911"
MOMENT = datetime(2026, 1, 2, tzinfo=UTC)
MOMENT_MS = "1767312000000"
HOST_A = bytes([10, 0, 0, 1]) + (10911).to_bytes(4, "big")


def record(body, properties, stored_at=0, offset=100):
    return encode_record(
        MessageInner("T", 0, 0, 0, 0, HOST_A, 0, 0, body, properties.encode(), 0), HOST_A, 3, offset, stored_at
    )


class AdminCluster(Cluster):
    """Has messages by address, and knows what administrators ask."""

    def __init__(self):
        super().__init__()
        self.messages = {}
        self.addresses = ("ns:9876",)

    def answer_17(self, address, request, fields):
        return RemotingCommand.response(0)

    answer_200 = answer_207 = answer_215 = answer_216 = answer_17

    def answer_206(self, address, request, fields):
        return RemotingCommand.response(0, body=TopicList(sorted(self.topics, reverse=True)).encode())

    def answer_12(self, address, request, fields):
        found = self.messages.get(address)
        header = {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
        return RemotingCommand.response(0 if found else 22, ext_fields=header, body=b"".join(found or ()))

    def answer_33(self, address, request, fields):
        if fields["offset"] != "100":
            return RemotingCommand.response(1, f"can not find message by the offset, {fields['offset']}")
        return RemotingCommand.response(0, body=record(b"there", "UNIQ_KEY\x01U"))

    def answer_32(self, address, request, fields):
        return RemotingCommand.response(0, ext_fields={"timestamp": MOMENT_MS if address == AT_A else "-1"})

    def answer_222(self, address, request, fields):
        return RemotingCommand.response(0, body=ResetOffsetBody({MessageQueue("T", address[0], 0): 3}).encode())


class AdminTestCase(ClientTestCase):
    cluster_type = AdminCluster

    def setUp(self):
        super().setUp()
        self.admin = Admin(self.client)
        self.result_of(self.admin.start())

    def bodies(self, messages):
        return [message.body for message in messages]


class TopicTests(AdminTestCase):
    def test_topic_is_created_at_each_master(self):
        self.cluster.slaves = {"a": {1: "a-slave:10911"}}
        self.result_of(self.admin.create_topic("New", 7))
        created = self.cluster.of(17)
        self.assertEqual(sorted(address for address, _ in created), [AT_A, AT_B])
        fields = created[0][1]
        self.assertEqual((fields["topic"], fields["defaultTopic"], fields["perm"]), ("New", "TBW102", "6"))
        self.assertEqual((fields["readQueueNums"], fields["writeQueueNums"]), ("7", "7"))
        self.assertEqual(
            (fields["topicFilterType"], fields["topicSysFlag"], fields["order"]), ("SINGLE_TAG", "0", "false")
        )

    def test_what_a_broker_refuses_is_told_when_the_others_have_done_it(self):
        self.cluster.refusals[17, AT_A] = 1
        self.assertEqual(self.failure_of(self.admin.create_topic("New"), BrokerError).broker, AT_A)
        self.assertEqual(len(self.cluster.of(17)), 2)

    def test_cluster_that_does_not_exist(self):
        error = self.failure_of(self.admin.create_topic("New", cluster="other"), NoBrokerError)
        self.assertIn("no broker of cluster other", str(error))
        self.result_of(self.admin.create_topic("New", cluster="c"))

    def test_names_and_numbers_that_are_not_accepted(self):
        self.failure_of(self.admin.create_topic("a b"), IllegalTopicError)
        self.failure_of(self.admin.create_topic("TBW102"), IllegalTopicError)
        self.failure_of(self.admin.delete_topic("TBW102"), IllegalTopicError)
        self.failure_of(self.admin.create_topic("New", 0), UsageError)
        self.assertEqual(self.cluster.asked, [])

    def test_topic_is_deleted_at_brokers_and_then_at_all_name_servers(self):
        self.cluster.addresses = ("ns:9876", "ns2:9876")
        self.result_of(self.admin.delete_topic("T"))
        where = [(code, address) for code, address, *_ in self.cluster.asked if code in (215, 216)]
        self.assertEqual(where, [(215, AT_A), (215, AT_B), (216, "ns:9876"), (216, "ns2:9876")])

    def test_route_of_a_topic_is_asked_for_anew_after_a_change(self):
        self.result_of(self.admin.fetch_subscribe_queues("T"))
        self.result_of(self.admin.create_topic("T", 2))
        before = len(self.cluster.of(105))
        self.result_of(self.admin.fetch_subscribe_queues("T"))
        self.assertEqual(len(self.cluster.of(105)), before + 1)

    def test_queues(self):
        self.assertEqual(self.result_of(self.admin.fetch_subscribe_queues("T")), [A, B])
        self.assertEqual(self.result_of(self.admin.fetch_publish_queues("T")), [A, B])
        self.cluster.topics.add("TBW102")
        self.failure_of(self.admin.fetch_publish_queues("Nope"), TopicNotFoundError)

    def test_lists(self):
        self.cluster.topics.add("Another")
        self.assertEqual(self.result_of(self.admin.topics()), ["Another", "T"])
        brokers = self.result_of(self.admin.brokers())
        self.assertEqual((brokers[0].broker_name, brokers[0].cluster, brokers[0].broker_addrs), ("a", "c", {0: AT_A}))


class QueueTests(AdminTestCase):
    def test_offsets_and_times(self):
        self.assertEqual(self.result_of(self.admin.max_offset(A)), 7)
        self.assertEqual(self.result_of(self.admin.min_offset(A)), 0)
        self.assertEqual(self.result_of(self.admin.search_offset(A, MOMENT)), 5)
        self.assertEqual(self.cluster.of(29)[0][1]["timestamp"], MOMENT_MS)
        self.assertEqual(self.result_of(self.admin.earliest_message_time(A)), MOMENT)
        self.assertIsNone(self.result_of(self.admin.earliest_message_time(B)))

    def test_queue_of_an_unknown_topic(self):
        self.failure_of(self.admin.max_offset(MessageQueue("Nope", "a", 0)), TopicNotFoundError)


class MessageTests(AdminTestCase):
    def test_messages_by_key(self):
        self.cluster.messages = {
            AT_A: [record(b"one", "KEYS\x01k other"), record(b"same hash", "KEYS\x01z")],
            AT_B: [record(b"two", "KEYS\x01k")],
        }
        found = self.result_of(self.admin.query_message("T", "k", 9, MOMENT))
        self.assertEqual(self.bodies(found), [b"one", b"two"])
        self.assertEqual([message.queue.broker_name for message in found], ["a", "b"])
        fields = self.cluster.of(12)[0][1]
        self.assertEqual((fields["maxNum"], fields["beginTimestamp"]), ("9", MOMENT_MS))
        self.assertEqual((fields["endTimestamp"], fields["_UNIQUE_KEY_QUERY"]), (str(2**63 - 1), "false"))

    def test_broker_that_is_down_leaves_the_others_messages(self):
        self.cluster.messages = {AT_B: [record(b"two", "KEYS\x01k")]}
        self.cluster.down.add(AT_A)
        self.assertEqual(self.bodies(self.result_of(self.admin.query_message("T", "k"))), [b"two"])

    def test_refused_query(self):
        self.cluster.refusals[12, AT_A] = 16
        self.failure_of(self.admin.query_message("T", "k"), BrokerError)

    def test_first_of_those_with_a_unique_key(self):
        self.cluster.messages = {
            AT_A: [record(b"again", "UNIQ_KEY\x01U", 8), record(b"other", "UNIQ_KEY\x01V", 1)],
            AT_B: [record(b"first", "UNIQ_KEY\x01U", 5)],
        }
        message = self.result_of(self.admin.query_message_by_unique_key("T", "U"))
        self.assertEqual(message.body, b"first")
        self.assertEqual(self.cluster.of(12)[0][1]["_UNIQUE_KEY_QUERY"], "true")
        self.assertIsNone(self.result_of(self.admin.query_message_by_unique_key("T", "W")))

    def test_message_at_its_place(self):
        self.cluster.slaves = {"a": {0: "10.0.0.1:10911"}}
        message = self.result_of(self.admin.view_message("T", offset_message_id(HOST_A, 100)))
        self.assertEqual((message.body, message.queue, message.msg_id), (b"there", A, "U"))
        self.assertIsNone(self.result_of(self.admin.view_message("T", offset_message_id(HOST_A, 101))))
        self.assertEqual(self.cluster.of(12), [])

    def test_id_of_no_brokers_place_is_a_unique_key(self):
        key = "0A00000100002A9F0000000000000064"
        self.cluster.messages = {AT_A: [record(b"one", f"UNIQ_KEY\x01{key}")]}
        self.assertEqual(self.result_of(self.admin.view_message("T", key)).body, b"one")
        self.assertEqual(self.cluster.of(33), [])

    def test_ids_of_places(self):
        host_6 = bytes(15) + b"\x01" + (10911).to_bytes(4, "big")
        self.assertEqual(parse_offset_message_id(offset_message_id(HOST_A, 2**40)), ("10.0.0.1:10911", 2**40))
        self.assertEqual(parse_offset_message_id(offset_message_id(host_6, 5)), ("[::1]:10911", 5))
        self.assertIsNone(parse_offset_message_id("no id"))
        self.assertIsNone(parse_offset_message_id("00"))


class GroupTests(AdminTestCase):
    def test_group_is_created_and_deleted_at_each_master(self):
        self.result_of(self.admin.create_group("g", retry_max_times=3))
        configs = [
            SubscriptionGroupConfig.decode(request.body) for code, *_, request in self.cluster.asked if code == 200
        ]
        self.assertEqual([(config.group_name, config.retry_max_times) for config in configs], [("g", 3)] * 2)
        self.result_of(self.admin.delete_group("g", remove_offsets=True))
        self.assertEqual([fields["removeOffset"] for _, fields in self.cluster.of(207)], ["true"] * 2)
        self.failure_of(self.admin.delete_group("a b"), IllegalGroupError)

    def test_offsets_of_a_group_that_runs_are_reset_by_its_brokers(self):
        self.assertEqual(self.result_of(self.admin.reset_offsets("g", "T", MOMENT)), {A: 3, B: 3})
        fields = self.cluster.of(222)[0][1]
        self.assertEqual((fields["timestamp"], fields["isForce"]), (MOMENT_MS, "true"))
        self.assertEqual(self.cluster.of(15), [])

    def test_offsets_of_a_group_without_consumers_are_stored(self):
        self.cluster.refusals = {(38, AT_A): 1, (38, AT_B): 1}
        for to, offset in (("earliest", 0), ("latest", 7), (MOMENT, 5)):
            self.assertEqual(self.result_of(self.admin.reset_offsets("g", "T", to)), {A: offset, B: offset})
            self.assertEqual(self.cluster.offsets, {(AT_A, "T"): offset, (AT_B, "T"): offset})
        self.assertEqual(self.cluster.of(222), [])

    def test_reset_that_is_not_understood(self):
        self.failure_of(self.admin.reset_offsets("g", "T", "yesterday"), UsageError)
        self.cluster.refusals[38, AT_A] = 16
        self.failure_of(self.admin.reset_offsets("g", "T", "latest"), BrokerError)


class LifeTests(AdminTestCase):
    def test_before_start_and_after_stop(self):
        self.failure_of(Admin(self.client).brokers(), NotStartedError)
        self.result_of(self.admin.stop())
        self.failure_of(self.admin.brokers(), ClientClosedError)
