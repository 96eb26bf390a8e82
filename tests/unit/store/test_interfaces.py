"""The store's interface, and the base of stores that wrap another one."""

from types import SimpleNamespace

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyClass

from rocketd.store.interfaces import IMessageStore, StoreWrapper
from rocketd.store.message_store import MessageStore


class Doubled(StoreWrapper):
    def get_max_offset(self, topic, queue_id):
        return 2 * self.inner.get_max_offset(topic, queue_id)


class StoreTests(SynchronousTestCase):
    def test_store_provides_its_interface(self):
        self.assertTrue(verifyClass(IMessageStore, MessageStore))

    def test_wrapper_overrides_and_passes_on(self):
        inner = SimpleNamespace(get_max_offset=lambda topic, queue_id: 21, messages_put=5, put_listener=None)
        store = Doubled(inner)
        self.assertEqual((store.get_max_offset("T", 0), store.messages_put), (42, 5))
        store.put_listener = "listener"
        store.own = "own"
        self.assertEqual(inner.put_listener, "listener")
        self.assertFalse(hasattr(inner, "own"))
        self.assertEqual(store.own, "own")
        self.assertTrue(IMessageStore.providedBy(store))
