"""The client's administration, against scripted name servers and brokers."""

from datetime import UTC, datetime, timedelta

from msgspec import structs
from twisted.logger import formatEvent, globalLogPublisher

from rocketd.client.admin import AdminEngine
from rocketd.client.errors import (
    BrokerError,
    ClientClosedError,
    IllegalGroupError,
    IllegalMessageError,
    IllegalTopicError,
    NoBrokerError,
    NotStartedError,
    TopicNotFoundError,
    UnreachableError,
    UsageError,
)
from rocketd.client.queries.accounts import BrokerAccount
from rocketd.client.queries.inspection import register_closed_topics
from rocketd.client.queries.name_servers import answered_configs
from rocketd.common.record_host import offset_message_id, parse_offset_message_id
from rocketd.common.sysflag import COMPRESSED
from rocketd.remoting.bodies.admin import GetBrokerClusterAclConfigResponseBody, PlainAccessConfig, ResetOffsetBody
from rocketd.remoting.bodies.tables import (
    KVTable,
    MessageQueue,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
)
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import MessageInner
from rocketd.store.format.record import encode_record
from tests.support.client_cluster import ClientTestCase, Cluster, damage

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
    """Has messages by address, and answers requests of administrators."""

    def __init__(self):
        super().__init__()
        self.messages = {}
        self.stored_ms = []
        self.addresses = ("ns:9876",)

    def answer_17(self, address, request, fields):
        return RemotingCommand.response(0)

    answer_200 = answer_207 = answer_215 = answer_216 = answer_17

    def answer_206(self, address, request, fields):
        return RemotingCommand.response(0, body=TopicList(sorted(self.topics, reverse=True)).encode())

    def answer_11(self, address, request, fields):
        if request.ext_fields["consumerGroup"] != "TOOLS_CONSUMER":
            return super().answer_11(address, request, fields)
        offset = int(fields["queueOffset"])
        header = {"suggestWhichBrokerId": "0", "minOffset": "0", "nextBeginOffset": "0", "maxOffset": "9"}
        if offset >= len(self.stored_ms):
            return RemotingCommand.response(19, ext_fields=header)
        return RemotingCommand.response(0, None, header, record(b"", "", self.stored_ms[offset]))

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
        self.admin = AdminEngine(self.client)
        self.result_of(self.admin.start())

    def bodies(self, messages):
        return [message.body for message in messages]


class TopicTests(AdminTestCase):
    def test_topic_is_created_at_each_master(self):
        self.cluster.slaves = {"a": {1: "a-slave:10911"}}
        self.result_of(self.admin.create_topic("New", queues=7))
        created = self.cluster.of(17)
        self.assertEqual(sorted(address for address, _ in created), [AT_A, AT_B])
        fields = created[0][1]
        self.assertEqual((fields["topic"], fields["defaultTopic"], fields["perm"]), ("New", "TBW102", "6"))
        self.assertEqual((fields["readQueueNums"], fields["writeQueueNums"]), ("7", "7"))
        self.assertEqual(
            (fields["topicFilterType"], fields["topicSysFlag"], fields["order"]), ("SINGLE_TAG", "0", "false")
        )

    def test_refusal_of_one_broker_is_raised_after_all_answered(self):
        self.cluster.refusals[17, AT_A] = 1
        self.assertEqual(self.failure_of(self.admin.create_topic("New"), BrokerError).broker, "a")
        self.assertEqual(len(self.cluster.of(17)), 2)

    def test_create_topic_in_unknown_cluster_raises(self):
        error = self.failure_of(self.admin.create_topic("New", cluster="other"), NoBrokerError)
        self.assertIn("no broker of cluster other", str(error))
        self.result_of(self.admin.create_topic("New", cluster="c"))

    def test_illegal_names_and_queue_counts_are_refused(self):
        self.failure_of(self.admin.create_topic("a b"), IllegalTopicError)
        self.failure_of(self.admin.create_topic("TBW102"), IllegalTopicError)
        self.failure_of(self.admin.delete_topic("TBW102"), IllegalTopicError)
        self.failure_of(self.admin.create_topic("New", queues=0), UsageError)
        self.assertEqual(self.cluster.asked, [])

    def test_topic_is_deleted_at_brokers_and_then_at_all_name_servers(self):
        self.cluster.addresses = ("ns:9876", "ns2:9876")
        self.result_of(self.admin.delete_topic("T"))
        where = [(code, address) for code, address, *_ in self.cluster.asked if code in (215, 216)]
        self.assertEqual(where, [(215, AT_A), (215, AT_B), (216, "ns:9876"), (216, "ns2:9876")])

    def test_route_of_a_topic_is_asked_for_anew_after_a_change(self):
        self.result_of(self.admin.fetch_subscribe_queues("T"))
        self.result_of(self.admin.create_topic("T", queues=2))
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

    def test_offset_of_a_moment_is_that_of_the_first_message_since(self):
        """Apache's broker names any message nearest to the time, here that at 5."""
        at = int(MOMENT_MS)
        for times, first in (
            ([-9] * 9, 9),
            ([-9] * 5 + [-2, -1, -1, 3], 8),
            ([-9] * 5 + [-2, 0, 0, 3], 6),
            ([-9] * 2 + [0] * 7, 2),
            ([-9] * 3 + [4] * 6, 3),
            ([7] * 9, 0),
        ):
            with self.subTest(times):
                self.cluster.stored_ms = [at + time for time in times]
                self.assertEqual(self.result_of(self.admin.search_offset(A, MOMENT)), first)
                reset = self.admin.reset_offsets("g", "T", MOMENT, dry_run=True)
                self.assertEqual(self.result_of(reset), {A: first, B: first})

    def test_offset_of_a_moment_is_that_of_the_broker_if_no_message_may_be_read(self):
        self.cluster.answer_11 = lambda address, request, fields: RemotingCommand.response(16, "no permission")
        self.assertEqual(self.result_of(self.admin.search_offset(A, MOMENT)), 5)

    def test_queue_of_an_unknown_topic(self):
        self.failure_of(self.admin.max_offset(MessageQueue("Nope", "a", 0)), TopicNotFoundError)


class MessageTests(AdminTestCase):
    def test_messages_by_key(self):
        at = int(MOMENT_MS)
        self.cluster.messages = {
            AT_A: [record(b"one", "KEYS\x01k other", at), record(b"same hash", "KEYS\x01z", at)],
            AT_B: [record(b"two", "KEYS\x01k", at)],
        }
        found = self.result_of(self.admin.query_message("T", "k", 9, MOMENT))
        self.assertEqual(self.bodies(found), [b"one", b"two"])
        self.assertEqual([message.queue.broker_name for message in found], ["a", "b"])
        fields = self.cluster.of(12)[0][1]
        self.assertEqual(fields["maxNum"], "9")
        self.assertEqual((fields["endTimestamp"], fields["_UNIQUE_KEY_QUERY"]), (str(2**63 - 1), "false"))

    def test_damaged_messages_do_not_hide_the_others(self):
        torn = MessageInner("T", 0, 0, COMPRESSED, 0, HOST_A, 0, 0, b"torn", b"KEYS\x01k", 0)
        self.cluster.messages = {
            AT_A: [
                damage(record(b"wrong", "KEYS\x01k")),
                record(b"one", "KEYS\x01k"),
                encode_record(torn, HOST_A, 4, 200, 0),
            ],
            AT_B: [record(b"two", "KEYS\x01k")],
        }
        lines = []
        globalLogPublisher.addObserver(lines.append)
        self.addCleanup(globalLogPublisher.removeObserver, lines.append)
        self.assertEqual(self.bodies(self.result_of(self.admin.query_message("T", "k"))), [b"one", b"two"])
        texts = [formatEvent(line) for line in lines if line["log_level"].name == "error"]
        self.assertEqual(len(texts), 2)
        self.assertIn(
            "damaged: T at a:10911: the record with offset 3 in queue 0, at 100 of the log: the CRC", texts[0]
        )
        self.assertIn("the body cannot be unpacked", texts[1])

    def test_damaged_message_at_its_place_is_an_error(self):
        self.cluster.slaves = {"a": {0: "10.0.0.1:10911"}}
        self.cluster.answer_33 = lambda *_: RemotingCommand.response(0, body=damage(record(b"there", "")))
        error = self.failure_of(self.admin.view_message("T", offset_message_id(HOST_A, 100)), IllegalMessageError)
        self.assertIn("the message at 100 of a is damaged: the CRC of the body", str(error))

    def test_query_by_time_is_exact_at_broker_of_apache(self):
        """Such a broker finds a message if its time, cut to the second, is in the range."""
        at = int(MOMENT_MS)
        stored = {b"%d" % offset: at + offset for offset in (-1, 0, 7, 8)}
        self.cluster.messages = {AT_A: [record(body, "KEYS\x01k", stored[body]) for body in stored]}
        end = MOMENT + timedelta(milliseconds=7)
        found = self.result_of(self.admin.query_message("T", "k", begin=MOMENT, end=end))
        self.assertEqual(self.bodies(found), [b"0", b"7"])
        fields = self.cluster.of(12)[0][1]
        self.assertEqual((fields["beginTimestamp"], fields["endTimestamp"]), (str(at - 999), str(at + 7)))

    def test_query_skips_unreachable_broker(self):
        self.cluster.messages = {AT_B: [record(b"two", "KEYS\x01k")]}
        self.cluster.down.add(AT_A)
        self.assertEqual(self.bodies(self.result_of(self.admin.query_message("T", "k"))), [b"two"])

    def test_refused_query(self):
        self.cluster.refusals[12, AT_A] = 16
        self.failure_of(self.admin.query_message("T", "k"), BrokerError)

    def test_query_by_unique_key_returns_the_oldest_message(self):
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

    def test_id_without_broker_address_is_a_unique_key(self):
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
    def setUp(self):
        super().setUp()
        self.known = {}
        self.cluster.answer_201 = lambda *_: RemotingCommand.response(
            0, body=SubscriptionGroupWrapper(self.known).encode()
        )

    def groups_told(self):
        return [SubscriptionGroupConfig.decode(request.body) for code, *_, request in self.cluster.asked if code == 200]

    def test_existing_group_keeps_settings_not_given(self):
        self.known = {"g": SubscriptionGroupConfig("g", consume_enable=False, retry_queue_nums=4, retry_max_times=3)}
        self.result_of(self.admin.create_group("g", broadcast=False))
        wanted = structs.replace(self.known["g"], consume_broadcast_enable=False)
        self.assertEqual(self.groups_told(), [wanted] * 2)

    def test_refusal_of_group_is_raised_after_all_answered(self):
        self.cluster.refusals[200, AT_A] = 1
        self.assertEqual(self.failure_of(self.admin.create_group("g"), BrokerError).broker, "a")
        self.assertEqual(len(self.cluster.of(200)), 2)

    def test_group_is_created_and_deleted_at_each_master(self):
        self.result_of(self.admin.create_group("g", retry_max_times=3))
        self.assertEqual(self.groups_told(), [SubscriptionGroupConfig("g", retry_max_times=3)] * 2)
        self.result_of(self.admin.delete_group("g", remove_offsets=True))
        self.assertEqual([fields["removeOffset"] for _, fields in self.cluster.of(207)], ["true"] * 2)
        self.failure_of(self.admin.delete_group("a b"), IllegalGroupError)

    def test_offsets_of_running_group_are_reset_by_its_brokers(self):
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

    def test_reset_to_offset_stores_nearest_offset_of_each_queue(self):
        self.cluster.refusals = {(38, AT_A): 1, (38, AT_B): 1}
        for to, offset in ((3, 3), (9, 7)):
            self.assertEqual(self.result_of(self.admin.reset_offsets("g", "T", to)), {A: offset, B: offset})
            self.assertEqual(self.cluster.offsets, {(AT_A, "T"): offset, (AT_B, "T"): offset})

    def test_reset_to_offset_of_running_group_changes_nothing_and_raises(self):
        self.cluster.refusals = {(38, AT_A): 1}
        self.failure_of(self.admin.reset_offsets("g", "T", 3), UsageError)
        self.assertEqual((self.cluster.offsets, self.cluster.of(222)), ({}, []))

    def test_dry_run_of_reset_returns_offsets_and_changes_nothing(self):
        self.cluster.refusals = {(38, AT_A): 1}
        self.assertEqual(self.result_of(self.admin.reset_offsets("g", "T", MOMENT, dry_run=True)), {A: 5, B: 5})
        self.assertEqual((self.cluster.offsets, self.cluster.of(222)), ({}, []))

    def test_reset_with_bad_moment_or_refusal_raises(self):
        for to in ("yesterday", -1, True, 2**63):
            self.failure_of(self.admin.reset_offsets("g", "T", to), UsageError)
        self.cluster.refusals[38, AT_A] = 16
        self.failure_of(self.admin.reset_offsets("g", "T", "latest"), BrokerError)


class LifeTests(AdminTestCase):
    def test_before_start_and_after_stop(self):
        self.failure_of(AdminEngine(self.client).brokers(), NotStartedError)
        self.result_of(self.admin.stop())
        self.failure_of(self.admin.brokers(), ClientClosedError)


class AccountTests(AdminTestCase):
    def setUp(self):
        super().setUp()
        self.holders = {AT_B}
        self.cluster.answer_54 = self.accounts_of
        self.cluster.answer_51 = lambda *_: RemotingCommand.response(0)

    def accounts_of(self, address, request, fields):
        known = [PlainAccessConfig("shopkeeper", "shopSecret")] if address in self.holders else []
        return RemotingCommand.response(0, body=GetBrokerClusterAclConfigResponseBody([], known).encode())

    def test_secret_is_replaced_in_remark_of_refusal(self):
        self.cluster.answer_50 = lambda a, r, fields: RemotingCommand.response(209, f"not {fields['secretKey']}")
        error = self.failure_of(self.admin.set_account(BrokerAccount("clerk00"), secret_key="newSecret"), BrokerError)
        self.assertEqual((error.remark, "Secret" in f"{error} {error.args}"), ("not ***", False))

    def test_short_name_or_secret_is_not_sent(self):
        self.failure_of(self.admin.set_account(BrokerAccount("clerk"), secret_key="newSecret"), UsageError)
        error = self.failure_of(self.admin.set_account(BrokerAccount("clerk00"), secret_key="Secret"), UsageError)
        self.assertNotIn("Secret", str(error))
        self.assertEqual(self.cluster.of(50), [])

    def test_account_is_deleted_at_brokers_that_have_it(self):
        self.result_of(self.admin.delete_account("shopkeeper"))
        self.assertEqual([address for address, _ in self.cluster.of(51)], [AT_B])

    def test_refusal_of_deletion_is_raised_after_all_answered(self):
        self.holders.add(AT_A)
        self.cluster.refusals[51, AT_A] = 210
        self.assertEqual(self.failure_of(self.admin.delete_account("shopkeeper"), BrokerError).broker, "a")
        self.assertEqual(len(self.cluster.of(51)), 2)

    def test_deletion_of_unknown_account_is_refused_by_broker(self):
        self.cluster.refusals[51, AT_A] = 210
        self.failure_of(self.admin.delete_account("nobody0"), BrokerError)


class AskTests(AdminTestCase):
    def test_master_or_address_is_asked_and_answer_has_fields_and_body(self):
        self.cluster.answer_9001 = lambda a, r, fields: RemotingCommand.response(0, ext_fields=fields, body=r.body)
        for server, address in (("a", AT_A), ("c:1", "c:1")):
            answer = self.result_of(self.admin.ask(server, 9001, {"who": "you"}, b"x"))
            self.assertEqual((answer.fields, answer.body), ({"who": "you"}, b"x"))
            self.assertEqual(self.cluster.of(9001)[-1][0], address)

    def test_refusal_and_unknown_server_raise(self):
        self.cluster.refusals = {(9001, AT_A): 1}
        self.assertEqual(self.failure_of(self.admin.ask("a", 9001), BrokerError).code, 1)
        self.failure_of(self.admin.ask("moon", 9001), UsageError)
        self.failure_of(self.admin.ask("a", "9001"), UsageError)

    def test_fields_without_texts_and_body_without_bytes_are_refused_before_anything_is_sent(self):
        for arguments, begin in (
            ((["topic"],), "fields=['topic']: "),
            (({"topic": None},), "fields={'topic': None}: "),
            (({1: "T"},), "fields={1: 'T'}: "),
            ((None, "text"), "body='text': the body of a request is bytes"),
        ):
            error = self.failure_of(self.admin.ask("a", 9001, *arguments), UsageError)
            self.assertEqual(str(error)[: len(begin)], begin)
        self.assertEqual(self.cluster.asked, [])


class NameServerTests(AdminTestCase):
    """The first of two name servers cannot be reached."""

    def setUp(self):
        super().setUp()
        self.cluster.addresses = ("dead:9876", "ns2:9876")
        self.cluster.down = {"dead:9876"}
        self.cluster.answer_318 = self.cluster.answer_17
        self.cluster.answer_319 = lambda *_: RemotingCommand.response(0, body=b"listenPort=9876\n")
        self.cluster.answer_205 = lambda *_: RemotingCommand.response(0, ext_fields={"wipeTopicCount": "1"})
        self.cluster.answer_219 = lambda *_: RemotingCommand.response(0, body=KVTable({"k": "v"}).encode())

    def told(self, code):
        return [address for address, _ in self.cluster.of(code)]

    def test_changes_are_told_to_all_before_error_is_raised(self):
        self.failure_of(self.admin.set_namesrv_config({"clusterTest": "true"}), UnreachableError)
        self.failure_of(self.admin.wipe_write_permission("a"), UnreachableError)
        self.assertEqual((self.told(318), self.told(205)), ([*self.cluster.addresses], [*self.cluster.addresses]))

    def test_keys_are_those_of_name_server_that_answers(self):
        self.assertEqual(self.result_of(self.admin.kv_values("N")), {"k": "v"})
        self.cluster.down.add("ns2:9876")
        self.failure_of(self.admin.kv_values("N"), UnreachableError)

    def test_settings_are_returned_beside_errors(self):
        found, failed = self.result_of(answered_configs(self.client))
        self.assertEqual((found, list(failed)), ({"ns2:9876": {"listenPort": "9876"}}, ["dead:9876"]))
        self.failure_of(self.admin.namesrv_config(), UnreachableError)


class ClosedTopicTests(AdminTestCase):
    def test_all_but_topics_of_system_are_registered_and_refusals_returned(self):
        closed = ("Closed1", "Closed2", "a", "rmq_sys_x")
        table = TopicConfigSerializeWrapper({name: TopicConfig(name, perm=4) for name in closed})
        self.cluster.answer_21 = lambda *_: RemotingCommand.response(0, body=table.encode())
        self.cluster.answer_305 = lambda *_: RemotingCommand.response(0, body=TopicList(["a"]).encode())
        self.cluster.answer_17 = lambda a, r, fields: RemotingCommand.response(int(fields["topic"] == "Closed1"))
        registered, failed = self.result_of(register_closed_topics(self.client, "a"))
        self.assertEqual((registered, list(failed)), (["Closed2"], ["Closed1"]))
