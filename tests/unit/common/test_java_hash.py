import random

from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.java_hash import PrefixedHasher, java_string_hash, java_string_hash_unsigned


def by_definition(text: str) -> int:
    """h = 31 h + unit over the UTF-16 units, as the Java documentation defines it."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[at : at + 2], "big")) & 0xFFFFFFFF
    return value


STRINGS = [
    "",
    "a",
    "TagA || TagB",
    "\u00e9t\u00e9",
    "\u4e2d\u6587\u6807\u7b7e",
    "\U0001f600 and \U0010ffff",
    "\ud83d",
    "x" * 255,
    "y" * 256,
    "z" * 257,
    "0123456789" * 1000,
    "\u4e2d\U0001f600" * 300,
]


class JavaStringHashTests(SynchronousTestCase):
    def test_hash_equals_java(self) -> None:
        self.assertEqual(java_string_hash("TagA"), 2598919)
        self.assertEqual(java_string_hash("TopicTest#key1"), -1655984460)
        self.assertEqual(java_string_hash("hello"), 99162322)
        self.assertEqual(java_string_hash("polygenelubricants"), -(1 << 31))
        self.assertEqual(java_string_hash(""), 0)

    def test_hash_counts_astral_characters_as_two_units(self) -> None:
        self.assertEqual(java_string_hash("\U0001f600"), 0xD83D * 31 + 0xDE00)

    def test_hash_equals_definition(self) -> None:
        for text in STRINGS:
            self.assertEqual(java_string_hash_unsigned(text), by_definition(text), text[:20])
            self.assertEqual(java_string_hash(text) & 0xFFFFFFFF, by_definition(text), text[:20])
            self.assertTrue(-(1 << 31) <= java_string_hash(text) < 1 << 31)


class PrefixedHasherTests(SynchronousTestCase):
    def test_prefixed_hash_equals_hash_of_joined_string(self) -> None:
        hasher = PrefixedHasher()
        keys = [
            *STRINGS,
            *("k" * length for length in range(1, 140)),
            "\u4e2d" * 12,
            "\u4e2d\U0001f600" * 3 + "01234567",
            "a\U0001f6003450123",
            "abcdefg\U0001f600",
            "12345678",
        ]
        for prefix in ("TopicTest#", "", "%RETRY%\u7ec4#"):
            for key in keys:
                for _ in ("first", "remembered"):
                    self.assertEqual(hasher.hash_unsigned(prefix, key), by_definition(prefix + key), (prefix, key[:20]))

    def test_unique_keys(self) -> None:
        hasher = PrefixedHasher()
        for number in range(2000):
            key = f"7F00000110921B2F3C4D{0x0A1B2C3D + number // 7:08X}{number:04X}"
            self.assertEqual(hasher.hash_unsigned("T#", key), by_definition("T#" + key))

    def test_full_memory_stays_bounded_and_exact(self) -> None:
        hasher = PrefixedHasher(max_heads=3, max_pieces=4)
        pick = random.Random(5)
        for _ in range(500):
            prefix = f"Topic{pick.randrange(9)}#"
            key = "".join(pick.choices("0123456789abcdef", k=pick.randrange(8, 40)))
            self.assertEqual(hasher.hash_unsigned(prefix, key), by_definition(prefix + key))
        self.assertTrue(sum(map(len, hasher._heads.values())) <= 3)
        self.assertTrue(len(hasher._heads) <= 3)
        self.assertTrue(len(hasher._pieces) <= 4)
