"""What is indexed of a group of messages: keys, hashes, what is passed over."""

from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.java_hash import PrefixedHasher, java_string_hash
from rocketd.store.index_entries import index_entries, index_key_hash
from rocketd.store.message import DispatchRequest


def request(offset, *keys, topic="T", sys_flag=0):
    return DispatchRequest(topic, 0, offset, 100, 0, 1000 + offset, 0, keys, sys_flag, 0, b"")


class IndexEntriesTests(SynchronousTestCase):
    def entries(self, *requests, indexed_to=0):
        return index_entries(requests, indexed_to, PrefixedHasher())

    def test_an_entry_for_each_key_by_the_hash_java_has(self):
        topics = ["T", "T", "Other", "T"]
        keys = [("7F0000010000000000000001", "b"), (), ("k",), ("", "\N{GRINNING FACE}", "\ud800x")]
        found = self.entries(*[request(n, *keys[n], topic=topics[n]) for n in range(4)])
        expected = [(abs(java_string_hash(f"{topics[n]}#{key}")), n, 1000 + n) for n in range(4) for key in keys[n]]
        self.assertEqual(found, expected)
        self.assertEqual({type(number) for entry in found for number in entry}, {int})

    def test_the_hash_without_an_absolute_value(self):
        self.assertEqual([index_key_hash(n) for n in (0, 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1)],
                         [0, 1, 2**31 - 1, 0, 2**31 - 1, 1])  # fmt: skip

    def test_what_was_put_and_what_was_rolled_back_is_passed_over(self):
        requests = [request(offset, "k") for offset in (10, 20, 20, 15, 30)]
        requests.insert(3, request(25, "k", sys_flag=0xC))
        found = self.entries(*requests, indexed_to=20)
        self.assertEqual([offset for _, offset, _ in found], [20, 20, 30])
