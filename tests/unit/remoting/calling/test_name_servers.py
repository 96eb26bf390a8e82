"""The list of name servers."""

from random import Random

from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting.calling.name_servers import NameServers

ADDRESSES = ["a:9876", "b:9876", "c:9876"]


class NameServersTests(SynchronousTestCase):
    def test_first_choice_is_random_and_rotation_reaches_all(self):
        firsts = set()
        for seed in range(30):
            servers = NameServers(Random(seed))
            servers.update(ADDRESSES)
            chosen = [servers.choose_next() for _ in ADDRESSES]
            self.assertEqual(sorted(chosen), ADDRESSES)
            self.assertEqual(servers.chosen, chosen[-1])
            firsts.add(chosen[0])
        self.assertEqual(sorted(firsts), ADDRESSES)

    def test_update_with_same_addresses_changes_nothing(self):
        servers = NameServers(Random(1))
        self.assertTrue(servers.update(ADDRESSES))
        before = servers.addresses
        self.assertFalse(servers.update(reversed(ADDRESSES)))
        self.assertFalse(servers.update([]))
        self.assertEqual(servers.addresses, before)

    def test_chosen_server_stays_while_listed(self):
        servers = NameServers(Random(1))
        servers.update(ADDRESSES)
        chosen = servers.choose_next()
        servers.update([*ADDRESSES, "d:9876"])
        self.assertEqual(servers.chosen, chosen)
        servers.update(["d:9876"])
        self.assertIsNone(servers.chosen)
