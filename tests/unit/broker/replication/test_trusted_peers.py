"""Trust in hosts: listed, of this machine, with a certificate, reached at a configured address; and names."""

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.replication import trusted_peers
from rocketd.broker.replication.trusted_peers import TrustedPeers
from rocketd.store.base.settings import MessageStoreConfig


class ThreadlessReactor(Clock):
    """Runs the calls for threads at once."""

    def getThreadPool(self):
        return self

    def callInThreadWithCallback(self, on_result, function, *arguments):
        on_result(True, function(*arguments))

    def callFromThread(self, function, *arguments):
        function(*arguments)


class TrustedPeersTests(SynchronousTestCase):
    def setUp(self):
        self.config = MessageStoreConfig()
        self.peers = TrustedPeers(self.config, ThreadlessReactor())
        self.patch(trusted_peers, "local_addresses", lambda: ["10.0.0.1", "2001:db8::1"])

    def trusted(self, *addresses):
        """Return the addresses to use instead of the trusted ones."""
        return [*self.mapped(*addresses).values()]

    def mapped(self, *addresses):
        return self.successResultOf(Deferred.fromCoroutine(self.peers.trusted(addresses)))

    def test_default_trusts_this_machine_alone(self):
        addresses = ["10.0.0.1:10911", "10.0.0.9:10911", "[2001:db8::1]:1", "127.0.0.1:2", "[::1]:3"]
        self.assertEqual(self.trusted(*addresses), [addresses[0], *addresses[2:]])

    def test_list_without_loopback_does_not_trust_this_machine(self):
        self.config.ha_allowed_addresses = "10.0.0.9"
        self.assertEqual(self.trusted("10.0.0.1:1", "127.0.0.1:1", "10.0.0.9:1"), ["10.0.0.9:1"])

    def test_proved_host_is_trusted_in_every_form(self):
        self.peers.prove("::ffff:10.0.0.9")
        self.assertTrue(self.peers.trusts("10.0.0.9"))
        self.assertEqual(self.trusted("10.0.0.9:1", "10.0.0.8:1"), ["10.0.0.9:1"])

    def test_proof_of_a_name_trusts_no_host(self):
        self.peers.prove("a.name")
        self.assertFalse(self.peers.trusts("a.name"))
        self.assertFalse(self.peers.trusts("other.name"))

    def test_name_is_replaced_by_its_trusted_address(self):
        found = self.mapped("localhost:20911", "127.0.0.2:1")
        self.assertEqual(found, {"localhost:20911": "127.0.0.1:20911", "127.0.0.2:1": "127.0.0.2:1"})
        self.config.ha_allowed_addresses = "10.0.0.9"
        self.assertEqual(self.trusted("localhost:20911", "no.such.host.invalid:1", "10.0.0.9:1"), ["10.0.0.9:1"])

    def test_nonsense_is_not_trusted(self):
        self.config.ha_allowed_addresses = "any"
        self.assertEqual(self.trusted("nonsense", "10.0.0.9:0", ":1", "10.0.0.9:1"), ["10.0.0.9:1"])
