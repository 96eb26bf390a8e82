"""Index entries of a group of messages: keys, hashes, skipped messages."""

from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.java_hash import PrefixedHasher, java_string_hash
from rocketd.store.format.message import DispatchRequest
from rocketd.store.index.entries import index_entries, index_key_hash


def request(offset, *keys, topic="T", sys_flag=0):
    return DispatchRequest(topic, 0, offset, 100, 0, 1000 + offset, 0, keys, sys_flag, 0, b"")


class IndexEntriesTests(SynchronousTestCase):
    def entries(self, *requests, indexed_to=0):
        return index_entries(requests, indexed_to, PrefixedHasher())

    def test_entries_have_java_hash_of_each_key(self):
        topics = ["T", "T", "Other", "T"]
        keys = [("7F0000010000000000000001", "b"), (), ("k",), ("", "\N{GRINNING FACE}", "\ud800x")]
        found = self.entries(*[request(n, *keys[n], topic=topics[n]) for n in range(4)])
        expected = [(abs(java_string_hash(f"{topics[n]}#{key}")), n, 1000 + n) for n in range(4) for key in keys[n]]
        self.assertEqual(found, expected)
        self.assertEqual({type(number) for entry in found for number in entry}, {int})

    def test_index_key_hash_of_lowest_int_is_zero(self):
        self.assertEqual([index_key_hash(n) for n in (0, 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1)],
                         [0, 1, 2**31 - 1, 0, 2**31 - 1, 1])  # fmt: skip

    def test_entries_skip_indexed_and_rolled_back_messages(self):
        requests = [request(offset, "k") for offset in (10, 20, 20, 15, 30)]
        requests.insert(3, request(25, "k", sys_flag=0xC))
        found = self.entries(*requests, indexed_to=20)
        self.assertEqual([offset for _, offset, _ in found], [20, 20, 30])
