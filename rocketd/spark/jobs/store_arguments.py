"""What the jobs that work on the files of a stopped store have in common: their arguments, and the store's lock.

Answers to `rocketd.tools.store`, whose options and messages these are.
"""

import argparse
import os
from types import TracebackType
from typing import TYPE_CHECKING

from rocketd.spark.errors import OptionError, StoreFilesError
from rocketd.spark.jobs.dispatched import Rules, delays_of
from rocketd.spark.jobs.progress import Progress
from rocketd.spark.jobs.store_files import IndexShape
from rocketd.spark.log_directories import log_directories
from rocketd.store.errors import StoreError, StoreLockedError
from rocketd.store.filesystem import RealFileSystem
from rocketd.store.layout import LOCK_CONTENT, lock_path

if TYPE_CHECKING:
    from rocketd.store.stopped_store import StoppedStore


def add_store_arguments(parser: argparse.ArgumentParser) -> None:
    """The store's directory, and what its files do not say of the broker's settings."""
    group = parser.add_argument_group("store")
    group.add_argument("--store", metavar="DIR", required=True, help="directory of a stopped store, or of a snapshot")
    group.add_argument(
        "--commit-log",
        metavar="DIR",
        help="directory of the commit log, or several separated by commas, where it is not below the store",
    )
    add_dispatch_arguments(group, "as the files")


def add_dispatch_arguments(group: argparse._ArgumentGroup, sizes: str) -> None:
    """How the broker made its queues and its index; `sizes` says what those of index files are unless given."""
    from rocketd.store.settings import MessageStoreConfig

    group.add_argument(
        "--delay-levels",
        metavar="TIMES",
        default=MessageStoreConfig(store_path_root_dir="").message_delay_level,
        help="messageDelayLevel of the broker (default: %(default)s)",
    )
    group.add_argument("--index-slots", type=int, metavar="N", help=f"maxHashSlotNum of the broker (default: {sizes})")
    group.add_argument("--index-entries", type=int, metavar="N", help=f"maxIndexNum of the broker (default: {sizes})")
    group.add_argument(
        "--no-light-queues",
        dest="light_queues",
        action="store_false",
        help="the broker had enableMultiDispatch=false: no message is in further queues",
    )


def rules_of(args: argparse.Namespace) -> Rules:
    """How the broker dispatched. Raises OptionError."""
    try:
        return Rules(delays_of(args.delay_levels), args.light_queues)
    except ValueError as error:
        raise OptionError(f"--delay-levels {args.delay_levels!r}: {error}") from None


def shape_of(args: argparse.Namespace, known: tuple[int, int] | None) -> IndexShape | None:
    """Slots and entries of index files: those that are given, else those of the files. Raises OptionError."""
    for name, value in (("--index-slots", args.index_slots), ("--index-entries", args.index_entries)):
        if value is not None and value < 2:
            raise OptionError(f"{name} {value}: accepted are numbers from 2 on")
    slots, entries = known or (None, None)
    slots, entries = args.index_slots or slots, args.index_entries or entries
    return None if slots is None or entries is None else IndexShape(slots, entries)


class StoreInUse:
    """A store of which no broker is to be started meanwhile: a context manager. Gives the StoppedStore.

    A directory that cannot be written, as of a snapshot, is not locked unless it is to be written. Raises StoreFilesError
    when there is no store, or somebody has it open.
    """

    def __init__(self, root: str, commit_log: str | None, progress: Progress, *, writes: bool) -> None:
        self._root = os.path.abspath(root)
        self._logs = log_directories(self._root, commit_log or "")
        self._progress = progress
        self._writes = writes
        self._fs = RealFileSystem()
        self._lock: int | None = None

    def __enter__(self) -> "StoppedStore":
        from rocketd.store.stopped_store import StoppedStore

        try:
            if not StoppedStore(self._root, self._logs).is_store():
                raise StoreFilesError(f"{self._root} is no store: it has no commitlog, consumequeue or index")
            self._lock = self._fs.lock(lock_path(self._root), LOCK_CONTENT)
        except StoreLockedError as error:
            raise StoreFilesError(f"{error}; stop the broker, or name a snapshot of its store") from None
        except StoreError as error:
            raise StoreFilesError(str(error)) from None
        except OSError as error:
            if self._writes:
                raise StoreFilesError(f"cannot lock {self._root}: {error}") from error
            self._progress.note(f"not locked, since the directory cannot be written: {error}")
        # Again, as nobody changes it from here on.
        return StoppedStore(self._root, self._logs)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._lock is not None:
            self._fs.unlock(self._lock)
            self._lock = None
