import zlib
from datetime import UTC, datetime
from itertools import count

import pyarrow as pa
from twisted.trial import unittest

from rocketd.common.message_properties import decode_properties
from rocketd.common.sysflag import COMPRESSED, COMPRESSION_ZLIB, COMPRESSION_ZSTD
from rocketd.spark.columns import COLUMNS, DEFAULT_COLUMNS, arrow_schema
from rocketd.spark.errors import OptionError
from rocketd.spark.ranges import Queue
from rocketd.spark.sink.message import Outgoing, number_in, numbered
from rocketd.spark.sink.options import WRITE_OPTIONS, WriteOptions
from rocketd.spark.sink.problems import RowError
from rocketd.spark.sink.queue_choice import QueueChooser, place_of_key
from rocketd.spark.sink.rate_limit import RateLimit
from rocketd.spark.sink.rows import PROPERTIES_LIMIT, RowReader

MAP = pa.map_(pa.string(), pa.string())
GIVEN = {"namesrv": "127.0.0.1:9876", "topic": "T"}


def messages(columns, types=None, **options):
    kinds = {"properties": MAP, "flag": pa.int32(), "queue_id": pa.int32(), **(types or {})}
    fields = [pa.field(name, kinds.get(name) or pa.array(values).type) for name, values in columns.items()]
    batch = pa.RecordBatch.from_pydict(columns, schema=pa.schema(fields))
    numbers = count()
    given = {name: text for name, text in {**GIVEN, **options}.items() if text is not None}
    reader = RowReader(batch.schema, WriteOptions.parse(given), lambda: f"KEY{next(numbers)}", "partition 2")
    return list(reader.read(batch))


def table_of(message):
    return decode_properties(message.properties.decode())


class RowTests(unittest.TestCase):
    def test_a_body_alone_is_enough(self):
        one, two = messages({"body": [b"a", "ü".encode()]})
        self.assertEqual((one.topic, one.body, one.flag, one.sys_flag, one.single), ("T", b"a", 0, 0, False))
        self.assertEqual(table_of(one), {"UNIQ_KEY": "KEY0", "WAIT": "true"})
        self.assertEqual(table_of(two)["UNIQ_KEY"], "KEY1")
        self.assertEqual(messages({"body": ["ü"]})[0].body, "ü".encode())

    def test_every_column_has_its_place(self):
        moment = datetime(2024, 5, 1, tzinfo=UTC)
        (one,) = messages(
            {
                "topic": ["U"], "body": ["b"], "tags": ["TagA"], "keys": [["k1", "k2"]], "uniq_key": ["ID"], "flag": [-7],
                "properties": [[("a", "1"), ("TAGS", "old"), ("TRAN_MSG", "true"), ("SPARK_SEQ", "x"), ("WAIT", "false")]],
                "delay_level": [3], "deliver_time": [moment],
            },
            {"deliver_time": pa.timestamp("us", tz="UTC")},
            topic=None,
        )  # fmt: skip
        self.assertEqual((one.topic, one.flag, one.single), ("U", -7, True))
        wanted = {"a": "1", "TAGS": "TagA", "KEYS": "k1 k2", "DELAY": "3", "TIMER_DELIVER_MS": "1714521600000"}
        self.assertEqual(table_of(one), {**wanted, "UNIQ_KEY": "ID", "WAIT": "true"})

    def test_deliver_time_without_zone_is_refused(self):
        columns = {"body": ["b"], "deliver_time": [datetime(2024, 5, 1)]}
        error = self.assertRaises(OptionError, messages, columns, {"deliver_time": pa.timestamp("us")})
        self.assertIn("'deliver_time' is of type timestamp[us]; accepted is timestamp, which has a zone", str(error))

    def test_option_topic_comes_before_the_column(self):
        self.assertEqual(messages({"body": ["b"], "topic": ["U"]})[0].topic, "T")

    def test_a_frame_as_read_can_be_written(self):
        row = dict.fromkeys(DEFAULT_COLUMNS)
        row |= {
            "topic": "T", "body": b"b", "queue_id": 3, "queue_offset": 17, "tags": "A", "uniq_key": "ID", "broker": "b",
            "properties": [("TAGS", "A"), ("UNIQ_KEY", "ID"), ("CLUSTER", "c"), ("MSG_REGION", "r"), ("TRACE_ON", "true")],
        }  # fmt: skip
        batch = pa.RecordBatch.from_pylist([row], schema=arrow_schema(DEFAULT_COLUMNS))
        reader = RowReader(batch.schema, WriteOptions.parse(GIVEN), lambda: "new", "x")
        (one,) = reader.read(batch)
        self.assertEqual(table_of(one), {"TAGS": "A", "UNIQ_KEY": "ID", "WAIT": "true"})
        self.assertIsNone(one.queue_id)
        RowReader(arrow_schema(list(COLUMNS)), WriteOptions.parse(GIVEN), lambda: "", "x")

    def test_delivered_timed_message_is_not_delayed_again(self):
        (one,) = messages({"body": ["b"], "properties": [[("TIMER_DELAY_MS", "9"), ("TIMER_OUT_MS", "1"), ("a", "1")]]})
        self.assertEqual(table_of(one), {"a": "1", "UNIQ_KEY": "KEY0", "WAIT": "true"})

    def test_large_bodies_are_compressed_and_compressed_ones_stay(self):
        body = b"x" * 5000
        (one,) = messages({"body": [body]})
        self.assertEqual((one.sys_flag, one.single), (COMPRESSED | COMPRESSION_ZLIB, True))
        self.assertEqual(zlib.decompress(one.body), body)
        self.assertEqual(messages({"body": [body]}, compressOver="0")[0].body, body)
        flags, packed = COMPRESSED | COMPRESSION_ZSTD, b"packed"
        frame = {
            "body": [packed, packed],
            "sys_flag": [flags | 8, flags],
            "body_crc": [zlib.crc32(packed) & 0x7FFFFFFF, 5],
        }
        as_stored, unpacked = messages(frame)
        self.assertEqual((as_stored.sys_flag, as_stored.body), (flags, packed))
        self.assertEqual(unpacked.sys_flag, 0)

    def refused(self, columns, *words, types=None, **options):
        error = self.assertRaises(RowError, messages, columns, types, **options)
        for word in ("row 1 of partition 2", *words):
            self.assertIn(word, str(error))

    def test_illegal_row_is_refused_with_its_number(self):
        self.refused({"body": [b"a", None]}, "body is null or empty")
        self.refused({"body": [b"a", b""]}, "body is null or empty")
        self.refused({"body": ["a", "b" * 70_000]}, "70000 bytes", maxMessageSize="64k", batchBytes="2k")
        tight = "b" * (65536 - 100)
        self.refused(
            {"body": ["a", tight]}, "with its properties", maxMessageSize="64k", batchBytes="2k", compressOver="0"
        )
        self.refused({"body": ["a", "b"], "topic": ["U", None]}, "topic is null", topic=None)
        self.refused({"body": ["a", "b"], "topic": ["U", "U V"]}, "illegal characters", topic=None)
        self.refused({"body": ["a", "b"], "topic": ["U", "U" * 128]}, "longer", topic=None)
        self.refused({"body": ["a", "b"], "topic": ["U", "SCHEDULE_TOPIC_XXXX"]}, "only brokers", topic=None)
        for bad in ("\x01", "\x02"):
            self.refused({"body": ["a", "b"], "tags": ["T", f"T{bad}"]}, "separate properties")
            self.refused({"body": ["a", "b"], "properties": [[("a", "1")], [(f"a{bad}", "1")]]}, "separate properties")
            self.refused({"body": ["a", "b"], "properties": [[("a", "1")], [("a", f"1{bad}")]]}, "separate properties")
        self.refused({"body": ["a", "b"], "properties": [[("a", "1")], [("a", None)]]}, "property 'a'", "null or empty")
        self.refused({"body": ["a", "b"], "properties": [[], [("a", "x" * PROPERTIES_LIMIT)]]}, "32767")
        self.refused({"body": ["a", "b"], "keys": [["k"], ["k 1"]]}, "blank")
        self.refused({"body": ["a", "b"], "flag": [1, 1 << 31]}, "32 bits", types={"flag": pa.int64()})
        self.refused({"body": ["a", "b"], "queue_id": [1, None]}, "queue_id is null", queueSelector="column")
        late = {"body": ["a", "b"], "delay_level": [0, 1]}
        self.refused(late, "delay", delivery="transactional")
        self.assertEqual(len(messages({"body": ["b"], "properties": [[("a", "x" * (PROPERTIES_LIMIT - 40))]]})), 1)

    def test_columns_of_wrong_name_or_type_are_refused(self):
        for columns, word in (
            ({"body": ["b"], "tag": ["x"]}, "no column 'tag'; did you mean tags?"),
            ({"body": ["b"], "x": [1], "y": [1]}, "no column 'x', 'y'"),
            ({"tags": ["b"]}, "needs a column 'body'"),
            ({"body": [1]}, "column 'body' is of type int64; accepted is binary or string"),
            ({"body": ["b"], "flag": ["1"]}, "column 'flag'"),
        ):
            types = {"flag": pa.string()}
            self.assertIn(word, str(self.assertRaises(OptionError, messages, columns, types)))
        self.assertRaises(OptionError, messages, {"body": ["b"]}, topic=None)
        self.assertRaises(OptionError, messages, {"body": ["b"]}, queueSelector="key")
        self.assertRaises(OptionError, messages, {"body": ["b"]}, queueSelector="column")


class QueueTests(unittest.TestCase):
    queues = (Queue("T", "b", 1), Queue("T", "a", 0), Queue("T", "b", 0), Queue("T", "a", 1))

    def chooser(self, start=0):
        return QueueChooser(lambda topic: self.queues, start)

    def test_keys_choose_the_queue_of_apaches_client(self):
        # Java: "abc".hashCode() is 96354, that of the second is the least of all ints.
        self.assertEqual([place_of_key("abc", n) for n in (4, 7)], [96354 % 4, 96354 % 7])
        self.assertEqual(place_of_key("polygenelubricants", 5), 2147483648 % 5)
        chosen = self.chooser().choose(Outgoing("T", b"", b"", key="abc"))
        self.assertEqual(chosen, Queue("T", "b", 0))

    def test_messages_without_key_go_to_queues_in_turn(self):
        chooser = self.chooser(3)
        message = Outgoing("T", b"", b"")
        self.assertEqual(
            [str(chooser.choose(message)) for _ in range(5)], ["T/b/1", "T/a/0", "T/a/1", "T/b/0", "T/b/1"]
        )
        self.assertEqual({chooser.choose(message, {"a"}).broker for _ in range(9)}, {"b"})
        self.assertEqual(len({chooser.choose(message, {"a", "b"}) for _ in range(20)}), 4)

    def test_queue_given_by_row_is_used(self):
        chooser = self.chooser()
        self.assertEqual(chooser.choose(Outgoing("T", b"", b"", queue_id=1, broker="b")), Queue("T", "b", 1))
        for queue_id, broker, word in (
            (1, None, "add a column broker"),
            (2, None, "cannot be written"),
            (0, "c", "T/a/0"),
        ):
            error = self.assertRaises(
                RowError, chooser.choose, Outgoing("T", b"", b"", queue_id=queue_id, broker=broker)
            )
            self.assertIn(word, str(error))


class NumberTests(unittest.TestCase):
    def test_a_number_is_found_again(self):
        for text in (b"a\x01b", b"a\x01b\x02", b"a\x01b\0\x02"):
            message = numbered(Outgoing("T", b"", text), "s:5:", 17)
            self.assertEqual(message.number, 17)
            self.assertEqual(number_in(message.properties, "s:5:"), 17)
            self.assertIsNone(number_in(message.properties, "s:55:"))
            self.assertIsNone(number_in(message.properties, "t:5:"))
            self.assertEqual(decode_properties(message.properties.decode())["SPARK_SEQ"], "s:5:17")
        self.assertIsNone(number_in(b"a\x01b", "s:5:"))
        self.assertIsNone(number_in(b"SPARK_SEQ\x01s:5:x", "s:5:"))


class PaceTests(unittest.TestCase):
    def test_pace_keeps_to_the_rate(self):
        now = [100.0]

        def wait(seconds):
            self.assertGreater(seconds, 0)
            now[0] += seconds

        rate_limit = RateLimit(50, lambda: now[0], wait)
        for _ in range(100):
            rate_limit.take(5)
        self.assertAlmostEqual(now[0], 100 + (500 - 50) / 50)
        now[0] += 3600
        rate_limit.take(50)
        self.assertAlmostEqual(now[0], 109 + 3600)
        rate_limit.take(50)
        self.assertAlmostEqual(now[0], 110 + 3600)

    def test_pace_waits_after_taking_more_than_a_seconds_worth(self):
        now = [0.0]

        def wait(seconds):
            now[0] += seconds

        rate_limit = RateLimit(10, lambda: now[0], wait)
        rate_limit.take(100)
        self.assertEqual(now[0], 0)
        rate_limit.take(1)
        self.assertAlmostEqual(now[0], 9.1)

    def test_pace_without_rate_does_not_wait(self):
        rate_limit = RateLimit(0, lambda: 0.0, self.fail)
        rate_limit.take(10**9)


class OptionTests(unittest.TestCase):
    def test_bad_options_are_named_with_accepted_values(self):
        once = {**GIVEN, "delivery": "effectively-once"}
        for given, *words in (
            ({}, "namesrv", "host:port"),
            ({**GIVEN, "topik": "x"}, "'topik'", "did you mean topic?"),
            ({**GIVEN, "delivery": "twice"}, "delivery", "at-least-once"),
            ({**GIVEN, "queueSelector": "x"}, "queueSelector", "round-robin"),
            ({**GIVEN, "retries": "-1"}, "retries", "from 0"),
            ({**GIVEN, "messagesPerSecond": "nan"}, "messagesPerSecond"),
            ({**GIVEN, "topic": "a b"}, "topic", "letters"),
            ({**GIVEN, "topic": "SCHEDULE_TOPIC_XXXX"}, "topic"),
            ({**GIVEN, "sinkId": "x"}, "sinkId", "at-least-once"),
            ({**GIVEN, "secretKey": "hush"}, "accessKey"),
            ({**GIVEN, "batchBytes": "5m"}, "batchBytes", "maxMessageSize"),
            (once, "sinkId"),
            ({**once, "sinkId": "../x"}, "sinkId", "letters"),
            ({**once, "sinkId": "x"}, "stagingDir", "absolute path"),
            ({**once, "sinkId": "x", "stagingDir": "hdfs://x/y"}, "stagingDir", "absolute path"),
        ):
            error = str(self.assertRaises(OptionError, WriteOptions.parse, given))
            for word in words:
                self.assertIn(word, error)
            self.assertNotIn("hush", error)
        self.assertRaises(OptionError, WriteOptions.parse, {**once, "jobId": "x"}, stream=True)

    def test_a_stream_stages_below_its_checkpoint(self):
        given = {**GIVEN, "delivery": "effectively-once", "checkpointLocation": "file:///data/c"}
        self.assertEqual(WriteOptions.parse(given, stream=True).staging, "/data/c/staging")
        given["checkpointLocation"] = "s3://data/c"
        self.assertRaises(OptionError, WriteOptions.parse, given, stream=True)

    def test_option_names_ignore_case_and_are_documented(self):
        self.assertEqual(WriteOptions.parse({"NAMESRV": "a:1", "SendTimeout": "2s"}).send_timeout, 2.0)
        self.assertTrue(all(one.doc for one in WRITE_OPTIONS))
        self.assertEqual(len({one.name for one in WRITE_OPTIONS}), len(WRITE_OPTIONS))
