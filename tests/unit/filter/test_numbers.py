"""Numbers as Java reads and compares them."""

from math import inf, isnan

from twisted.trial.unittest import SynchronousTestCase

from rocketd.filter.java_numbers import compare_doubles, parse_double, parse_int, parse_long


class ParseTests(SynchronousTestCase):
    def test_integers_are_parsed_as_in_java(self):
        for text, value in (
            ("0", 0), ("-0", 0), ("+7", 7), ("007", 7), ("2147483647", 2**31 - 1), ("-2147483648", -(2**31)),
            ("\u0665\u0666", 56), ("0" * 100 + "5", 5),
        ):  # fmt: skip
            self.assertEqual((parse_int(text), parse_long(text)), (value, value))
        self.assertEqual(parse_long("9223372036854775807"), 2**63 - 1)
        self.assertEqual(parse_long("-9223372036854775808"), -(2**63))

    def test_malformed_integers_are_refused(self):
        for text in ("", " 5", "5 ", "1_0", "5.0", "5L", "0x5", "+", "-", "--5", "1e3", "\u00b2", "\U0001d7d8", "five"):
            for parse in (parse_int, parse_long):
                self.assertRaises(ValueError, parse, text)
        for text in ("2147483648", "-2147483649"):
            self.assertRaises(ValueError, parse_int, text)
        for text in ("9223372036854775808", "-9223372036854775809", "9" * 5000):
            self.assertRaises(ValueError, parse_long, text)

    def test_doubles_are_parsed_as_in_java(self):
        for text, value in (
            ("5", 5.0), (" 5.5\t", 5.5), ("5.", 5.0), (".5", 0.5), ("-1e3", -1000.0), ("5d", 5.0), ("5F", 5.0),
            ("-Infinity", -inf), ("0x1p3", 8.0), ("-0X.8P1f", -1.0), ("0x1.8p0", 1.5), ("0x1p99999", inf),
            ("1e999", inf), ("\x005\x00", 5.0), ("0x1.p1", 2.0), ("-0x1p99999", -inf),
        ):  # fmt: skip
            self.assertEqual(parse_double(text), value, text)
        self.assertTrue(isnan(parse_double("-NaN")))

    def test_malformed_doubles_are_refused(self):
        for text in (
            "",
            " ",
            ".",
            "5e",
            "nan",
            "inf",
            "infinity",
            "1_0",
            "0x1",
            "0xp1",
            "5dd",
            "\u0665",
            "\u00a05",
            "NaNd",
            # Long enough to take hours where each division of the digits is tried.
            "1" * 1_000_000 + "x",
            "." + "1" * 1_000_000 + "x",
        ):
            self.assertRaises(ValueError, parse_double, text)


class CompareTests(SynchronousTestCase):
    def test_doubles_have_a_total_order(self):
        ordered = [-inf, -1.0, -0.0, 0.0, 1.0, inf, float("nan")]
        for i, left in enumerate(ordered):
            for j, right in enumerate(ordered):
                self.assertEqual(compare_doubles(left, right), (i > j) - (i < j), (left, right))
