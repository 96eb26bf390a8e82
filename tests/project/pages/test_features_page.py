"""The page of features: every item is on it once, and done items name existing tests."""

import re

from twisted.trial.unittest import SynchronousTestCase

from tests.support.names_of_tests import names_in
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "internal" / "features.md"

# How many items each group has; they are numbered from 1 without gaps.
GROUPS = {
    "DES": 13, "COD": 34, "REM": 35, "RCL": 18, "RSV": 11, "NSR": 15, "CLI": 26, "PRO": 40, "BRK": 17, "TOP": 13,
    "SND": 11, "STO": 20, "CLG": 21, "FLU": 14, "DSP": 12, "CQU": 12, "IDX": 16, "REC": 9, "HAS": 10, "CON": 21,
    "DLT": 7, "SEC": 7, "MOD": 26, "CTR": 31,
}  # fmt: skip
TOPICS = (
    "access control", "benchmarks", "broker features", "client library", "decided otherwise", "high availability",
    "observability", "packaging", "remoting", "Spark pipeline", "store engine", "tools", "transactions",
)  # fmt: skip
ROW = re.compile(r"\| ([A-Z]{3}-\d{2}) \| (.+?) \| (\w+) \| (.*) \|")


class FeaturesPageTests(SynchronousTestCase):
    def setUp(self):
        self.text = PAGE.read_text()
        rows = [line for line in self.text.splitlines() if re.match(r"\| [A-Z]{3}-", line)]
        self.rows = []
        for row in rows:
            match = ROW.fullmatch(row)
            self.assertIsNotNone(match, row)
            self.rows.append(match.groups())

    def test_every_item_is_there_once(self):
        expected = sorted(f"{group}-{number:02}" for group, count in GROUPS.items() for number in range(1, count + 1))
        self.assertEqual(sorted(id_ for id_, *_ in self.rows), expected)

    def test_done_items_name_existing_tests(self):
        for id_, _, state, last in self.rows:
            if state == "done":
                for entry in last.split("<br>"):
                    path, _, name = entry.strip("`").partition("::")
                    self.assertIn(name, names_in(ROOT / path), f"{id_}: {entry}")

    def test_other_items_are_open_with_a_topic(self):
        for id_, _, state, last in self.rows:
            if state != "done":
                self.assertEqual(state, "open", id_)
                self.assertIn(last.partition(":")[0], TOPICS, id_)

    def test_counts(self):
        done = [id_ for id_, _, state, _ in self.rows if state == "done"]
        self.assertIn(f"\n{len(done)} of {len(self.rows)} are done.\n", self.text)
        for group, count in GROUPS.items():
            here = sum(id_.startswith(group) for id_ in done)
            self.assertRegex(self.text, rf"\n## {group}: .*\n\n{here} of {count}\.\n")
