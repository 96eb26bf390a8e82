"""White addresses: every form, the peers it matches, and malformed texts."""

from twisted.trial.unittest import SynchronousTestCase

from rocketd.acl.addresses import address_rule, canonical
from rocketd.acl.errors import AclError

MEANT = {
    "*": ["1.2.3.4", "::1"],
    "*.*.*.*": ["1.2.3.4"],
    "*:*:*:*:*:*:*:*": ["2001:db8::1"],
    "127.0.0.1": ["127.0.0.1"],
    "127.0.0.1,127.0.0.3": ["127.0.0.1", "127.0.0.3"],
    "127.0.0.{1,3}": ["127.0.0.1", "127.0.0.3"],
    "127.0.0.3-200": ["127.0.0.3", "127.0.0.200"],
    "127.0.0.*": ["127.0.0.0", "127.0.0.255"],
    "127.0.1-20.*": ["127.0.1.7", "127.0.20.255"],
    "127.0.1-20.9": ["127.0.1.7"],
    "192.100-150.*.*": ["192.130.0.2"],
    "10.*.*.*": ["10.0.0.0", "10.255.255.255"],
    "::1": ["::1", "0:0:0:0:0:0:0:1", "[::1]", "::1%lo"],
    "1050::5:600:300c:1,1050::5:600:300c:3": ["1050:0:0:0:5:600:300C:1", "1050::5:600:300c:3"],
    "1050::0005:0600:300c:{1,3}": ["1050::5:600:300c:1", "1050::5:600:300c:3"],
    "1050::0005:0600:300c:1-200": ["1050::5:600:300c:1", "1050::5:600:300c:200"],
    "1050::0005:0600:300c:*": ["1050::5:600:300c:0", "1050::5:600:300c:ffff"],
    "1050::0005:0600:300c:1-200:*": ["1050::5:600:300c:1:0", "1050::5:600:300c:200:ffff"],
    "2001:db8:*": ["2001:db8::1", "2001:db8:ffff::"],
    "fe80:*": ["fe80::1", "fe80:ffff::1"],
}
NOT_MEANT = {
    "127.0.0.1": ["127.0.0.2", "::1", "unknown", ""],
    "127.0.0.1,127.0.0.3": ["127.0.0.2"],
    "127.0.0.{1,3}": ["127.0.0.2", "127.0.0.13"],
    "127.0.0.3-200": ["127.0.0.2", "127.0.0.201", "127.0.1.3", "27.0.0.3", "::1"],
    "127.0.0.*": ["127.0.1.1", "1127.0.0.1", "::7f00:1"],
    "127.0.1-20.*": ["127.0.0.1", "127.0.21.1"],
    "10.*.*.*": ["100.0.0.1", "1.0.0.0"],
    "::1": ["::2", "127.0.0.1"],
    "1050::0005:0600:300c:1-200": ["1050::5:600:300c:201", "1050::5:600:300d:1", "10.5.0.1"],
    "1050::0005:0600:300c:*": ["1050::5:600:300d:1"],
    "1050::0005:0600:300c:1-200:*": ["1050::5:600:300c:201:0", "1050::5:600:300c:0:1"],
    "2001:db8:*": ["2001:db9::1"],
    "": ["127.0.0.1", ""],
    "  ": ["127.0.0.1"],
}
REFUSED = [
    "256.0.0.1",
    "::1ggg",
    "localhost",
    "127.0.0.1,2,3}",
    "::1,2,3}",
    "192.168.{1}",
    "{192.168.1}",
    "{192.168.1.1}",
    "127.0.0.1,nobody",
    "127.0.0.5-4",
    "127.0.0.-4",
    "127.0.0.4-",
    "127.0.0.1-256",
    "127.0.0.0-0",
    "127.0.*",
    "*.0.0.1",
    "1-2.0.0.1",
    "300.0.0.*",
    "127.x.0.*",
    "1050:*:5",
    "1050::5:1-200:300c",
    "1050::5:1-200:*:1",
    "1050::5:1-20000",
    "::*",
    "::1-5",
    ":1-5:*",
    "1050::5:9-1",
    "1050::g:*",
    "1:2:3:4:5:6:7:8:*",
]


class AddressRuleTests(SynchronousTestCase):
    def test_address_rules_match_listed_hosts(self):
        for text, hosts in MEANT.items():
            for host in hosts:
                self.assertTrue(address_rule(text)(canonical(host)), f"{text} {host}")

    def test_address_rules_do_not_match_other_hosts(self):
        for text, hosts in NOT_MEANT.items():
            for host in hosts:
                self.assertFalse(address_rule(text)(canonical(host)), f"{text!r} {host}")

    def test_absent_address_rule_matches_no_host(self):
        self.assertFalse(address_rule(None)("127.0.0.1"))

    def test_malformed_addresses_are_refused(self):
        for text in REFUSED:
            self.assertRaises(AclError, address_rule, text)

    def test_address_error_texts_equal_apaches(self):
        for text, begin in (
            ("256.0.0.1", "Netaddress examine Exception netaddress is 256.0.0.1"),
            ("127.0.0.5-4", "Netaddress examine scope Exception netaddress is 127.0.0.5-4"),
            ("192.168.{1}", "MultipleRemoteAddressStrategy has got a/some wrong format IP(s)"),
            ("1.2.3.4,5}", "MultipleRemoteAddressStrategy netaddress examine scope Exception netaddress"),
        ):
            self.assertTrue(str(self.assertRaises(AclError, address_rule, text)).startswith(begin), text)
