from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.message_properties import (
    decode_properties,
    encode_properties,
    find_property,
    join_entries,
    property_entries,
)
from tests.support.examples import examples

_TEXT = st.text(st.characters(blacklist_characters="\x01\x02", blacklist_categories=("Cs",)), min_size=1, max_size=6)


class DecodeTests(SynchronousTestCase):
    def test_decode_with_and_without_last_separator(self):
        for text in ("KEYS\x01k1 k2\x02TAGS\x01A", "KEYS\x01k1 k2\x02TAGS\x01A\x02"):
            self.assertEqual(decode_properties(text), {"KEYS": "k1 k2", "TAGS": "A"})

    def test_decode_nothing_is_empty(self):
        self.assertEqual(decode_properties(None), {})
        self.assertEqual(decode_properties(""), {})

    def test_last_of_equal_names_wins(self):
        self.assertEqual(decode_properties("a\x011\x02a\x012"), {"a": "2"})

    def test_entries_without_name_or_value_are_left_out(self):
        self.assertEqual(decode_properties("\x01v\x02n\x01\x02alone\x02a\x01b\x01c"), {"a": "b\x01c"})


class EncodeTests(SynchronousTestCase):
    def test_encode_has_no_last_separator(self):
        self.assertEqual(encode_properties({"KEYS": "k", "TAGS": "A"}), "KEYS\x01k\x02TAGS\x01A")
        self.assertEqual(encode_properties({}), "")

    @given(st.dictionaries(_TEXT, _TEXT, max_size=5))
    @settings(max_examples=examples(50), deadline=None)
    def test_round_trip(self, table):
        self.assertEqual(decode_properties(encode_properties(table)), table)


class EntriesTests(SynchronousTestCase):
    @given(st.lists(st.sampled_from(["", "a", "b", "\x01", "\x02", "\0", "é", "ab\x01"]), max_size=12).map("".join))
    @settings(max_examples=examples(300), deadline=None)
    def test_property_entries_equal_decoded_properties(self, text):
        table = decode_properties(text)
        entries = property_entries(text)
        self.assertEqual(list(entries), list(table))
        self.assertEqual(entries, {name: f"{name}\x01{value}" for name, value in table.items()})
        self.assertEqual(join_entries(entries), encode_properties(table))


class FindTests(SynchronousTestCase):
    def test_only_whole_names_match(self):
        self.assertEqual(find_property(b"MYTAGS\x01no\x02TAGS\x01yes\x02", b"TAGS"), b"yes")
        self.assertIsNone(find_property(b"MYTAGS\x01no", b"TAGS"))

    def test_value_equal_to_name_does_not_match(self):
        self.assertEqual(find_property(b"TAGS\x01a\x02x\x01TAGS\x01b", b"TAGS"), b"a")

    @given(
        st.lists(st.tuples(st.sampled_from(["a", "aa", "b", "ab", ""]), st.sampled_from(["", "a", "aa", "b\x01a"]))),
        st.sampled_from(["a", "aa", "b", "ab"]),
        st.booleans(),
    )
    @settings(max_examples=examples(300), deadline=None)
    def test_agrees_with_the_decoder(self, entries, name, closed):
        text = "\x02".join(f"{n}\x01{v}" for n, v in entries) + ("\x02" if closed else "")
        value = find_property(text.encode(), name.encode())
        self.assertEqual(None if value is None else value.decode(), decode_properties(text).get(name))
