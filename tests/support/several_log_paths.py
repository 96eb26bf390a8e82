"""A test case for stores whose commit log is in several directories."""

import os
import time

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.format.message import GetStatus
from rocketd.store.format.record import decode_messages
from rocketd.store.message_store import MessageStore
from rocketd.store.testing import STORE_HOST, FaultyFileSystem, make_message, small_config

FILE = 4096
COUNT = 60


class MultiPathTestCase(SynchronousTestCase):
    def setUp(self):
        base = os.path.abspath(self.mktemp())
        self.root = os.path.join(base, "store")
        self.first, self.second, self.old = (os.path.join(base, name) for name in ("c1", "c2", "old"))
        self.settings = {"store_path_commit_log": f"{self.second},{self.first}"}
        self.fs = FaultyFileSystem()
        self.now = 1_700_000_000.0

    def open(self, **changes):
        settings = self.settings | changes
        store = MessageStore(small_config(self.root, **settings), STORE_HOST, fs=self.fs, clock=lambda: self.now)
        store.start()
        self.addCleanup(store.stop)
        return store

    def fill(self, store=None, count=COUNT):
        own = store is None
        store = store or self.open()
        begin = store.get_max_offset("TopicTest", 0)
        for number in range(begin, begin + count):
            self.now += 1
            store.put_messages([make_message(b"%d" % number * 100, key=f"k{number}")])
        self.settle(store)
        if own:
            store.stop()
        return store

    def settle(self, store):
        """Return once all stored messages can be read."""
        while store.dispatch_behind_bytes():
            time.sleep(0.001)

    def bodies(self, store):
        found = []
        offset = store.get_min_offset("TopicTest", 0)
        while (result := store.get_messages("TopicTest", 0, offset, 32, None)).status is GetStatus.FOUND:
            for view in result.buffers:
                found += [message.body for message in decode_messages(view, check_crc=False)]
            offset = result.next_begin_offset
        return found

    def files(self):
        """Number of each log file, by its directory."""
        return {
            directory: sorted(int(name) // FILE for name in os.listdir(directory))
            for directory in (self.first, self.second, self.old)
            if os.path.isdir(directory)
        }

    def path(self, directory, number):
        return os.path.join(directory, f"{number * FILE:020d}")

    def expected(self, count=COUNT):
        return [b"%d" % number * 100 for number in range(count)]
