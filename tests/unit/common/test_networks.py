"""Lists of networks: words, addresses, networks, and texts that are not lists."""

from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.networks import is_network_list, network_list


class NetworkListTests(SynchronousTestCase):
    def allowed(self, text, hosts):
        return [host for host in hosts if network_list(text).allows(host)]

    def test_private_takes_private_networks_of_both_families(self):
        inside = [
            "127.0.0.1", "127.9.9.9", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.7.7", "169.254.1.1",
            "::1", "[::1]", "fd00::7", "fe80::1", "fe80::1%eth0", "::ffff:10.0.0.1",
        ]  # fmt: skip
        outside = [
            "8.8.8.8", "172.15.255.255", "172.32.0.1", "192.167.1.1", "100.64.0.1", "203.0.113.9", "2001:db8::1",
            "::ffff:8.8.8.8", "0.0.0.0", "::", "", "localhost",
        ]  # fmt: skip
        self.assertEqual(self.allowed("private", inside + outside), inside)

    def test_loopback_takes_this_machine_only(self):
        self.assertEqual(self.allowed("loopback", ["127.0.0.1", "::1", "10.0.0.1", "fe80::1"]), ["127.0.0.1", "::1"])

    def test_any_takes_all_addresses_and_none_takes_nothing(self):
        hosts = ["127.0.0.1", "8.8.8.8", "2001:db8::1"]
        self.assertEqual(self.allowed("any", hosts), hosts)
        self.assertEqual(self.allowed("none", hosts), [])

    def test_list_takes_addresses_networks_and_words(self):
        hosts = ["127.0.0.1", "203.0.113.7", "203.0.113.8", "198.51.100.255", "2001:db8:5::1", "2001:db9::1"]
        found = self.allowed(" Loopback, 203.0.113.7 ,198.51.100.0/24,2001:db8::/32", hosts)
        self.assertEqual(found, ["127.0.0.1", "203.0.113.7", "198.51.100.255", "2001:db8:5::1"])

    def test_other_texts_are_not_lists(self):
        for text in ("", "privat", "10.0.0.5/8", "10.0.0.0/33", "10.*", "a.example", "private,", "1.2.3.4:5"):
            self.assertFalse(is_network_list(text), text)
        for text in ("any", "private", "10.0.0.0/8", "::1", "none"):
            self.assertTrue(is_network_list(text), text)
