"""SQL92 filters: syntax and evaluation. Expected values are those of Apache's evaluator."""

from twisted.trial.unittest import SynchronousTestCase

from rocketd.filter.expressions import MAX_DEPTH, SelectorError
from rocketd.filter.parser import MAX_LENGTH
from rocketd.filter.selector import Selector, compile_selector

PROPERTIES = {"a": "5", "b": "2.5", "s": "it's", "t": "TRUE", "x": "x", "big": "3000000000", "nan": "NaN", "neg": "-3"}


def evaluate(expression, properties=PROPERTIES):
    return Selector(expression).evaluate(properties)


class EvaluationTests(SynchronousTestCase):
    def check(self, cases, wanted):
        for expression in cases:
            self.assertIs(evaluate(expression), wanted, expression)

    def test_true_expressions(self):
        self.check(
            [
                "a = 5", "a <> 6", "a > 4", "a >= 5", "a < 6", "a <= 5", "5 = a", "6 > a", "a = 5L", "a = 5.0", "a = +5",
                "a < 5.5", "b = 2.5", "b > 2.", "b < .3e1", "neg = -3", "- -5 = a", "a > b", "a = '5'", "'5' = 5",
                "s = 'it''s'", "t = TRUE", "t = true", "a = FALSE", "a BETWEEN 5 AND 6", "a NOT BETWEEN 6 AND 9",
                "x IN ('y', 'x')", "x NOT IN ('y')", "x in ('1','2','3','4','5','x')", "nope IS NULL", "a IS NOT NULL",
                "nope = nada", "TRUE", "NOT FALSE", "NOT (a = 6)", "a = 6 OR x = 'x'", "a = 5 AND x = 'x'",
                "nope = 1 OR a = 5", "a = 6 AND nope = 1 OR a = 5", "big > 3000000000 OR big = 3000000000L", "t <> 'true'",
                "nan > 1e300", "nan = nan", "a /* five */ = 5 -- yes\n", "a\t=\r\n5", "a = 5 = TRUE", "NULL IS NULL",
                "_$1 IS NULL", "9007199254740993 = 9007199254740992.0", "(a) = ((5))",
                "a between -1 and 9",
            ],
            True,
        )  # fmt: skip

    def test_false_expressions(self):
        self.check(
            [
                "a = 6", "a <> 5", "a > 5", "a >= 6", "a < 5", "a = '5.0'", "t = FALSE", "a", "NOT TRUE",
                "a BETWEEN 6 AND 9", "a NOT BETWEEN 1 AND 9", "x IN ('y')", "x NOT IN ('x')", "nope IS NOT NULL",
                "a IS NULL", "'x' = nope", "NOT NOT a = 5 IS NULL",
                "5 = nope", "a = 6 AND nope = 1", "x = 'X'", "nan < 1e300", "5 = TRUE", "FALSE",
            ],
            False,
        )  # fmt: skip

    def test_unknown_expressions(self):
        self.check(
            [
                "nope = 1", "nope <> 1", "nope > 1", "1 < nope", "NOT (nope = 1)", "nope IN ('x')", "nope NOT IN ('x')",
                "nope BETWEEN 1 AND 2", "nope", "NULL", "a = 5 AND nope = 1", "a = 6 OR nope = 1", "-a > 1", "-s = 1",
                "-(a = 5) = 1", "NOT nope",
            ],
            None,
        )  # fmt: skip

    def test_evaluate_with_mismatched_types_raises(self):
        for expression in (
            "s > 1", "b = 5", "big = 5", "big > 5L", "s = 1.5", "a = 5 AND s > 1",
            "s > 1 OR a = 5", "NOT (s > 1)", "x > s", "TRUE = t",
            "x BETWEEN 1 AND 2", "a < s", "-(TRUE = t) = 1",
        ):  # fmt: skip
            self.assertRaises(ValueError, evaluate, expression)

    def test_decided_and_or_hides_later_error(self):
        self.assertIs(evaluate("a = 5 OR s > 1"), True)
        self.assertIs(evaluate("a = 6 AND s > 1"), False)

    def test_words_after_complete_expression_are_ignored(self):
        for expression in ("a = 5 b = 3", "a = 5 )", "a = 5 TRUE ;", "a = 5 IS NULL > 2", "a = 005"):
            Selector(expression)
        self.assertIs(evaluate("a = 5 nonsense ;"), True)
        self.assertIs(evaluate("a = 005"), False)  # a = 0

    def test_selector_end_is_position_after_expression(self):
        for read, rest in (
            ("a = 5 ", "b = 3"), ("a ", "LIKE '5%'"), ("a = 5 AND x ", "LIKE 'x%' ;"), ("a ", "+ 1 > 2"),
            ("a = 5 /* ( */ ", ") "), ("a = 0", "05"), ("a = 5 -- b\n", ""), ("a = 'ž' ", "b"),
        ):  # fmt: skip
            self.assertEqual(Selector(read + rest).end, len(read), read)
        self.assertRaises(SelectorError, Selector, "a * 2 > 2")

    def test_long_rows_of_alternatives(self):
        self.assertIs(evaluate(" OR ".join(["a = 1"] * 3000)), False)
        self.assertIs(evaluate(" AND ".join(["a = 5"] * 3000)), True)


class MatchesTests(SynchronousTestCase):
    def test_only_true_matches(self):
        for expression, wanted in (("a = 5", True), ("a = 6", False), ("nope = 1", False), ("s > 1", False)):
            self.assertIs(Selector(expression).matches(b"a\x015\x02s\x01x\x02"), wanted, expression)

    def test_property_strings(self):
        for properties, wanted in (
            (b"", None), (b"a\x015", "5"), (b"aa\x016\x02a\x015\x02", "5"), (b"a\x011\x02a\x015", "5"), (b"a\x01\x02", None),
            (b"a\x015\x02a\x01\x02", "5"), (b"b\x01a\x015", None), ("a\x01žluť\x02".encode(), "žluť"), (b"a", None),
        ):  # fmt: skip
            for value in ("5", "žluť"):
                self.assertIs(Selector(f"a = '{value}'").matches(properties), value == wanted, properties)

    def test_dollars_are_names(self):
        self.assertTrue(Selector("$a$ = 5").matches(b"$a$\x015"))

    def test_without_properties(self):
        self.assertTrue(Selector("TRUE").matches(b""))
        self.assertTrue(Selector("a IS NULL").matches(b"\xff\xfe"))


class RefusalTests(SynchronousTestCase):
    def test_malformed_expressions_are_refused(self):
        for expression in (
            "", " ", "a =", "= 5", "a = 5 AND", "a = 5 ;", "a == 5", "a ! 5", "(a = 5", "a IN ()", "a IN (5)", "a IN 'x'",
            "a BETWEEN 1", "a BETWEEN 1 AND", "a NOT 5", "a NOT", "a IS", "a IS 5", "a = 'x", "a = \"x\"",
            "5", "'x'", "-a", "a AND 5", "NOT 5", "NOT -a", "a = NULL", "NULL <> a", "a > 'x'", "a > TRUE", "a > NULL",
            "a > (b = 5)", "NOT a > 5", "TRUE = 5", "TRUE = 'x'", "5 IN ('x')", "-a IN ('x')", "NOT a IN ('x')",
            "a BETWEEN 5 AND 1", "a BETWEEN 'a' AND 'b'", "a BETWEEN NULL AND 5", "a BETWEEN 2.5 AND 2", "é = 5",
            "a = 9223372036854775808", "a = 0.0", "a = 1e999", "a = 99999999999999999999999", "-- a = 5\n", "/* a = 5",
            "AND", "a = +",
        ):  # fmt: skip
            self.assertRaises(SelectorError, Selector, expression)

    def test_descending_between_of_non_constants_is_accepted(self):
        for expression in ("a BETWEEN -1 AND -5", "a NOT BETWEEN 5 AND 1", "a BETWEEN b AND 1", "a BETWEEN 5 AND 5.0"):
            Selector(expression)

    def test_selector_error_has_position_and_reason(self):
        for expression, text in (
            ("a = 5 AND\n  b ! 3", "'!' in line 2, column 5 is not expected there"),
            ("a = 5 AND = 3", "= in line 1, column 11 does not fit there"),
            ("a = 5 AND", "the expression ends too early, after AND"),
            ("", "the expression is empty"),
            ("a > 'x'", "'x' cannot be compared with < or >; only numbers can"),
            ("a BETWEEN 5 AND 1", "BETWEEN 5 AND 1 is empty: the lesser value comes first"),
            (f"a IN '{'x' * 100}'", f"'{'x' * 39}... in line 1, column 6 does not fit there"),
        ):
            error = self.assertRaises(SelectorError, Selector, expression)
            self.assertEqual(str(error), text)

    def test_expression_depth_and_length_are_limited(self):
        nested = "NOT (" * (MAX_DEPTH - 3) + "a = 5" + ")" * (MAX_DEPTH - 3)
        self.assertIsNotNone(evaluate(nested))
        self.assertRaises(SelectorError, Selector, "NOT (" * MAX_DEPTH + "a = 5" + ")" * MAX_DEPTH)
        self.assertIs(evaluate("(" * 900 + "a = 5" + ")" * 900), True)
        for prefix in ("(", "- ", "NOT ", "a = ("):
            self.assertRaises(SelectorError, Selector, prefix * 1001 + "a")
        self.assertRaises(SelectorError, Selector, "a = 5" + " " * MAX_LENGTH)

    def test_compiled_filters_are_cached(self):
        self.assertIs(compile_selector("SQL92", "a = 5"), compile_selector("SQL92", "a = 5"))
        for kind in ("TAG", "SQL93", ""):
            self.assertRaises(SelectorError, compile_selector, kind, "a = 5")
