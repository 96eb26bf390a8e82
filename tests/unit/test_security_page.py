"""The page of security: the tests, settings and figures that it names exist."""

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.settings import BrokerSettings
from rocketd.namesrv.settings import NamesrvSettings
from tests.unit.test_features_page import names_in

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "security.md").read_text()
SETTINGS = {*BrokerSettings.by_name(), *NamesrvSettings.by_name()}
NO_SETTINGS = {"adminWritesRefused", "brokerStatus", "haRefused"}


class SecurityPageTests(SynchronousTestCase):
    def test_tests_that_are_named_exist(self):
        named = re.findall(r"`(tests/[^`]+)`", TEXT)
        self.assertGreater(len(named), 30)
        for entry in named:
            path, _, name = entry.partition("::")
            self.assertIn(name, names_in(ROOT / path), entry)

    def test_each_defence_names_a_test(self):
        rows = [line for line in TEXT.splitlines() if line.startswith("| ") and line.count(" | ") == 2]
        attacks = rows[rows.index("| attack | defence | shown by |") :]
        self.assertGreater(len(attacks), 20)
        for row in attacks:
            if not row.startswith(("| attack |", "| --- |")):
                self.assertIn("`tests/", row)

    def test_settings_that_are_named_exist(self):
        named = set(re.findall(r"`([a-z]+[A-Z]\w*|tls\.[\w.]+)(?:=[^`]*)?`", TEXT)) - NO_SETTINGS
        self.assertGreater(len(named), 20)
        self.assertEqual(named - SETTINGS, set())
