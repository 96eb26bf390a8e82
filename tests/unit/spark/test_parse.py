"""The vectorised parser and the plain decoder agree on every column, and damage is an error."""

import struct
import zlib

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.sysflag import COMPRESSED, COMPRESSION_LZ4, COMPRESSION_ZLIB, COMPRESSION_ZSTD
from rocketd.spark.columns import COLUMNS, DEFAULT_COLUMNS, arrow_schema
from rocketd.spark.errors import SparkError, StoreFilesError
from rocketd.spark.records import bodies
from rocketd.spark.records.parse import (
    BAD,
    BLANK,
    CUT,
    EMPTY,
    HEADER_COLUMNS,
    Frames,
    frame_starts,
    parse_batches,
    parse_frames,
    walk_log,
)
from rocketd.store.base.layout import BLANK_MAGIC
from rocketd.store.format.message import MessageInner
from rocketd.store.format.record import encode_record
from rocketd.store.testing import STORE_HOST, make_message
from tests.support.examples import examples
from tests.support.plain_rows import plain_row, rows_of

ALL = tuple(COLUMNS)


def stream(codec, data):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as packed:
        packed.write(data)
    return sink.getvalue().to_pybytes()


PACKERS = {
    0: lambda body: body,
    COMPRESSED: zlib.compress,
    COMPRESSED | COMPRESSION_ZLIB: zlib.compress,
    COMPRESSED | COMPRESSION_LZ4: lambda body: stream("lz4", body),
    COMPRESSED | COMPRESSION_ZSTD: lambda body: stream("zstd", body),
}

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
times = st.one_of(st.integers(0, 2 * 10**12), int64)
hosts = st.one_of(
    st.sampled_from([STORE_HOST, bytes(8), bytes(range(20))]),
    st.binary(min_size=8, max_size=8),
    st.binary(min_size=20, max_size=20),
)
names = st.sampled_from(
    [
        "TAGS",
        "KEYS",
        "UNIQ_KEY",
        "UNIQ_KEYS",
        "TAG",
        "TAGS\0",
        "",
        "a",
        "größe",
        "TAGS\x01",
        "a name of more than eight",
        "a name or more than eight",
        "x" * 300,
    ]
).map(str.encode)
odd_values = [b"", b"TagA", b"TagB", b"k1 k2", "schön 🎉".encode(), b"\xff\xfe"]
values = st.one_of(st.sampled_from(odd_values), st.binary(max_size=12))
pairs = st.lists(st.tuples(names, values), max_size=8)
strings = st.one_of(
    pairs.map(lambda entries: b"\x02".join(name + b"\x01" + value for name, value in entries)),
    pairs.map(lambda entries: b"".join(name + b"\x01" + value + b"\x02" for name, value in entries)),
    st.binary(max_size=60),
    st.lists(st.sampled_from([b"\x01", b"\x02", b"TAGS", b"KEYS", b"a", b"\xc3", b"\xa9"]), max_size=20).map(b"".join),
)
topics = st.one_of(st.just("orders"), st.text(st.characters(codec="utf-8"), min_size=1, max_size=20))


@st.composite
def inner_messages(draw):
    flags = draw(st.sampled_from(sorted(PACKERS)))
    return MessageInner(
        topic=draw(topics),
        queue_id=draw(int32),
        flag=draw(int32),
        sys_flag=flags | draw(st.sampled_from([0, 2, 4, 8, 12, 0x40, 0x80])),
        born_timestamp=draw(times),
        born_host=draw(hosts),
        reconsume_times=draw(int32),
        prepared_transaction_offset=draw(int64),
        body=PACKERS[flags](draw(st.binary(max_size=200))),
        properties=draw(strings),
        tags_code=0,
    )


@st.composite
def records(draw):
    message = draw(inner_messages())
    return encode_record(message, draw(hosts), draw(int64), draw(int64), draw(times))


def laid_out(found, gap=b""):
    """Return the records concatenated, with ``gap`` between them, and their start positions."""
    buffer = bytearray(gap)
    starts = []
    for record in found:
        starts.append(len(buffer))
        buffer += record + gap
    return bytes(buffer), starts


class ParseTests(SynchronousTestCase):
    @settings(max_examples=examples(300), deadline=None)
    @given(st.lists(records(), max_size=12), st.binary(max_size=9), st.booleans())
    def test_columns_equal_the_decoders_values(self, found, gap, decompress):
        buffer, starts = laid_out(found, gap)
        batch = parse_frames(buffer, starts, ALL, broker="b", decompress=decompress, verify_crc=True)
        self.assertEqual(batch.schema, arrow_schema(ALL))
        self.assertEqual(rows_of(batch), [plain_row(record, decompress) for record in found])

    @settings(max_examples=examples(50), deadline=None)
    @given(st.lists(records(), min_size=1, max_size=5), st.lists(st.sampled_from(ALL), min_size=1, unique=True))
    def test_any_columns_in_any_order(self, found, columns):
        buffer, starts = laid_out(found)
        batch = parse_frames(buffer, np.array(starts), columns, broker="b")
        self.assertEqual(batch.schema, arrow_schema(columns))
        self.assertEqual(rows_of(batch), [{name: plain_row(one)[name] for name in columns} for one in found])

    def test_no_records(self):
        for buffer in (b"", b"abc"):
            batch = parse_frames(buffer, [], DEFAULT_COLUMNS, broker="b")
            self.assertEqual((batch.num_rows, batch.schema), (0, arrow_schema(DEFAULT_COLUMNS)))

    def test_many_alike(self):
        # More rows than the kept indices, and equal values in all rows, which take the fast paths.
        found = [
            encode_record(
                make_message(b"%d" % number, key=f"key-{number}"), STORE_HOST, number, number * 200, 1000 + number
            )
            for number in range(20_000)
        ]
        buffer, starts = laid_out(found)
        rows = rows_of(parse_frames(buffer, starts, ALL, broker="b"))
        self.assertEqual(rows[::97], [plain_row(record) for record in found[::97]])
        self.assertEqual(rows[-1], plain_row(found[-1]))

    def test_many_properties_of_one_name(self):
        entries = [f"name{number % 40}\x01value{number}" for number in range(500)]
        found = [
            encode_record(make_message(properties="\x02".join(entries[:count]).encode()), STORE_HOST, 1, 2, 3)
            for count in (0, 1, 20, 41, 500, 3)
        ]
        buffer, starts = laid_out(found)
        self.assertEqual(rows_of(parse_frames(buffer, starts, ALL, broker="b")), [plain_row(one) for one in found])

    def test_repeated_property_names_are_parsed(self):
        # As in a batch: the broker puts the batch's properties behind each message's own.
        names = ["WAIT", "TAGS", "WAIT", "KEYS", "a", "TAGS", "WAIT"]
        found = [
            encode_record(
                make_message(properties="\x02".join(f"{name}\x01{at}-{row}" for at, name in enumerate(names)).encode()),
                STORE_HOST,
                1,
                2,
                3,
            )
            for row in range(5)
        ]
        buffer, starts = laid_out(found)
        rows = rows_of(parse_frames(buffer, starts, ALL, broker="b"))
        self.assertEqual(rows, [plain_row(one) for one in found])
        self.assertEqual(dict(rows[3]["properties"]), {"WAIT": "6-3", "TAGS": "5-3", "KEYS": "3-3", "a": "4-3"})

    def test_long_parts(self):
        message = make_message(bytes(300_000), topic="t" * 127, properties=b"TAGS\x01" + b"v" * 32_762)
        buffer, starts = laid_out([encode_record(message, STORE_HOST, 1, 2, 3)] * 3)
        self.assertEqual(rows_of(parse_frames(buffer, starts, ALL, broker="b")), [plain_row(buffer[: starts[1]])] * 3)

    def test_header_columns_need_no_more_than_the_head(self):
        record = encode_record(make_message(b"body"), STORE_HOST, 1, 2, 3)
        damaged = record[:-2] + b"\xff\xff"
        batch = parse_frames(damaged, [0], sorted(HEADER_COLUMNS), broker="b")
        self.assertEqual(rows_of(batch), [{name: plain_row(record)[name] for name in sorted(HEADER_COLUMNS)}])

    def test_behind_two_gibibytes(self):
        # Offsets of 32 bits do not reach there: positions are counted from the first record.
        record = encode_record(make_message(b"far"), STORE_HOST, 1, 2, 3)
        far = np.zeros(2**31 + 4096, np.uint8)  # pages that are never written take no memory
        begin = len(far) - 2 * len(record)
        far[begin:] = np.frombuffer(record * 2, np.uint8)
        rows = rows_of(parse_frames(far, [begin, begin + len(record)], ALL, broker="b"))
        self.assertEqual(rows, [plain_row(record)] * 2)
        far[: len(record)] = np.frombuffer(record, np.uint8)
        error = self.assertRaises(SparkError, parse_frames, far, [0, begin], ALL, broker="b")
        self.assertIn("one batch", str(error))


class BodyTests(SynchronousTestCase):
    def parse(self, *messages, columns=("body",), **how):
        buffer, starts = laid_out([encode_record(one, STORE_HOST, n, 2, 3) for n, one in enumerate(messages)])
        return parse_frames(buffer, starts, columns, broker="b", **how)

    def test_damaged_body_error_names_topic_queue_and_offset(self):
        for flags, body in (
            (COMPRESSED, b"no zlib"),
            (COMPRESSED, b""),
            (COMPRESSED, zlib.compress(b"x" * 100)[:-5]),
            (COMPRESSED | COMPRESSION_LZ4, b"no lz4"),
            (COMPRESSED | COMPRESSION_LZ4, b""),
            (COMPRESSED | COMPRESSION_ZSTD, stream("zstd", b"x" * 100)[:-1]),
            (COMPRESSED | 0x400, b"what"),
        ):
            bad = make_message(body, sys_flag=flags, queue_id=7)
            error = self.assertRaises(StoreFilesError, self.parse, make_message(), bad)
            self.assertIn("the message with offset 1 of queue 7 of topic TopicTest", str(error))
            self.assertIn("decompress=false", str(error))
            self.assertEqual(self.parse(bad, decompress=False).column(0).to_pylist(), [body])

    def test_wrong_crc_raises(self):
        buffer, starts = laid_out([encode_record(make_message(b"body %d" % n), STORE_HOST, n, 2, 3) for n in range(3)])
        damaged = buffer.replace(b"body 2", b"bodY 2")
        parse_frames(damaged, starts, ["queue_offset"], broker="b")
        error = self.assertRaises(
            StoreFilesError, parse_frames, damaged, starts, ["queue_offset"], broker="b", verify_crc=True
        )
        self.assertIn("the message with offset 2 of queue 0 of topic TopicTest", str(error))
        self.assertIn("CRC", str(error))

    def test_large_unpacked_bodies_make_several_batches(self):
        self.patch(bodies, "UNPACKED_LIMIT", 1000)
        plain = [bytes([number]) * 300 for number in range(10)]
        messages = [make_message(zlib.compress(body), sys_flag=COMPRESSED) for body in plain]
        buffer, starts = laid_out([encode_record(one, STORE_HOST, n, 2, 3) for n, one in enumerate(messages)])
        batches = list(parse_batches(buffer, starts, ["body", "queue_offset"], broker="b"))
        self.assertGreater(len(batches), 3)
        self.assertEqual([row["body"] for batch in batches for row in rows_of(batch)], plain)
        self.assertEqual([row["queue_offset"] for batch in batches for row in rows_of(batch)], list(range(10)))
        self.patch(bodies, "UNPACKED_LIMIT", 299)
        error = self.assertRaises(SparkError, list, parse_batches(buffer, starts, ["body"], broker="b"))
        self.assertIn("decompress=false", str(error))


class DamageTests(SynchronousTestCase):
    @settings(max_examples=examples(400), deadline=None)
    @given(st.lists(records(), min_size=1, max_size=4), st.data())
    def test_damage_is_an_error_or_harmless_but_never_worse(self, found, data):
        buffer, starts = laid_out(found)
        damaged = bytearray(buffer)
        for _ in range(data.draw(st.integers(1, 3))):
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        del damaged[data.draw(st.integers(len(damaged) // 2, len(damaged))) :]
        if data.draw(st.booleans()):
            starts = sorted(data.draw(st.lists(st.integers(-10, len(buffer) + 10), max_size=4)))
        try:
            batch = parse_frames(bytes(damaged), starts, ALL, broker="b", decompress=False)
        except SparkError:
            return
        batch.validate(full=True)
        self.assertEqual(
            batch.column("raw").to_pylist(),
            [
                bytes(damaged[s : s + size])
                for s, size in zip(starts, batch.column("store_size").to_pylist(), strict=True)
            ],
        )

    def test_damage_error_has_its_position(self):
        good = encode_record(make_message(b"0123456789", properties=b"TAGS\x01A"), STORE_HOST, 1, 2, 3)
        properties_at = len(good) - 8
        for position, data, fault in (
            (0, struct.pack(">i", 90), "end within the record"),
            (0, struct.pack(">i", len(good) + 1), "end within the record"),
            (4, b"\0", "second word"),
            (36, struct.pack(">i", 0x30), "longer than the record"),
            (84, struct.pack(">i", -1), "body is longer"),
            (84, struct.pack(">i", 2**31 - 1), "body is longer"),
            (84, struct.pack(">i", 9), "longer than the record"),
            (98, b"\xff", "topic is longer"),
            (properties_at, b"\0\5", "another length"),
            (properties_at, b"\xff\xff", "another length"),
        ):
            bad = good[:position] + data + good[position + len(data) :]
            error = self.assertRaises(
                StoreFilesError, parse_frames, good + bad, [0, len(good)], ALL, broker="b", where="it"
            )
            self.assertIn(f"byte {len(good)} of it", str(error))
            self.assertIn(fault, str(error))

    def test_starts_must_ascend(self):
        buffer, starts = laid_out([encode_record(make_message(), STORE_HOST, 1, 2, 3)] * 3)
        for wrong in (starts[::-1], [0, 0], [-1], [len(buffer)], [2**62]):
            self.assertRaises(StoreFilesError, Frames, buffer, wrong)


class WalkTests(SynchronousTestCase):
    def setUp(self):
        self.found = [encode_record(make_message(b"x" * size), STORE_HOST, 1, 2, 3) for size in (0, 5, 1000, 3, 3, 3)]
        self.buffer, self.starts = laid_out(self.found)

    def test_ways_to_end(self):
        end = len(self.buffer)
        for tail, ending in (
            (b"", EMPTY),
            (bytes(5), EMPTY),
            (bytes(5000), EMPTY),
            (struct.pack(">ii", 100, BLANK_MAGIC) + bytes(92), BLANK),
            (struct.pack(">ii", 100, 1), BAD),
            (b"\1" * 200, BAD),
            (b"\1" * 5, CUT),
        ):
            walk = walk_log(self.buffer + tail)
            self.assertEqual((walk.starts.tolist(), walk.end, walk.ending), (self.starts, end, ending), tail[:9])
        walk = walk_log(self.buffer[:-1])
        self.assertEqual((walk.starts.tolist(), walk.end, walk.ending), (self.starts[:-1], self.starts[-1], CUT))

    def test_a_part(self):
        walk = walk_log(memoryview(self.buffer), self.starts[1], self.starts[4])
        self.assertEqual((walk.starts.tolist(), walk.end, walk.ending), (self.starts[1:4], self.starts[4], EMPTY))
        self.assertEqual(walk_log(b"").starts.tolist(), [])

    def test_frame_starts(self):
        self.assertEqual(frame_starts(self.buffer).tolist(), self.starts)
        self.assertEqual(frame_starts(b"").tolist(), [])
        for bad in (self.buffer[:-1], self.buffer + b"\0", self.buffer + bytes(100), b"x"):
            self.assertRaises(StoreFilesError, frame_starts, bad)
