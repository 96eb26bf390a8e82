"""Bodies of messages as text, JSON and hexadecimal."""

from twisted.trial.unittest import SynchronousTestCase

from rocketd.console.pages.bodies import MAX_BYTES, MAX_CHARACTERS, MAX_HEX_BYTES, PREVIEW, preview, shape_of, shown

SHAPES = [
    (b"", "text"),
    (b"pears", "text"),
    (b'{"a": 1}', "json"),
    (b"[1", "text"),
    (b"[" * 50_000, "text"),
    (b"17", "text"),
    (b"\xff", "hex"),
    (b"a\x00b", "hex"),
    (b"a\n\tb", "text"),
]


class BodiesTests(SynchronousTestCase):
    def test_shape_fits_the_body(self):
        for body, shape in SHAPES:
            self.assertEqual(shape_of(body), shape, body[:20])
            for each in ("text", "json", "hex"):
                self.assertIsInstance(shown(body, each), str)

    def test_long_bodies_are_cut_and_say_so(self):
        self.assertTrue(shown(b"a" * (MAX_BYTES + 7), "text").endswith("a\n… 7 more bytes are not shown"))
        self.assertTrue(shown(b"a" * (MAX_HEX_BYTES + 1234), "hex").endswith("\n… 1,234 more bytes are not shown"))
        json = shown(b"[" + b"1," * MAX_BYTES + b"1]", "json")
        self.assertTrue(json.endswith("more bytes are not shown"))

    def test_deep_json_is_cut_before_its_blanks_fill_the_memory(self):
        deep = 200
        body = b"[" * deep + b"1," * (MAX_BYTES // 2 - 2 * deep) + b"1" + b"]" * deep
        text = shown(body, "json")
        self.assertTrue(text.endswith("… the rest is not shown: it is too deep"))
        self.assertLess(len(text), MAX_CHARACTERS + 100)

    def test_hexadecimal_has_offset_bytes_and_text(self):
        lines = [
            "000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef",
            "000010  00 7a                                            .z",
        ]
        self.assertEqual(shown(b"0123456789abcdef\x00z", "hex").splitlines(), lines)

    def test_preview_is_one_short_line(self):
        self.assertEqual(preview("ä".encode() * 1000, False), "ä" * PREVIEW + "…")
        self.assertEqual(preview(b"x" + "ä".encode() * 1000, False), "x" + "ä" * (PREVIEW - 1) + "…")
        self.assertEqual(preview(b"a\n  b", False), "a b")
        self.assertEqual(preview(b"\xff" * 1000, False), "(1,000 binary bytes)")
        self.assertEqual(preview(b"pears", True), "(5 compressed bytes)")
