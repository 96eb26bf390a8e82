"""Frames of replication, received in arbitrary pieces."""

from itertools import pairwise
from struct import pack

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.log.transfer import (
    MAX_BODY,
    ReportDecoder,
    Transfer,
    TransferDecoder,
    TransferError,
    encode_header,
    encode_report,
)

OFFSETS = st.integers(0, 2**63 - 1)


def cut(data, places):
    """Cut bytes into pieces at some places."""
    bounds = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[begin:end] for begin, end in pairwise(bounds)]


class ReportTests(SynchronousTestCase):
    def test_report_bytes(self):
        self.assertEqual(encode_report(0x0102030405060708), bytes(range(1, 9)))

    def test_feed_of_reports_returns_last(self):
        self.assertEqual(ReportDecoder().feed(encode_report(1) + encode_report(3) + encode_report(2)), 2)

    def test_feed_of_torn_report_waits_for_rest(self):
        decoder = ReportDecoder()
        data = encode_report(5) + encode_report(258)
        self.assertEqual([decoder.feed(data[at : at + 1]) for at in range(16)], [None] * 7 + [5] + [None] * 7 + [258])

    def test_feed_keeps_begin_of_next_report(self):
        decoder = ReportDecoder()
        data = encode_report(5) + encode_report(258)
        self.assertEqual((decoder.feed(data[:11]), decoder.feed(data[11:])), (5, 258))

    def test_feed_returns_negative_offset(self):
        self.assertEqual(ReportDecoder().feed(b"\xff" * 8), -1)

    @given(st.lists(OFFSETS, min_size=1, max_size=9), st.lists(st.integers(0, 200)))
    def test_reports_in_arbitrary_pieces(self, offsets, places):
        decoder = ReportDecoder()
        found = [decoder.feed(piece) for piece in cut(b"".join(map(encode_report, offsets)), places)]
        self.assertEqual([offset for offset in found if offset is not None][-1], offsets[-1])


class TransferTests(SynchronousTestCase):
    def test_transfer_header_bytes(self):
        self.assertEqual(encode_header(258, 3), bytes((0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3)))

    def test_feed_of_body_and_heartbeat(self):
        data = encode_header(7, 3) + b"abc" + encode_header(10, 0)
        self.assertEqual(TransferDecoder().feed(data), [Transfer(7, b"abc"), Transfer(10, b"")])

    def test_feed_of_header_and_body_in_pieces(self):
        decoder = TransferDecoder()
        self.assertEqual(decoder.feed(encode_header(7, 3)), [])
        self.assertEqual(decoder.feed(b"ab"), [])
        self.assertEqual(decoder.feed(b"c" + encode_header(10, 0)[:5]), [Transfer(7, b"abc")])
        self.assertEqual(decoder.feed(encode_header(10, 0)[5:]), [Transfer(10, b"")])

    def test_feed_of_malformed_header_fails(self):
        for header in (pack(">qi", -1, 5), pack(">qi", 0, -1), pack(">qi", 0, MAX_BODY + 1)):
            with self.assertRaisesRegex(TransferError, "are not a replication header"):
                TransferDecoder().feed(header)

    @given(st.lists(st.tuples(OFFSETS, st.binary(max_size=40)), max_size=9), st.lists(st.integers(0, 600)))
    def test_transfers_in_arbitrary_pieces(self, frames, places):
        data = b"".join(encode_header(offset, len(body)) + body for offset, body in frames)
        decoder = TransferDecoder()
        found = [transfer for piece in cut(data, places) for transfer in decoder.feed(piece)]
        self.assertEqual(found, frames)
