"""Test doubles of the store: a disk with faults on demand, and small stores.

`FaultyFileSystem` keeps its files in a real directory. It can fail a call, tear a write or block. It can simulate a
power cut: everything not synced is lost.
"""

import os
import threading
from collections import Counter
from pathlib import Path
from uuid import uuid4

from rocketd.common.java_hash import java_string_hash
from rocketd.common.message_properties import encode_properties
from rocketd.store.base.filesystem import DiskUsage, RealFileSystem
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.format.message import MessageInner

BORN_HOST = bytes((1, 2, 3, 4)) + (1000).to_bytes(4, "big")
STORE_HOST = bytes((5, 6, 7, 8)) + (10911).to_bytes(4, "big")


class FaultyFileSystem(RealFileSystem):
    """A disk whose next calls can be made to fail. `calls` counts the calls by name.

    Like the real one, it may be used by several threads. Its tables of files and calls are guarded.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.usage: DiskUsage | None = None
        self._faults: dict[str, list[tuple[range, OSError]]] = {}
        self._tears: list[tuple[int, int]] = []
        self._gates: dict[str, threading.Event] = {}
        self._crashed = False
        self._run = uuid4()
        self._paths: dict[int, str] = {}
        self._opened: set[str] = set()
        self._synced: dict[str, bytes] = {}
        self._names_not_synced: set[str] = set()

    def fail(self, name: str, error: OSError, nth: int = 1, times: int = 1) -> None:
        """Make the nth call of a method from now on raise an error, `times` calls in all."""
        first = self.calls[name] + nth
        self._faults.setdefault(name, []).append((range(first, first + times), error))

    def tear_write(self, keep: int, nth: int = 1) -> None:
        """Make the nth write from now on keep only its first bytes, and crash the machine."""
        self._tears.append((self.calls["pwrite"] + nth, keep))

    def block(self, name: str) -> threading.Event:
        """Make calls of a method wait until the returned event is set."""
        gate = self._gates[name] = threading.Event()
        return gate

    def crash(self) -> None:
        """Fail every call from now on."""
        self._crashed = True

    def identity(self, path: str) -> str:
        """Like the real one, but every instance has another boot id."""
        return f"{super().identity(path)} {self._run}"

    def lose_unsynced(self) -> None:
        """Drop everything not synced: bytes since the last sync, and files whose name was not synced.

        Call it when the files are no longer in use.
        """
        self._run = uuid4()
        for path in self._opened:
            if not os.path.exists(path):
                continue
            if path in self._names_not_synced:
                os.unlink(path)
                continue
            size = os.path.getsize(path)
            Path(path).write_bytes(self._synced.get(path, b"").ljust(size, b"\0"))

    def _enter(self, name: str) -> None:
        gate = self._gates.get(name)
        if gate is not None:
            gate.wait()
        with self._guard:
            self.calls[name] += 1
            call = self.calls[name]
        if self._crashed:
            raise OSError("the machine has crashed")
        for calls, error in self._faults.get(name, ()):
            if call in calls:
                raise error

    def open(self, path: str, size: int | None = None) -> int:
        """Like the real one."""
        self._enter("open")
        with self._guard:
            new = not os.path.exists(path)
            fd = super().open(path, size)
            self._paths[fd] = path
            self._opened.add(path)
            if new:
                self._names_not_synced.add(path)
            elif path not in self._synced and path not in self._names_not_synced:
                # The file existed before, so its content is on disk.
                self._synced[path] = Path(path).read_bytes()
            return fd

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        """Like the real one, or torn."""
        self._enter("pwrite")
        for number, keep in self._tears:
            if number == self.calls["pwrite"]:
                super().pwrite(fd, data[:keep], offset)
                self._synced[self._paths[fd]] = Path(self._paths[fd]).read_bytes()
                self._names_not_synced.discard(self._paths[fd])
                self.crash()
                raise OSError("the machine crashed in the middle of a write")
        return super().pwrite(fd, data, offset)

    def fdatasync(self, fd: int) -> None:
        """Like the real one."""
        self._enter("fdatasync")
        super().fdatasync(fd)
        self._synced[self._paths[fd]] = Path(self._paths[fd]).read_bytes()

    def sync_dir(self, path: str) -> None:
        """Like the real one."""
        self._enter("sync_dir")
        with self._guard:
            super().sync_dir(path)
            self._names_not_synced -= {name for name in self._names_not_synced if os.path.dirname(name) == path}

    def allocate(self, fd: int, offset: int, size: int) -> None:
        """Like the real one."""
        self._enter("allocate")
        super().allocate(fd, offset, size)

    def remove(self, path: str) -> None:
        """Like the real one."""
        self._enter("remove")
        super().remove(path)

    def disk_usage(self, path: str) -> DiskUsage:
        """Return `usage`, by default a disk that is half full."""
        self._enter("disk_usage")
        return self.usage or DiskUsage(50, 50)


def small_config(directory: str, **changes: object) -> MessageStoreConfig:
    """Return the settings of a store with small files: log 4 KiB, queues 10 entries, index 100 slots and 400 entries."""
    settings: dict[str, object] = {
        "store_path_root_dir": directory,
        "mapped_file_size_commit_log": 4096,
        "mapped_file_size_consume_queue": 200,
        "max_hash_slot_num": 100,
        "max_index_num": 400,
        # Independent of the machine's disk.
        "disk_space_warning_level_ratio": 1.0,
        "disk_space_clean_forcibly_ratio": 1.0,
    }
    return MessageStoreConfig(**(settings | changes))  # type: ignore[arg-type]


def make_message(
    body: bytes = b"body",
    topic: str = "TopicTest",
    queue_id: int = 0,
    key: str = "",
    tags_code: int = 0,
    tag: str = "",
    **changes: object,
) -> MessageInner:
    """Return a message. A key becomes its UNIQ_KEY, a tag its property with the right code."""
    table = {name: value for name, value in (("UNIQ_KEY", key), ("TAGS", tag)) if value}
    fields: dict[str, object] = {
        "topic": topic,
        "queue_id": queue_id,
        "flag": 0,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_000,
        "born_host": BORN_HOST,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "body": body,
        "properties": encode_properties(table).encode(),
        "tags_code": java_string_hash(tag) if tag else tags_code,
        "index_keys": (key,) if key else (),
    }
    return MessageInner(**(fields | changes))  # type: ignore[arg-type]
