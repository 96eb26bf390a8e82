"""A test case for reading from a message store."""

import os
import threading

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.base.errors import RecordSoughtError
from rocketd.store.format.record import decode_messages
from rocketd.store.message_store import MessageStore
from rocketd.store.testing import STORE_HOST, FaultyFileSystem, small_config

MEMORY = 1_000_000


def search_for(store, topic, offset, reads):
    """Let the first reads of a queue offset by `message_of` find that the log is still searched for its record.

    Return a list with an item for each such read.
    """
    done = []
    message_of = store.message_of

    def found(*place):
        if place[0] == topic and place[2] == offset and len(done) < reads:
            done.append(place)
            raise RecordSoughtError(topic, place[1], offset, 0, 100)
        return message_of(*place)

    store.message_of = found
    return done


class Filter:
    def __init__(self, tags_codes=None, matches=None):
        self.tags_codes = None if tags_codes is None else frozenset(tags_codes)
        self.matches_unit = None
        self.matches = matches


class ReaderTestCase(SynchronousTestCase):
    def setUp(self):
        self.start()

    def start(self, memory=MEMORY, **changes):
        self.now = 1_700_000_000.0
        self.root = os.path.abspath(self.mktemp())
        changes = {"mapped_file_size_commit_log": 65536, **changes}
        self.store = MessageStore(
            small_config(self.root, **changes),
            STORE_HOST,
            fs=FaultyFileSystem(),
            clock=lambda: self.now,
            physical_memory=memory,
        )
        self.store.start()
        self.addCleanup(self.store.stop)

    def put(self, *messages):
        results = self.store.put_messages(messages)
        done = threading.Event()
        self.store._reput.call(done.set)
        self.assertTrue(done.wait(60))
        return results

    def get(self, offset=0, max_messages=32, message_filter=None, queue_id=0):
        return self.store.get_messages("TopicTest", queue_id, offset, max_messages, message_filter)

    def bodies(self, result):
        return [message.body for view in result.buffers for message in decode_messages(view)]
