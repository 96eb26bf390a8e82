"""Keeps a group's offsets in a file of this client.

Counterpart: `LocalFileOffsetStore` (Apache). The file is the same, so a consumer may change between the clients. Unlike
Apache, new content is on the disk before it replaces the file, an unreadable file is an error, not an empty table, and the
offset of a queue stays in the file while the queue is absent.
"""

import os
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol, TypeVar

from twisted.internet.defer import DeferredLock
from twisted.logger import Logger

from rocketd.client.consumer.offsets.offset_store import NO_OFFSET, OffsetStore, OffsetTable, ReadOffsetType
from rocketd.client.errors import RocketMQError
from rocketd.remoting.bodies.tables import BroadcastOffsetSerializeWrapper, MessageQueue
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.store.base.filesystem import IFileSystem, RealFileSystem
from rocketd.store.base.small_file import replace_file

DEFAULT_DIRECTORY: Final = os.path.join("~", ".rocketmq_offsets")
"""Default directory of all clients' files (Apache's ``rocketmq.client.localOffsetStoreDir``)."""

T = TypeVar("T")


class DeferToThread(Protocol):
    """Runs a blocking function in a thread, and returns its result or error to the reactor thread."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]:
        """Run the function."""
        ...


class OffsetFileError(RocketMQError):
    """An unreadable offset file. The text names it."""


def offsets_path(client_id: str, group: str, directory: str | os.PathLike[str] = DEFAULT_DIRECTORY) -> str:
    """Return the path of a group's offset file. ``~`` is the user's home."""
    return os.path.join(os.path.expanduser(directory), client_id, group, "offsets.json")


class LocalFileOffsetStore(OffsetTable, OffsetStore):
    """The offsets of one group in the broadcasting model.

    All methods belong to the reactor thread. Only functions passed to ``defer_to_thread`` touch the file, one at a time.
    """

    log = Logger()

    def __init__(self, path: str, defer_to_thread: DeferToThread, file_system: IFileSystem | None = None) -> None:
        super().__init__()
        self.path = path
        self._defer_to_thread = defer_to_thread
        self._file_system = file_system or RealFileSystem()
        self._lock = DeferredLock()
        self._written: dict[MessageQueue, int] | None = None
        self._damaged = False

    async def load(self) -> None:
        """Read the file, or its ``.bak`` with a log line if the file is missing or damaged. Without both, do nothing.

        Raises OffsetFileError if a file exists but none is readable.
        """
        self._offsets.update(await self._read())

    async def read(self, queue: MessageQueue, source: ReadOffsetType) -> int:
        """See OffsetStore. Raises OffsetFileError."""
        if source is not ReadOffsetType.READ_FROM_STORE and queue in self._offsets:
            return self._offsets[queue]
        if source is ReadOffsetType.READ_FROM_MEMORY:
            return NO_OFFSET
        offset = (await self._read()).get(queue)
        if offset is None:
            return (
                self._offsets.get(queue, NO_OFFSET) if source is ReadOffsetType.MEMORY_FIRST_THEN_STORE else NO_OFFSET
            )
        if source is ReadOffsetType.READ_FROM_STORE:
            self._offsets[queue] = offset
            return offset
        return self._offsets.setdefault(queue, offset)

    async def persist_all(self, queues: Iterable[MessageQueue], *, oneway: bool = True) -> list[MessageQueue]:
        """See OffsetStore. Writes one file and returns when it is on the disk, even with ``oneway``.

        The file always has all remembered offsets, also of other queues: they may be absent for a while, as their broker.
        Unchanged offsets are not written.
        """
        await self._lock.acquire()
        try:
            offsets = dict(sorted(self._offsets.items()))
            if not offsets or offsets == self._written:
                return []
            damaged = self._damaged
            await self._defer_to_thread(lambda: self._write_file(offsets, keep_old=not damaged))
            self._written = offsets
            self._damaged = False
        except OSError as error:
            self.log.error("offsets were not stored in {path}: {error}", path=self.path, error=error)
            return sorted(set(queues) & offsets.keys())
        finally:
            self._lock.release()
        return []

    async def persist(self, queue: MessageQueue, *, oneway: bool = True) -> bool:
        """Do nothing: ``persist_all`` writes the one file."""
        return True

    def remove(self, queue: MessageQueue) -> None:
        """Do nothing: the offset belongs to this client alone, and stays valid if the queue comes back."""

    def forget_deleted(self, queue: MessageQueue) -> None:
        """See OffsetStore. A topic that is recreated is consumed from its first message."""
        self._offsets[queue] = 0

    async def update_to_broker(self, queue: MessageQueue, offset: int, *, oneway: bool = True) -> None:
        """Do nothing: brokers do not keep these offsets."""

    async def _read(self) -> dict[MessageQueue, int]:
        await self._lock.acquire()
        try:
            path, offsets, faults = await self._defer_to_thread(self._read_files)
        finally:
            self._lock.release()
        if path is None and faults:
            raise OffsetFileError(
                f"cannot read offsets from {' nor '.join(faults)}: put a good copy there, or move what is there away to "
                "start without"
            )
        self._damaged = bool(faults)
        if path is not None and path != self.path:
            self.log.warn(
                "{path} is {state}: using {backup}, the version before it",
                path=self.path,
                state="damaged" if faults else "missing",
                backup=path,
            )
        return offsets

    # ------------------------------------------------------------ in the thread; attributes are not changed there

    def _read_files(self) -> tuple[str | None, dict[MessageQueue, int], list[str]]:
        """Return the path of the file read, its offsets, and the faults of files tried before."""
        faults: list[str] = []
        for path in (self.path, self.path + ".bak"):
            try:
                data = self._file_system.read_file(path)
                if not data.strip():
                    raise fastjson.FastJSONError("it is empty")
                return path, fastjson.decode(data, BroadcastOffsetSerializeWrapper).offset_table, faults
            except FileNotFoundError:
                continue
            except (OSError, fastjson.FastJSONError) as error:
                faults.append(f"{path} ({error})")
        return None, {}, faults

    def _write_file(self, offsets: dict[MessageQueue, int], *, keep_old: bool) -> None:
        data = fastjson.dumps_pretty(BroadcastOffsetSerializeWrapper(offset_table=offsets))
        replace_file(self._file_system, self.path, data, keep_old=keep_old)
