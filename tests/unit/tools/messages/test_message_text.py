"""What a terminal gets of a message: characters that it would obey are escapes."""

import json

from twisted.trial.unittest import SynchronousTestCase

from rocketd.tools.base.json_lines import json_text
from rocketd.tools.messages.message_text import described, printable


class PrintableTests(SynchronousTestCase):
    def test_controls_and_other_bytes_become_escapes_of_two_digits(self):
        self.assertEqual(printable(b"a\x1b[31m\r\xff\x00"), rb"a\x1b[31m\x0d\xff\x00")
        self.assertEqual(printable("\x9b1m".encode()), rb"\x9b1m")

    def test_characters_that_reorder_or_break_a_line_become_escapes(self):
        for code in (*range(0x2028, 0x202F), *range(0x2066, 0x206A)):
            self.assertEqual(printable(f"a{chr(code)}b".encode()), rb"a\u%04xb" % code)
            text = json_text([chr(code)])
            self.assertEqual((text, json.loads(text)), (rf'["\u{code:04x}"]', [chr(code)]))

    def test_other_characters_stay(self):
        text = "wörld\t\n\u200b\u2027\u202f\u2065\u206a 日本".encode()
        self.assertEqual(printable(text), text)


class DescribedTests(SynchronousTestCase):
    def test_each_fact_is_one_line(self):
        lines = described({"tags": "A\nid: forged\tx\x1b", "keys": ["a\nb"], "body": "hello"})
        self.assertEqual(lines, [r"tags: A\x0aid: forged\x09x\x1b", r'keys: ["a\nb"]', "", "    hello"])

    def test_lines_of_a_body_cannot_pass_for_facts(self):
        lines = described({"id": "1", "body": "one\n\nid: 2\r\tx"})
        self.assertEqual(lines, ["id: 1", "", "    one", "    ", "    id: 2\\x0d\tx"])
        self.assertEqual(described({"id": "1", "body": "id: 2"}), ["id: 1", "", "    id: 2"])

    def test_body_in_base64_is_announced(self):
        lines = described({"id": "1", "body_base64": "/wA="})
        self.assertEqual(lines, ["id: 1", "", "body (Base64):", "    /wA="])
