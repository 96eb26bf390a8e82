"""Addresses of brokers by the network of the requester."""

import json

from twisted.trial.unittest import SynchronousTestCase

from rocketd.namesrv.address_rules import _MAX_KNOWN, AddressRules, are_address_rules
from tests.unit.namesrv.test_routes import RoutesTest

BROKER = "10.0.0.1:10911"
RULES = (
    f"10.0.0.0/8 {BROKER}=10.9.9.9:1; private {BROKER}=lan.example:2 10.0.0.2:10911=lan.example:3 ; "
    f"any {BROKER}=[2001:db8::1]:4"
)


class RulesTests(SynchronousTestCase):
    def told(self, asker, address=BROKER, text=RULES):
        view = AddressRules(text).view_of(asker)
        return None if view is None else view.told(address)

    def test_first_rule_with_network_and_address_counts(self):
        self.assertEqual(self.told("10.1.1.1:5"), "10.9.9.9:1")
        self.assertEqual(self.told("10.1.1.1:5", "10.0.0.2:10911"), "lan.example:3")
        self.assertEqual(self.told("192.168.0.4:5"), "lan.example:2")
        self.assertEqual(self.told("203.0.113.5:5"), "[2001:db8::1]:4")
        self.assertEqual(self.told("[2001:db8::7]:5"), "[2001:db8::1]:4")
        self.assertEqual(self.told("[::ffff:10.1.1.1]:5"), "10.9.9.9:1")

    def test_other_addresses_and_askers_get_registered_ones(self):
        self.assertEqual(self.told("203.0.113.5:5", "10.0.0.2:10911"), "10.0.0.2:10911")
        self.assertIsNone(self.told("203.0.113.5:5", text=f"private {BROKER}=a:1"))
        self.assertIsNone(self.told("203.0.113.5:5", text=""))

    def test_hosts_of_the_same_networks_share_a_view(self):
        rules = AddressRules(RULES)
        first = rules.view_of("203.0.113.5:5")
        for number in range(_MAX_KNOWN + 10):
            self.assertIs(rules.view_of(f"203.0.{number >> 8}.{number & 255}:5"), first)
        self.assertLessEqual(len(rules._known), _MAX_KNOWN)

    def test_texts_that_are_not_rules_are_refused(self):
        for text in ("any", "any a:1", "any a:1=b", "any a=b:1", "nowhere a:1=b:1", "any a:1=b:0", f"{BROKER}=a:1"):
            self.assertFalse(are_address_rules(text), text)
        for text in ("", ";", RULES):
            self.assertTrue(are_address_rules(text), text)


class AnswersByNetworkTests(RoutesTest):
    def addresses(self, asker):
        answer = self.answers.get("T", True, asker=asker)
        return json.loads(answer.body)["brokerDatas"][0]["brokerAddrs"]["0"]

    def test_route_has_the_address_for_the_asker(self):
        self.assertEqual(self.addresses("203.0.113.5:5"), BROKER)
        self.config.addresses_by_network = f"10.0.0.0/8 {BROKER}=10.9.9.9:1"
        self.assertEqual(self.addresses("10.1.1.1:5"), "10.9.9.9:1")
        self.assertEqual(self.addresses("203.0.113.5:5"), BROKER)
        self.config.addresses_by_network = f"any {BROKER}=a:1"
        self.assertEqual(self.addresses("10.1.1.1:5"), "a:1")
