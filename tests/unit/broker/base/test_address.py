"""The registered address: its choice, the reason, and the log line."""

import socket

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base import address
from rocketd.broker.base.address import choose_address, local_addresses, record_host


class ChoiceTests(SynchronousTestCase):
    def choose(self, *addresses):
        return choose_address(None, addresses=lambda: addresses)

    def test_configured_address_wins_and_stays_a_name(self):
        for host in ("broker.example.com", "10.0.0.1", "2001:db8::7", "localhost"):
            chosen = choose_address(host, addresses=lambda: ["10.9.9.9"])
            self.assertEqual((chosen.host, chosen.reason, chosen.warning), (host, "brokerIP1 is set", None))
        self.assertEqual(choose_address("10.0.0.1", "brokerIP2").reason, "brokerIP2 is set")

    def test_doubtful_configured_addresses_warn(self):
        for host, word in (
            ("127.0.0.1", "loopback"), ("::1", "loopback"), ("169.254.3.4", "link-local"), ("fe80::1%eth0", "link-local"),
            ("172.17.0.2", "container bridge"), ("172.18.255.1", "container bridge"),
        ):  # fmt: skip
            self.assertIn(word, choose_address(host).warning)
            self.assertIn(host, choose_address(host).warning)
        for host in ("172.19.0.1", "10.0.0.1", "192.168.1.1", "2001:db8::1"):
            self.assertIsNone(choose_address(host).warning)

    def test_most_reachable_address_is_registered(self):
        self.assertEqual(self.choose("127.0.0.1", "172.17.0.1", "10.0.0.1").host, "10.0.0.1")
        self.assertEqual(self.choose("2001:db8::1", "10.0.0.1").host, "10.0.0.1")
        self.assertEqual(self.choose("10.0.0.2", "10.0.0.1").host, "10.0.0.2")
        self.assertEqual(self.choose("fe80::1%eth0", "2001:db8::1").host, "2001:db8::1")

    def test_describe_names_address_reason_and_setting(self):
        self.assertEqual(
            self.choose("127.0.0.1", "10.0.0.1").describe(10911),
            "registered as 10.0.0.1:10911 (the most reachable address of this machine; the others are 127.0.0.1); "
            "set brokerIP1 to register another address",
        )
        self.assertIn("as [::1]:10911 (", self.choose("::1").describe(10911))
        self.assertEqual(self.choose("10.0.0.1").reason, "the only address of this machine")

    def test_machine_without_network_uses_loopback_with_warning(self):
        chosen = self.choose()
        self.assertEqual(chosen.host, "127.0.0.1")
        self.assertIn("loopback", chosen.warning)


class SystemTests(SynchronousTestCase):
    def test_local_addresses_are_unique(self):
        found = local_addresses()
        self.assertEqual(len(found), len(set(found)))
        for each in found:
            record_host(each, 1)

    def test_failing_system_calls_give_loopback(self):
        def refusing(*_, **__):
            raise OSError("no network")

        self.patch(address.socket, "socket", refusing)
        self.patch(address.socket, "getaddrinfo", refusing)
        self.assertEqual(local_addresses(), [])
        self.assertEqual(choose_address(None).host, "127.0.0.1")


class RecordHostTests(SynchronousTestCase):
    def packed(self, *arguments):
        packed, warning = record_host(*arguments)
        self.assertIsNone(warning)
        return packed

    def test_record_host_packs_ip_addresses(self):
        self.assertEqual(self.packed("10.0.0.1", 10911), b"\x0a\x00\x00\x01\x00\x00\x2a\x9f")
        self.assertEqual(self.packed("::1", 1), bytes(15) + b"\x01\0\0\0\x01")
        self.assertEqual(self.packed("fe80::1%eth0", 1)[:2], b"\xfe\x80")

    def test_names_are_resolved_ipv4_first(self):
        answers = [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", 1, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.9", 1)),
        ]
        self.patch(address.socket, "getaddrinfo", lambda *_, **__: answers)
        self.assertEqual(self.packed("broker", 1), b"\x0a\x00\x00\x09\0\0\0\x01")

    def test_unknown_name_gets_local_address_and_warning(self):
        def unknown(*_, **__):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        self.patch(address.socket, "getaddrinfo", unknown)
        packed, warning = record_host("broker", 1, addresses=lambda: ["10.0.0.8"])
        self.assertEqual(packed, b"\x0a\x00\x00\x08\0\0\0\x01")
        self.assertEqual(
            warning,
            "brokerIP1 = broker cannot be resolved here (Name or service not known): clients must know that name; "
            "records have 10.0.0.8",
        )
        self.assertEqual(record_host("broker", 1, addresses=list).packed, b"\x7f\x00\x00\x01\0\0\0\x01")

    def test_invalid_name_gets_local_address_and_warning(self):
        packed, warning = record_host("notahost..", 1, addresses=lambda: ["10.0.0.8"])
        self.assertEqual(packed, b"\x0a\x00\x00\x08\0\0\0\x01")
        self.assertIn("notahost..", warning)
