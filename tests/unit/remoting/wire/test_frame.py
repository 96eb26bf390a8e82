from struct import pack

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting.errors import FrameError
from rocketd.remoting.wire.frame import MAX_FRAME_LENGTH, FrameDecoder
from tests.support.examples import examples


def frame(header=b"{}", body=b"", serialize_type=0):
    return pack(">iI", 4 + len(header) + len(body), serialize_type << 24 | len(header)) + header + body


class FrameDecoderTests(SynchronousTestCase):
    def refused(self, data, pattern, max_length=MAX_FRAME_LENGTH):
        with self.assertRaisesRegex(FrameError, pattern):
            FrameDecoder(max_length).feed(data)

    def test_frame_is_split_into_header_and_body(self):
        self.assertEqual(FrameDecoder().feed(frame(b"head", b"body", 1)), [(1, b"head", b"body")])

    def test_feed_of_no_bytes_returns_no_frame(self):
        decoder = FrameDecoder()
        self.assertEqual(decoder.feed(b""), [])
        self.assertEqual(decoder.feed(frame()[:3]), [])
        self.assertEqual(decoder.feed(b""), [])
        self.assertEqual(decoder.feed(frame()[3:]), [(0, b"{}", b"")])

    def test_frame_with_empty_header_is_split(self):
        self.assertEqual(FrameDecoder().feed(frame(b"")), [(0, b"", b"")])

    def test_many_frames_at_once_and_a_rest(self):
        decoder = FrameDecoder()
        data = frame(b"1") + frame(b"2", b"x" * 1000) + frame(b"3")
        self.assertEqual([header for _, header, _ in decoder.feed(data[:-2])], [b"1", b"2"])
        self.assertEqual(decoder.buffered, len(frame(b"3")) - 2)
        self.assertEqual(decoder.feed(data[-2:] + frame(b"4")[:5]), [(0, b"3", b"")])
        self.assertEqual(decoder.buffered, 5)
        self.assertEqual(decoder.feed(frame(b"4")[5:]), [(0, b"4", b"")])
        self.assertEqual(decoder.buffered, 0)

    def test_frames_cut_at_any_byte_are_decoded(self):
        data = frame(b"a", b"1") + frame(b"b", b"2")
        for cut in range(len(data) + 1):
            decoder = FrameDecoder()
            self.assertEqual(decoder.feed(data[:cut]) + decoder.feed(data[cut:]), [(0, b"a", b"1"), (0, b"b", b"2")])

    def test_limit_covers_whole_frame(self):
        largest = frame(b"h" * 10, b"b" * 82)
        self.assertEqual(len(largest), 100)
        self.assertEqual(len(FrameDecoder(100).feed(largest)), 1)
        self.refused(largest, "frame of 100 bytes is over the limit of 99", 99)

    def test_header_over_limit_is_refused_before_buffering(self):
        largest = frame(b"h" * 100, b"b" * 1000)
        self.assertEqual(len(FrameDecoder(max_header=100).feed(largest)), 1)
        with self.assertRaisesRegex(
            FrameError, r"header of 100 bytes is over the limit of 99 \(serverMaxHeaderBytes\)"
        ):
            FrameDecoder(max_header=99).feed(largest[:8])

    def test_held_counts_small_pieces_and_missing_counts_rest(self):
        decoder = FrameDecoder()
        data = frame(b"h", b"b" * 100_000)
        decoder.feed(data[:50_000])
        self.assertEqual(decoder.missing, len(data) - 50_000)
        held = decoder.held
        for at in range(50_000, 50_100):
            decoder.feed(data[at : at + 1])
        self.assertGreater(decoder.held - held, 100 * 40)
        decoder.clear()
        self.assertEqual((decoder.held, decoder.missing, decoder.buffered), (0, 0, 0))
        self.assertEqual(len(decoder.feed(data)), 1)
        self.assertEqual(decoder.held, 0)

    def test_frame_over_limit_is_refused_before_buffering(self):
        self.refused(pack(">i", MAX_FRAME_LENGTH - 3), "over the limit")
        decoder = FrameDecoder()
        self.assertEqual(decoder.feed(pack(">i", MAX_FRAME_LENGTH - 4)), [])
        self.assertEqual(decoder.buffered, 4)

    def test_limit_applies_to_length_in_pieces(self):
        decoder = FrameDecoder(100)
        self.assertEqual(decoder.feed(b"\x7f\xff"), [])
        with self.assertRaisesRegex(FrameError, "over the limit"):
            decoder.feed(b"\xff\xff")

    def test_frame_length_below_header_is_refused(self):
        for length in (0, 3, -1, -4, -5, -(2**31)):
            self.refused(pack(">i", length), f"frame length {length} is too small")
            self.refused(pack(">iI", length, 0) + b"x" * 20, f"frame length {length} is too small")

    def test_header_longer_than_frame_is_refused(self):
        self.refused(pack(">iI", 4, 1), "header of 1 bytes does not fit into a frame of 4")
        self.refused(pack(">iI", 10, 7) + b"x" * 100, "header of 7 bytes does not fit into a frame of 10")
        self.refused(pack(">iI", 10, 0xFFFFFF), "header of 16777215 bytes does not fit")

    def test_unknown_serialize_type_is_refused(self):
        self.refused(frame(serialize_type=2), "unknown serialize type 2")
        self.refused(frame(serialize_type=255), "unknown serialize type 255")

    def test_other_protocols_are_refused_at_once(self):
        for method in (b"GET", b"POST", b"HEAD", b"PUT"):
            self.refused(
                method + b" / HTTP/1.1\r\n", "HTTP request: this port has RocketMQ's protocol; metricsPort has"
            )
        self.refused(b"\x16\x03\x01\x02\x00\x01\x00\x01", "over the limit")
        self.refused(b"\xff" * 8, "too small")

    def test_good_frames_before_bad_one_are_dropped(self):
        self.refused(frame() + pack(">iI", 0, 0), "too small")

    @given(st.binary(max_size=300), st.lists(st.integers(1, 20), max_size=10))
    @settings(max_examples=examples(300), deadline=None)
    def test_any_bytes_give_frames_or_a_frame_error(self, data, sizes):
        decoder, at = FrameDecoder(200), 0
        try:
            for size in [*sizes, len(data)]:
                for kind, header, body in decoder.feed(data[at : at + size]):
                    self.assertIn(kind, (0, 1))
                    self.assertLessEqual(len(header) + len(body) + 8, 200)
                at += size
                self.assertLessEqual(decoder.buffered, 200)
        except FrameError:
            pass

    @given(
        st.lists(st.tuples(st.integers(0, 1), st.binary(max_size=30), st.binary(max_size=30)), max_size=6), st.data()
    )
    @settings(max_examples=examples(200), deadline=None)
    def test_frames_survive_any_cut(self, frames, data):
        stream = b"".join(frame(header, body, kind) for kind, header, body in frames)
        decoder, seen, at = FrameDecoder(), [], 0
        while at < len(stream):
            size = data.draw(st.integers(1, 40))
            seen += decoder.feed(stream[at : at + size])
            at += size
        self.assertEqual(seen, frames)
