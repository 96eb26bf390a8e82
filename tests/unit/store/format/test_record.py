"""The record codec, the property string and the scanner of dispatch."""

import struct

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.java_hash import java_string_hash
from rocketd.common.message_properties import decode_properties, find_property
from rocketd.store.base.errors import RecordError
from rocketd.store.format.message import MessageInner
from rocketd.store.format.properties import dispatch_properties, fewer_index_keys
from rocketd.store.format.record import (
    decode_message,
    decode_messages,
    decode_readable,
    encode_record,
    properties_of,
    store_timestamp_of,
)
from rocketd.store.format.record_scanner import RecordScanner, ScanEnd
from rocketd.store.testing import BORN_HOST, STORE_HOST, make_message
from tests.support.examples import examples

# The golden record of the format's documentation.
GOLDEN = bytes.fromhex(
    "00000064daa320a758932aac00000001000000020000000000000003000000000000000400000000000000000000000501020304000003e8"
    "00000000000000060506070800002a9f00000007000000000000000800000002686901540006544147530141"
)
GOLDEN_MESSAGE = MessageInner("T", 1, 2, 0, 5, BORN_HOST, 7, 8, b"hi", b"TAGS\x01A", 65)
BLANK = struct.pack(">ii", 100, -875286124)

hosts = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
messages = st.builds(
    MessageInner,
    topic=st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=30),
    queue_id=int32,
    flag=int32,
    sys_flag=st.sampled_from([0, 1, 2, 4, 8, 12, 0x301]),
    born_timestamp=int64,
    born_host=hosts,
    reconsume_times=int32,
    prepared_transaction_offset=int64,
    body=st.binary(max_size=300),
    properties=st.binary(max_size=100),
    tags_code=int64,
)


class RecordTests(SynchronousTestCase):
    def test_golden_record(self):
        self.assertEqual(encode_record(GOLDEN_MESSAGE, STORE_HOST, 3, 4, 6).hex(), GOLDEN.hex())

    def test_golden_record_decodes(self):
        message = decode_message(GOLDEN)
        self.assertEqual((message.topic, message.queue_id, message.flag), ("T", 1, 2))
        self.assertEqual((message.queue_offset, message.physical_offset), (3, 4))
        self.assertEqual((message.born_timestamp, message.store_timestamp), (5, 6))
        self.assertEqual((message.born_host, message.store_host), (BORN_HOST, STORE_HOST))
        self.assertEqual((message.reconsume_times, message.prepared_transaction_offset), (7, 8))
        self.assertEqual((message.body, message.properties), (b"hi", b"TAGS\x01A"))
        self.assertEqual(message.properties_map(), {"TAGS": "A"})
        self.assertEqual(message.store_size, len(GOLDEN))

    @settings(max_examples=examples(150), deadline=None)
    @given(messages, hosts, int64, int64, int64)
    def test_round_trip(self, message, store_host, queue_offset, physical_offset, timestamp):
        record = encode_record(message, store_host, queue_offset, physical_offset, timestamp)
        read = decode_message(b"xx" + record + b"yy", 2)
        self.assertEqual(read.store_size, len(record))
        self.assertEqual((read.topic, read.body), (message.topic, message.body))
        self.assertEqual((read.born_host, read.store_host), (message.born_host, store_host))
        self.assertEqual(read.sys_flag & 0x10 != 0, len(message.born_host) == 20)
        self.assertEqual(read.sys_flag & 0x20 != 0, len(store_host) == 20)
        self.assertEqual(read.sys_flag & ~0x30, message.sys_flag)
        self.assertEqual((read.properties, properties_of(record)), (message.properties, message.properties))
        self.assertEqual((read.store_timestamp, store_timestamp_of(record)), (timestamp, timestamp))
        self.assertEqual((read.queue_offset, read.physical_offset), (queue_offset, physical_offset))
        self.assertEqual(read.prepared_transaction_offset, message.prepared_transaction_offset)

    def test_truncated_record_is_an_error(self):
        for size in range(len(GOLDEN)):
            with self.assertRaises(RecordError):
                decode_message(GOLDEN[:size])

    def test_changed_body_is_an_error_unless_not_checked(self):
        changed = GOLDEN.replace(b"hi", b"ho")
        with self.assertRaises(RecordError):
            decode_message(changed)
        self.assertEqual(decode_message(changed, check_crc=False).body, b"ho")

    def test_lying_lengths_are_errors(self):
        for position in (0, 84):
            for value in (-1, 0, 1, 99, 101, 2**31 - 1):
                lying = bytearray(GOLDEN)
                struct.pack_into(">i", lying, position, value)
                with self.assertRaises(RecordError):
                    decode_message(bytes(lying))

    def test_several_records(self):
        self.assertEqual([m.body for m in decode_messages(memoryview(GOLDEN * 3))], [b"hi"] * 3)

    def test_damaged_record_does_not_hide_the_ones_around_it(self):
        damages = {
            "the CRC": GOLDEN.replace(b"hi", b"ho"),
            "the magic": GOLDEN[:4] + b"\x00" + GOLDEN[5:],
            "its parts have": GOLDEN[:3] + b"\x63" + GOLDEN[4:],
            "claims 2147483647": b"\x7f\xff\xff\xff" + GOLDEN[4:],
            "claims 0": bytes(4) + GOLDEN[4:],
            "the length of the body": GOLDEN[:84] + b"\xff" + GOLDEN[85:],
        }
        for kind, damaged in damages.items():
            with self.subTest(kind=kind):
                found, texts = decode_readable(GOLDEN + damaged + GOLDEN * 2)
                self.assertEqual([message.body for message in found], [b"hi"] * 3)
                (text,) = texts
                self.assertTrue(text.startswith("the record with offset 3 in queue 1, at 4 of the log: "), text)
                self.assertIn(kind, text)

    def test_damage_at_the_end_does_not_hide_the_records_before_it(self):
        for size in range(1, len(GOLDEN)):
            found, texts = decode_readable(memoryview(GOLDEN * 2 + GOLDEN[:size]))
            self.assertEqual((len(found), len(texts)), (2, 1))
        self.assertEqual(decode_readable(b""), ([], []))

    @settings(max_examples=examples(150), deadline=None)
    @given(st.lists(st.one_of(st.just(GOLDEN), st.binary(max_size=120)), max_size=5))
    def test_decoding_of_any_bytes_ends(self, parts):
        found, texts = decode_readable(b"".join(parts))
        self.assertLessEqual(len(found) + len(texts), sum(map(len, parts)))

    def test_too_long_parts_are_refused(self):
        for message in (make_message(topic="t" * 128), make_message(properties=b"p" * 32768)):
            with self.assertRaises(RecordError):
                encode_record(message, STORE_HOST, 0, 0, 0)


class PropertiesTests(SynchronousTestCase):
    def test_last_separator_may_be_missing(self):
        for text in (b"A\x011\x02TAGS\x01x", b"A\x011\x02TAGS\x01x\x02"):
            self.assertEqual(decode_properties(text.decode("utf-8", "replace")), {"A": "1", "TAGS": "x"})
            self.assertEqual(find_property(text, b"TAGS"), b"x")

    def test_name_must_match_whole(self):
        self.assertIsNone(find_property(b"XTAGS\x01x\x02TAGSX\x01y", b"TAGS"))

    def test_last_non_empty_of_equal_names_wins(self):
        self.assertEqual(find_property(b"A\x011\x02A\x012\x02A\x01", b"A"), b"2")
        self.assertEqual(decode_properties("A\x011\x02A\x012\x02A\x01"), {"A": "2"})

    @settings(max_examples=examples(200), deadline=None)
    @given(st.lists(st.sampled_from([b"A", b"AA", b"TAGS", b"\x01", b"\x02", b"x"]), max_size=15))
    def test_find_property_equals_decoded_map(self, pieces):
        text = b"".join(pieces)
        for name in ("A", "AA", "TAGS"):
            expected = decode_properties(text.decode("utf-8", "replace")).get(name)
            value = find_property(text, name.encode())
            self.assertEqual(None if value is None else value.decode(), expected)

    @settings(max_examples=examples(200), deadline=None)
    @given(
        st.lists(st.sampled_from([b"KEYS", b"XKEYS", b"TAGS", b"UNIQ_KEY", b"\x01", b"\x02", b"x", b" "]), max_size=15)
    )
    def test_dispatch_properties_equal_decoded_entries(self, pieces):
        text = b"".join(pieces)
        entries = [entry.partition("\x01") for entry in text.decode().split("\x02")]
        unique = dict.fromkeys(value for name, _, value in entries if name == "UNIQ_KEY" and value)
        keys = [word for name, _, value in entries if name == "KEYS" for word in value.split(" ") if word]
        tags_code = java_string_hash(decode_properties(text.decode()).get("TAGS", ""))
        self.assertEqual(dispatch_properties(text), (tags_code, (*unique, *keys)))

    def test_tags_code_is_javas_hash(self):
        self.assertEqual(dispatch_properties(b"TAGS\x01TagA"), (2598919, ()))
        self.assertEqual(dispatch_properties(b"KEYS\x01k"), (0, ("k",)))

    def test_index_keys(self):
        self.assertEqual(dispatch_properties(b"KEYS\x01k1  k2\x02UNIQ_KEY\x01u")[1], ("u", "k1", "k2"))
        self.assertEqual(dispatch_properties(b"A\x01b")[1], ())

    def test_index_keys_of_batched_message_include_batch_keys(self):
        stored = b"KEYS\x01k\x02UNIQ_KEY\x01own\x02WAIT\x01true\x02UNIQ_KEY\x01batch\x02KEYS\x01l m\x02UNIQ_KEY\x01own"
        self.assertEqual(dispatch_properties(stored)[1], ("own", "batch", "k", "l", "m"))
        self.assertEqual(fewer_index_keys(stored), (("own", "k"), ("own", "l", "m")))
        self.assertEqual(fewer_index_keys(stored[:-13]), (("own", "k"), ("batch", "l", "m")))


class ScannerTests(SynchronousTestCase):
    def log(self, *messages, base=1000):
        data = b""
        for number, message in enumerate(messages):
            data += encode_record(message, STORE_HOST, number, base + len(data), 77)
        return data

    def scan(self, data, base=1000, **changes):
        view = memoryview(data)
        scan = RecordScanner(changes.pop("delay_time_of", None)).scan(view, 0, len(view), base, True, **changes)
        skip = RecordScanner().skip(view, 0, len(view), base, True)
        if not changes:
            self.assertEqual((skip.position, skip.end), (scan.position, scan.end))
        return scan

    def test_scanner_returns_dispatch_requests(self):
        data = self.log(
            make_message(properties=b"TAGS\x01TagA\x02KEYS\x01a b\x02UNIQ_KEY\x01u", queue_id=3, sys_flag=8),
            make_message(born_host=bytes(20), sys_flag=12, key="k", prepared_transaction_offset=5),
        )
        scan = self.scan(data)
        self.assertEqual((scan.position, scan.end), (len(data), ScanEnd.LIMIT))
        first, second = scan.requests
        self.assertEqual((first.topic, first.queue_id, first.physical_offset), ("TopicTest", 3, 1000))
        self.assertEqual((first.tags_code, first.index_keys), (2598919, ("u", "a", "b")))
        self.assertEqual((first.store_timestamp, first.queue_offset, first.sys_flag), (77, 0, 8))
        self.assertEqual((second.physical_offset, second.size), (1000 + first.size, len(data) - first.size))
        # A rolled back message is not to be found by key.
        self.assertEqual((second.index_keys, second.prepared_transaction_offset), ((), 5))

    def test_delivery_time_of_delayed_messages(self):
        data = self.log(make_message(topic="SCHEDULE_TOPIC_XXXX", properties=b"TAGS\x01A\x02DELAY\x013"))
        self.assertEqual(self.scan(data, delay_time_of=lambda level, at: at + level * 1000).requests[0].tags_code, 3077)
        self.assertEqual(self.scan(data).requests[0].tags_code, 65)

    def test_end_of_file(self):
        data = self.log(make_message())
        scan = self.scan(data + BLANK + b"rubbish")
        self.assertEqual((len(scan.requests), scan.position, scan.end), (1, len(data), ScanEnd.END_OF_FILE))

    def test_zeros_and_rubbish_are_broken(self):
        data = self.log(make_message())
        for tail in (bytes(200), b"\0\0", b"\0\0\0\x64\xda\xa3\x20\xa7", b"rubbish!" * 20):
            scan = self.scan(data + tail)
            self.assertEqual((len(scan.requests), scan.position, scan.end), (1, len(data), ScanEnd.BROKEN))

    def test_record_with_wrong_physical_offset_is_broken(self):
        self.assertIs(self.scan(self.log(make_message()), base=1001).end, ScanEnd.BROKEN)

    def test_record_with_changed_length_is_broken(self):
        data = self.log(make_message(properties=b"A\x01b"))
        whole = len(self.scan(data).requests)
        self.assertEqual(whole, 1)
        for position in [*range(4), *range(84, 88), 92, 102, 103]:
            changed = bytearray(data)
            changed[position] ^= 0x55
            self.assertEqual(self.scan(bytes(changed)).requests, [], position)

    def test_limit_of_records(self):
        data = self.log(*[make_message()] * 5)
        scan = self.scan(data, max_records=2)
        self.assertEqual((len(scan.requests), scan.end), (2, ScanEnd.MORE))
