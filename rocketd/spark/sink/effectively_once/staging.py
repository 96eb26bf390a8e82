"""Rows waiting to be sent: Arrow files of finished messages, one for each attempt of a task.

A file lies under ``STAGING/SINK/BATCH/``. Its name has the partition, the attempt, and a random part that makes it
unique. It gets this name once it is complete and on the disk. The ledger says which files count. All others are left
over from losing attempts.
"""

import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from rocketd.spark.sink.effectively_once.files import create_durably, make_folder, sync_folder
from rocketd.spark.sink.message import Outgoing
from rocketd.spark.sink.problems import SinkError

_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("body", pa.binary()),
        pa.field("properties", pa.binary()),
        pa.field("flag", pa.int32()),
        pa.field("sys_flag", pa.int32()),
        pa.field("single", pa.bool_()),
        pa.field("key", pa.string()),
        pa.field("queue_id", pa.int32()),
        pa.field("broker", pa.string()),
    ]
)
"""The fields of Outgoing in order, without the number."""

_BATCH_ROWS: Final = 4096
_BATCH_BYTES: Final = 4 * 1024 * 1024
_MARK: Final = "staging-folder"
_ABANDONED_AFTER: Final = 7 * 86400.0
"""Seconds after which a batch that was never begun counts as abandoned."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A complete staged file: its path below the sink's folder, the number of messages, and their topics."""

    name: str
    rows: int
    topics: frozenset[str]


def mark_folder(staging: str) -> str:
    """Create the staging folder if needed, and return a mark that identifies it. Called on the driver."""
    path = os.path.join(staging, _MARK)
    try:
        make_folder(staging)
        if not os.path.exists(path):
            create_durably(path, uuid.uuid4().hex.encode())
    except OSError as error:
        raise SinkError(f"the staging folder {staging} cannot be made: {error.strerror}; choose another") from error
    return _mark(path)


def check_reached(staging: str, mark: str, host: str) -> None:
    """Raise SinkError unless this is the folder that the driver has marked. Called in a task, on its host."""
    if _mark(os.path.join(staging, _MARK)) != mark:
        raise SinkError(
            f"the staging folder {staging} on {host} is not that of the driver: stagingDir has to be a folder that the "
            "driver and all executors share, such as one of a network file system"
        )


class Staging:
    """The folder of one sink, ``STAGING/SINK``. Picklable: it holds only the path."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def write(self, batch: str, attempt: str, messages: Iterable[Outgoing]) -> StagedFile:
        """Stage the messages of a task's attempt ("PARTITION-ATTEMPT"); they are on the disk when this returns."""
        folder = os.path.join(self.folder, batch)
        name = f"{attempt}-{uuid.uuid4().hex}.arrow"
        temporary = os.path.join(folder, f".{name}")
        rows = 0
        topics: set[str] = set()
        try:
            make_folder(folder)
            with open(temporary, "wb") as file:
                with pa.ipc.new_stream(file, _SCHEMA) as writer:
                    for some in _record_batches(messages):
                        writer.write_batch(some)
                        rows += some.num_rows
                        topics.update(some.column(0).unique().to_pylist())
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, os.path.join(folder, name))
            sync_folder(folder)
        except OSError as error:
            raise SinkError(f"{folder} cannot be written: {error.strerror or error}") from error
        finally:
            if os.path.exists(temporary):
                os.remove(temporary)
        return StagedFile(f"{batch}/{name}", rows, frozenset(topics))

    def read(self, name: str) -> Iterator[Outgoing]:
        """Yield the messages of a staged file. Raises SinkError if it is gone or damaged."""
        path = os.path.join(self.folder, name)
        try:
            with pa.OSFile(path) as file, pa.ipc.open_stream(file) as reader:
                for some in reader:
                    for fields in zip(*(column.to_pylist() for column in some.columns), strict=True):
                        yield Outgoing(*fields)
        except (OSError, pa.ArrowInvalid) as error:
            raise SinkError(
                f"the staged file {path} cannot be read ({error}): its batch cannot be finished; was it removed?"
            ) from error

    def remove(self, names: Iterable[str]) -> None:
        """Remove staged files, and batch folders that become empty. Missing files are ignored."""
        folders = set()
        for name in names:
            path = os.path.join(self.folder, name)
            folders.add(os.path.dirname(path))
            _quietly(os.remove, path)
        for folder in folders:
            _quietly(os.rmdir, folder)

    def sweep(self, is_done: Callable[[str], bool], is_open: Callable[[str], bool], now: float) -> None:
        """Remove the folders of finished batches, and those of abandoned ones.

        A batch is abandoned if it was never begun and its folder has not changed for 7 days before `now` (Unix time).
        `is_done` and `is_open` are called with the id of a batch.
        """
        for entry in os.scandir(self.folder):
            is_old = now - entry.stat().st_mtime > _ABANDONED_AFTER
            if entry.is_dir(follow_symlinks=False):
                if is_done(entry.name) or (is_old and not is_open(entry.name)):
                    shutil.rmtree(entry.path, ignore_errors=True)
            elif is_old and entry.name.endswith(".tmp"):
                _quietly(os.remove, entry.path)


def _mark(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""


def _quietly(action: Callable[[str], None], path: str) -> None:
    try:
        action(path)
    except OSError:
        pass


def _record_batches(messages: Iterable[Outgoing]) -> Iterator[pa.RecordBatch]:
    waiting: list[Outgoing] = []
    size = 0
    for message in messages:
        waiting.append(message)
        size += message.size
        if len(waiting) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield _record_batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield _record_batch(waiting)


def _record_batch(messages: list[Outgoing]) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array([getattr(each, field.name) for each in messages], field.type) for field in _SCHEMA], schema=_SCHEMA
    )
