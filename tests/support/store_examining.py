"""A test case for examining and repairing stopped stores."""

import os
import shutil
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.timer.delay_levels import DelayLevels
from rocketd.common.java_hash import java_string_hash
from rocketd.store.base.errors import RecordError
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.base.findings import Severity
from rocketd.store.base.layout import FILLER_SIZE
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.format.record import decode_message
from rocketd.store.message_store import MessageStore
from rocketd.store.offline.examine import Examination
from rocketd.store.offline.repair import Repair
from rocketd.store.offline.stopped_store import FileSizes, StoppedStore
from rocketd.store.testing import STORE_HOST, make_message, small_config

LEVELS = DelayLevels(MessageStoreConfig().message_delay_level)
SIZES = FileSizes(4096, 200, 100, 400)
MESSAGES = 60


class QuickFileSystem(RealFileSystem):
    """Waits for no disk."""

    def fdatasync(self, fd):
        pass

    def sync_dir(self, path):
        pass


class Clock:
    """Goes on by 0.4 s with each look."""

    def __init__(self, now=1_700_000_000.0):
        self.now = now

    def __call__(self):
        self.now += 0.4
        return self.now


def properties(number):
    return b"UNIQ_KEY\x01u%d\x02KEYS\x01a%d b\x02TAGS\x01tag%d" % (number, number, number % 3)


def message(number, **changes):
    fields = {
        "queue_id": number % 3,
        "topic": f"T{number % 2}",
        "properties": properties(number),
        "index_keys": (f"u{number}", f"a{number}", "b"),
        "tags_code": java_string_hash(f"tag{number % 3}"),
    }
    return make_message(b"body-%d-" % number * (number % 7 + 1), **(fields | changes))


class StoreTestCase(SynchronousTestCase):
    def make(self, messages=None, clock=None):
        """Root of a stopped store of three log files, six queues of up to two files, and one index file."""
        root = os.path.abspath(self.mktemp())
        store = MessageStore(small_config(root), STORE_HOST, fs=QuickFileSystem(), clock=clock or Clock())
        store.start()
        for each in messages if messages is not None else [message(number) for number in range(MESSAGES)]:
            store.put_messages([each])
        store.stop()
        return root

    def copy(self, root):
        work = os.path.abspath(self.mktemp())
        shutil.copytree(root, work)
        return work

    def findings(self, root, sizes=None):
        return list(Examination(StoppedStore(root, sizes=sizes), LEVELS.deliver_ms).findings())

    def damage(self, root):
        return [finding for finding in self.findings(root) if finding.severity is Severity.DAMAGE]

    def repair(self, root, **options):
        repair = Repair(
            root,
            QuickFileSystem(),
            "aside",
            delay_time_of=LEVELS.deliver_ms,
            now_ms=lambda: 1_700_000_100_000,
            **options,
        )
        lines = []
        repair.carry_out(lines.append)
        return lines

    def bodies(self, root):
        """Bodies served to readers, by topic, queue id and queue offset."""
        found = {}
        store = StoppedStore(root)
        for queue in store.queues():
            queue.find_end()
            for index in range(queue.begin, queue.end):
                offset, size, _ = queue.entry(index)
                segment = store.log.find(offset)
                if segment is not None and 0 < size < FILLER_SIZE:
                    at = offset - segment.offset
                    try:
                        record = decode_message(memoryview(store.log.bytes_of(segment))[at : at + size])
                    except RecordError:
                        continue
                    found[queue.topic, queue.queue_id, index] = record.body
        return found

    def patch_file(self, path, position, data):
        with open(path, "r+b") as file:
            file.seek(position)
            file.write(data)

    def flip(self, path, position, bit=1):
        with open(path, "r+b") as file:
            file.seek(position)
            byte = file.read(1)[0]
            file.seek(position)
            file.write(bytes((byte ^ bit,)))

    def log_path(self, root, number=0):
        return os.path.join(root, "commitlog", f"{number * 4096:020d}")

    def queue_path(self, root, topic="T0", queue_id=0, number=0):
        return os.path.join(root, "consumequeue", topic, str(queue_id), f"{number * 200:020d}")

    def index_path(self, root):
        (name,) = os.listdir(os.path.join(root, "index"))
        return os.path.join(root, "index", name)

    def unclean(self, root):
        Path(root, "abort").touch()

    def records(self, root):
        """Physical offset and size of each record, as the queues have them."""
        store = StoppedStore(root)
        found = []
        for queue in store.queues():
            queue.find_end()
            found += [queue.entry(index)[:2] for index in range(queue.begin, queue.end)]
        return sorted(found)
