"""The page of security: the tests, settings and figures that it names exist."""

import re

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base.settings import BrokerSettings
from rocketd.common.settings.declaration import settings_of
from rocketd.console.settings import ConsoleSettings
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.remoting.serving.settings import ServerLimits
from tests.support.names_of_tests import names_in
from tests.support.places import ROOT

TEXT = (ROOT / "docs" / "security.md").read_text()
SETTINGS = {*BrokerSettings.by_name(), *NamesrvSettings.by_name(), *ConsoleSettings.by_name()}
NO_SETTINGS = {"adminWritesRefused", "brokerStatus", "haRefused"}


APACHES_LIMITS = re.compile("max(DelayTime|ErrorRate|HashSlot|IndexNum|LmqConsume|MessageSize|MsgsNum|Transfer)")
"""Settings with a limit in their name that Apache's broker has as well, or that limit no peer."""


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

    def test_each_limit_says_what_the_peer_is_told(self):
        limits = {setting.name for setting in settings_of(ServerLimits)}
        limits |= {name for name in BrokerSettings.by_name() if re.match("max|haMax", name)}
        limits = {name for name in limits if not APACHES_LIMITS.match(name)}
        self.assertGreater(len(limits), 25)
        rows = [line.split(" | ") for line in TEXT.splitlines() if line.startswith("| ") and line.count(" | ") == 3]
        self.assertEqual(rows[0], ["| limit", "beyond it", "the peer is told", "Apache's server |"])
        named = {name for row in rows for name in re.findall(r"`([^`]+)`", row[0])}
        self.assertEqual(limits - named, set())
