"""Damages the files of a stopped broker, its store and its tables: they open or are refused with documented errors.

Half of the stores were written by Apache's broker, half by rocketd with its tables (``config/*.json`` and their backups).
"""

import shutil
import time
import traceback
from contextlib import suppress
from pathlib import Path
from random import Random

from rocketd.broker.base.json_file import JsonFileError
from rocketd.remoting.bodies.tables import SubscriptionGroupConfig, TopicConfig
from rocketd.store.base.errors import StoreError
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.message_store import MessageStore
from rocketd.store.offline.examine import Examination
from rocketd.store.offline.stopped_store import StoppedStore
from rocketd.store.testing import make_message
from tests.support.apache_stores import unpack_store
from tests.support.broker import SmallBroker

STORE_HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
STEP_SECONDS = 60.0


class StoreFuzzer:
    """Copies of two stores, each damaged in another way. ``refused_tables`` counts those with unreadable tables."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._random = Random(seed)
        self._directory = directory
        self._whole = directory / "whole"
        unpack_store("store-killed", self._whole)
        (self._root,) = self._whole.iterdir()
        self._own = directory / "own"
        write_own_store(self._own)
        self.stores = 0
        self.refused_tables = 0

    def run(self, seconds: float) -> None:
        """Go on for so long. Raises AssertionError for any error not documented by the store."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            copy = self._directory / f"copy-{self.stores}"
            is_own = self._random.random() < 0.5
            shutil.copytree(self._own if is_own else self._root, copy)
            done = self._damage(copy)
            began = time.monotonic()
            try:
                if is_own:
                    self._open_broker(copy)
                else:
                    self._open(copy)
            except StoreError:
                pass
            except JsonFileError:
                self.refused_tables += 1
            except Exception:
                raise AssertionError(f"{done}, files in {copy}\n{traceback.format_exc()}") from None
            if time.monotonic() - began > STEP_SECONDS:
                raise AssertionError(f"{done}, files in {copy}: took longer than {STEP_SECONDS:g} s")
            shutil.rmtree(copy)
            self.stores += 1

    def _open(self, root: Path) -> None:
        with suppress(StoreError):
            self._examine(root)
        store = MessageStore(MessageStoreConfig(store_path_root_dir=str(root)), STORE_HOST)
        store.start()
        try:
            for topic, queue_id in store.queue_keys():
                offset = store.get_min_offset(topic, queue_id)
                store.get_messages(topic, queue_id, offset, 32, None)
        finally:
            store.stop()

    def _open_broker(self, root: Path) -> None:
        with suppress(StoreError):
            self._examine(root)
        broker = SmallBroker(str(root))
        try:
            broker.last_subscriptions.load()
            broker.start()
            for topic, queue_id in broker.store.queue_keys():
                broker.store.get_messages(topic, queue_id, broker.store.get_min_offset(topic, queue_id), 32, None)
            broker.stop()
        finally:
            broker.store.stop()

    def _examine(self, root: Path) -> None:
        for _ in Examination(StoppedStore(str(root))).findings():
            pass

    def _damage(self, root: Path) -> str:
        """Damage a file or two and return a description."""
        random = self._random
        done = []
        files = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size)
        tables = [path for path in files if path.parent.name == "config"]
        for _ in range(random.randrange(1, 4)):
            path = random.choice(tables if tables and random.random() < 0.5 else files)
            size = path.stat().st_size
            # An earlier step may have cut the file to nothing.
            position = self._position(path, max(size, 1))
            kind = random.randrange(5)
            with path.open("r+b") as file:
                if kind == 0:
                    file.truncate(position)
                elif kind == 1:
                    file.seek(position)
                    file.write(bytes(random.randrange(1, 5000)))
                elif kind == 2:
                    file.seek(position)
                    file.write(random.randbytes(random.randrange(1, 200)))
                else:
                    file.seek(position)
                    old = file.read(1) or b"\x00"
                    file.seek(position)
                    file.write(bytes((old[0] ^ 1 << random.randrange(8),)))
            done.append(f"{path.relative_to(root)}: {('cut', 'zeros', 'noise', 'bit', 'bit')[kind]} at {position}")
        return "; ".join(done)

    def _position(self, path: Path, size: int) -> int:
        """Return a position in a file, most often within its data, as most files are holes."""
        if self._random.random() < 0.2:
            return self._random.randrange(size)
        return self._random.randrange(min(size, 60_000))


def write_own_store(root: Path) -> None:
    """Have a broker of rocketd write messages and all tables, twice, so that the tables have backups."""
    broker = SmallBroker(str(root))
    broker.start()
    for number in range(2):
        broker.topics.update(TopicConfig(f"T{number}", 2, 2))
        broker.groups.update(SubscriptionGroupConfig(f"G{number}"))
        broker.offsets.commit("client", f"G{number}", f"T{number}", 0, number)
        broker.store.put_messages([make_message(b"x" * 100, topic=f"T{number}") for _ in range(20)])
        broker.settle()
        for table in (broker.topics, broker.groups, broker.offsets, broker.schedule, broker.filters):
            table.persist()
    broker.stop()
