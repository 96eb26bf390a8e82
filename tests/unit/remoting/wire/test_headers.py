import pickle
import sys

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting.errors import RemotingCommandError
from rocketd.remoting.headers import acl as acl_headers
from rocketd.remoting.headers import admin as admin_headers
from rocketd.remoting.headers import client as headers
from rocketd.remoting.wire.command import RemotingCommand

SEND = {
    "producerGroup": "pg", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "-1",
    "sysFlag": "0", "bornTimestamp": "1795253141863", "flag": "0",
}  # fmt: skip


def read(header_type, fields):
    return headers.read_header(header_type, RemotingCommand(0, fields))


class ReadHeaderTests(SynchronousTestCase):
    def refused(self, header_type, fields, pattern):
        with self.assertRaisesRegex(RemotingCommandError, pattern):
            read(header_type, fields)

    def test_required_and_absent_fields(self):
        header = read(headers.SendMessageRequestHeader, SEND)
        self.assertEqual((header.queue_id, header.born_timestamp), (-1, 1795253141863))
        self.assertEqual((header.properties, header.reconsume_times, header.unit_mode), (None, None, False))

    def test_missing_required_field_is_named(self):
        for name in SEND:
            fields = {key: value for key, value in SEND.items() if key != name}
            self.refused(headers.SendMessageRequestHeader, fields, f"<{name}>")

    def test_header_without_fields(self):
        self.refused(headers.ViewMessageRequestHeader, None, "<offset>")
        self.assertEqual(read(headers.RegisterBrokerResponseHeader, None), headers.RegisterBrokerResponseHeader())

    def test_unknown_fields_are_ignored(self):
        self.assertEqual(read(headers.ViewMessageRequestHeader, {"offset": "7", "ReqT": "0"}).offset, 7)

    def test_mistyped_field_is_named(self):
        for text in ("x", "", "1.5", "0x10", "true", " 5", "1_000", "٣", "9" * 5000):
            self.refused(headers.ViewMessageRequestHeader, {"offset": text}, "<offset> should be a whole number")

    def test_numbers_java_reads(self):
        for text, number in (("+5", 5), ("007", 7), ("-0", 0), ("-9223372036854775808", -(2**63))):
            self.assertEqual(read(headers.ViewMessageRequestHeader, {"offset": text}).offset, number)

    def test_boolean_is_true_for_true_only(self):
        for text, value in (("true", True), ("TRUE", True), ("True", True), ("false", False), ("1", False), ("0", False),
                            ("yes", False), ("", False)):  # fmt: skip
            header = read(headers.DeleteSubscriptionGroupRequestHeader, {"groupName": "g", "removeOffset": text})
            self.assertIs(header.remove_offset, value, text)

    def test_number_like_text_stays_text(self):
        for text in ("12", "true", "null", "", "1e5"):
            self.assertEqual(read(headers.TopicRequestHeader, {"topic": text}).topic, text)
            self.assertEqual(read(headers.GetRouteInfoRequestHeader, {"topic": text}).topic, text)
            optional = read(headers.DeleteTopicInNamesrvRequestHeader, {"topic": "t", "clusterName": text})
            self.assertEqual(optional.cluster_name, text)

    def test_odd_wire_names(self):
        self.assertEqual(read(headers.UnregisterClientRequestHeader, {"clientID": "c"}).client_id, "c")


class NumberTests(SynchronousTestCase):
    def test_numbers_have_java_ranges(self):
        modules = (headers, admin_headers, acl_headers)
        types = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
        types = {each for each in types if issubclass(each, headers.Header) and each is not headers.Header}
        self.assertGreater(len(types), 50)
        for each in types:
            for field in msgspec.inspect.type_info(each).fields:
                kinds = field.type.types if isinstance(field.type, msgspec.inspect.UnionType) else (field.type,)
                for kind in kinds:
                    if isinstance(kind, msgspec.inspect.IntType):
                        self.assertIn(kind.le, (2**31 - 1, 2**63 - 1), f"{each.__name__}.{field.name}")


class ErrorTests(SynchronousTestCase):
    def test_error_has_command_and_is_pickled_without_it(self):
        command = RemotingCommand(0, {}, memoryview(b"not to be pickled"))
        error = self.assertRaises(RemotingCommandError, headers.read_header, headers.PullMessageRequestHeader, command)
        self.assertIs(error.command, command)
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((str(again), again.command), (str(error), None))


class Range(headers.Header):
    """A header whose two fields have to agree."""

    first: headers.Long
    last: headers.Long

    def check_fields(self):
        if self.first > self.last:
            raise RemotingCommandError(f"first {self.first} is beyond last {self.last}")


class CheckTests(SynchronousTestCase):
    def test_filled_header_is_checked_as_a_whole(self):
        self.assertEqual(read(Range, {"first": "1", "last": "2"}), Range(1, 2))
        error = self.assertRaises(RemotingCommandError, read, Range, {"first": "3", "last": "2"})
        self.assertEqual(str(error), "first 3 is beyond last 2")

    def test_lenient_header_is_checked_as_a_whole(self):
        self.assertEqual(read(Range, {"first": "+1", "last": "02"}), Range(1, 2))
        self.assertRaises(RemotingCommandError, read, Range, {"first": "+3", "last": "02"})

    def test_end_transaction_accepts_three_outcomes_only(self):
        fields = {"producerGroup": "P", "tranStateTableOffset": "0", "commitLogOffset": "0", "msgId": "x"}
        for outcome in ("0", "8", "12"):
            read(headers.EndTransactionRequestHeader, {**fields, "commitOrRollback": outcome})
        for outcome in ("4", "-1", "1"):
            with self.assertRaisesRegex(RemotingCommandError, "commitOrRollback field wrong"):
                read(headers.EndTransactionRequestHeader, {**fields, "commitOrRollback": outcome})

    def test_hot_path_headers_have_no_check(self):
        for header_type in (
            headers.SendMessageRequestHeader, headers.SendMessageRequestHeaderV2, headers.PullMessageRequestHeader,
        ):  # fmt: skip
            self.assertIs(header_type.check_fields, headers.Header.check_fields)


class InspectionTests(SynchronousTestCase):
    """A header class is inspected when it is first read, and never again."""

    def setUp(self):
        self.inspected = []
        inspect = headers.struct_fields

        def counting(header_type):
            self.inspected.append(header_type)
            return inspect(header_type)

        self.patch(headers, "struct_fields", counting)

    def make_header_type(self):
        """Return a header class without earlier reads."""

        class Fresh(headers.Header):
            queue_id: headers.Int
            is_new: bool = False
            group: str | None = None

        return Fresh

    def test_header_class_is_inspected_once(self):
        fresh = self.make_header_type()
        for fields in ({"queueId": "7"}, {"queueId": "+7"}, {"queueId": "7", "isNew": "1"}) * 3:
            header = read(fresh, fields)
            self.assertEqual(headers.write_header(header), {"queueId": "7", "isNew": "false"})
        self.assertEqual(self.inspected, [fresh])

    def test_names_and_types_and_required_fields_are_kept(self):
        fresh = self.make_header_type()
        read(fresh, {"queueId": "7"})
        self.inspected.clear()
        self.assertEqual(read(fresh, {"queueId": "007", "isNew": "TRUE", "group": "12"}), fresh(7, True, "12"))
        self.assertRaisesRegex(RemotingCommandError, "<queueId> is null", read, fresh, {"isNew": "yes"})
        self.assertEqual(headers.flag_names(fresh), ("isNew",))
        self.assertEqual(self.inspected, [])

    def test_annotations_are_evaluated_once(self):
        module = sys.modules[__name__]
        module.Later = headers.Int
        self.addCleanup(vars(module).pop, "Later", None)
        forward = msgspec.defstruct(
            "Forward", [("queue_id", "Later")], bases=(headers.Header,), module=__name__, rename="camel"
        )
        self.assertEqual(read(forward, {"queueId": "7"}).queue_id, 7)
        del module.Later
        for text in ("7", "+7"):
            self.assertEqual(read(forward, {"queueId": text}).queue_id, 7)


class WriteHeaderTests(SynchronousTestCase):
    def test_none_is_omitted_and_booleans_are_lower_case(self):
        header = read(headers.SendMessageRequestHeader, SEND)
        self.assertEqual(headers.write_header(header), {**SEND, "unitMode": "false", "batch": "false"})

    def test_short_names_carry_the_same_fields(self):
        long = read(headers.SendMessageRequestHeader, SEND)
        short = headers.SendMessageRequestHeaderV2(*(getattr(long, name) for name in long.__struct_fields__))
        written = headers.write_header(short)
        self.assertEqual(sorted(written), list("abcdefghkm"))
        self.assertEqual(written["b"], "T")
        self.assertEqual(read(headers.SendMessageRequestHeaderV2, written), short)
        self.assertIsInstance(short, headers.SendMessageRequestHeader)

    def test_written_headers_are_read_again(self):
        header = headers.PullMessageRequestHeader("g", "t", 1, 2, 3, 4, 5, 6, 7, "*", "TAG", "b")
        self.assertEqual(read(headers.PullMessageRequestHeader, headers.write_header(header)), header)
