"""The page of security: the tests, settings and figures that it names exist."""

import re

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base.settings import BrokerSettings
from rocketd.console.settings import ConsoleSettings
from rocketd.namesrv.settings import NamesrvSettings
from tests.support.names_of_tests import names_in
from tests.support.places import ROOT

TEXT = (ROOT / "docs" / "security.md").read_text()
SETTINGS = {*BrokerSettings.by_name(), *NamesrvSettings.by_name(), *ConsoleSettings.by_name()}
NO_SETTINGS = {"adminWritesRefused", "brokerStatus", "haRefused"}


class SecurityPageTests(SynchronousTestCase):
    def test_named_tests_exist(self):
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

    def test_named_settings_exist(self):
        named = set(re.findall(r"`([a-z]+[A-Z]\w*|tls\.[\w.]+)(?:=[^`]*)?`", TEXT)) - NO_SETTINGS
        self.assertGreater(len(named), 20)
        self.assertEqual(named - SETTINGS, set())
