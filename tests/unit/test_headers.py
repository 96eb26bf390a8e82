from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting import headers
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RemotingCommandError

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

    def test_each_required_field_is_missed_by_name(self):
        for name in SEND:
            fields = {key: value for key, value in SEND.items() if key != name}
            self.refused(headers.SendMessageRequestHeader, fields, f"<{name}>")

    def test_no_fields_at_all(self):
        self.refused(headers.ViewMessageRequestHeader, None, "<offset>")
        self.assertEqual(read(headers.RegisterBrokerResponseHeader, None), headers.RegisterBrokerResponseHeader())

    def test_unknown_fields_are_ignored(self):
        self.assertEqual(read(headers.ViewMessageRequestHeader, {"offset": "7", "ReqT": "0"}).offset, 7)

    def test_wrong_types_are_told_by_name(self):
        for text in ("x", "", "1.5", "0x10", "true", " 5", "1_000", "٣", "9" * 5000):
            self.refused(headers.ViewMessageRequestHeader, {"offset": text}, "<offset> should be a whole number")

    def test_numbers_java_reads(self):
        for text, number in (("+5", 5), ("007", 7), ("-0", 0), ("-9223372036854775808", -(2**63))):
            self.assertEqual(read(headers.ViewMessageRequestHeader, {"offset": text}).offset, number)

    def test_only_true_is_true(self):
        for text, value in (("true", True), ("TRUE", True), ("True", True), ("false", False), ("1", False), ("0", False),
                            ("yes", False), ("", False)):  # fmt: skip
            header = read(headers.DeleteSubscriptionGroupRequestHeader, {"groupName": "g", "removeOffset": text})
            self.assertIs(header.remove_offset, value, text)

    def test_text_that_looks_like_a_number_or_null_stays_text(self):
        for text in ("12", "true", "null", "", "1e5"):
            self.assertEqual(read(headers.TopicRequestHeader, {"topic": text}).topic, text)
            self.assertEqual(read(headers.GetRouteInfoRequestHeader, {"topic": text}).topic, text)
            optional = read(headers.DeleteTopicInNamesrvRequestHeader, {"topic": "t", "clusterName": text})
            self.assertEqual(optional.cluster_name, text)

    def test_odd_wire_names(self):
        self.assertEqual(read(headers.UnregisterClientRequestHeader, {"clientID": "c"}).client_id, "c")


class WriteHeaderTests(SynchronousTestCase):
    def test_none_is_left_out_and_booleans_are_lower_case(self):
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

    def test_written_headers_read_the_same(self):
        header = headers.PullMessageRequestHeader("g", "t", 1, 2, 3, 4, 5, 6, 7, "*", "TAG", "b")
        self.assertEqual(read(headers.PullMessageRequestHeader, headers.write_header(header)), header)
