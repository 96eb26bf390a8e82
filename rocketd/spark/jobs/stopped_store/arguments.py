"""The arguments of jobs on the files of a stopped store, and the store's lock.

Options and messages are those of `rocketd.tools.store.commands`.
"""

import os
from types import TracebackType
from typing import TYPE_CHECKING

import click

from rocketd.common.command_line.option_types import whole_number
from rocketd.spark.errors import OptionError, StoreFilesError
from rocketd.spark.jobs.running.options import Arguments, Section, flag, option
from rocketd.spark.jobs.running.progress import JobProgressBar
from rocketd.spark.jobs.stopped_store.dispatched import DispatchRules, delays_of
from rocketd.spark.jobs.stopped_store.files import IndexSizes
from rocketd.spark.store.log_directories import log_directories
from rocketd.store.base.errors import StoreError, StoreLockedError
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.base.layout import LOCK_CONTENT, lock_path

if TYPE_CHECKING:
    from rocketd.store.offline.stopped_store import StoppedStore


def store_section() -> Section:
    """Return the options for the store's directory, and for broker settings that its files do not record."""
    return Section(
        "store",
        [
            option("--store", metavar="DIR", required=True, help="directory of a stopped store, or of a snapshot"),
            option(
                "--commit-log",
                metavar="DIR",
                help="directory of the commit log, or several separated by commas, if it is outside the store",
            ),
            *dispatch_options("as the files"),
        ],
    )


def dispatch_options(sizes: str) -> list[click.Option]:
    """Return the options about the broker's queues and index. `sizes` describes the default sizes of index files."""
    from rocketd.store.base.settings import MessageStoreConfig

    levels = MessageStoreConfig(store_path_root_dir="").message_delay_level
    at_least_2 = whole_number(2)
    return [
        option(
            "--delay-levels",
            metavar="TIMES",
            default=levels,
            help=f"messageDelayLevel of the broker (default: {levels})",
        ),
        option("--index-slots", type=at_least_2, metavar="N", help=f"maxHashSlotNum of the broker (default: {sizes})"),
        option("--index-entries", type=at_least_2, metavar="N", help=f"maxIndexNum of the broker (default: {sizes})"),
        flag(
            "--no-light-queues",
            help="expect no messages in further queues: the broker had enableMultiDispatch=false",
        ),
    ]


def rules_of(args: Arguments) -> DispatchRules:
    """Return the dispatch rules of the broker. Raises OptionError."""
    try:
        return DispatchRules(delays_of(args.delay_levels), not args.no_light_queues)
    except ValueError as error:
        raise OptionError(f"--delay-levels {args.delay_levels!r}: {error}") from None


def shape_of(args: Arguments, known: tuple[int, int] | None) -> IndexSizes | None:
    """Return slots and entries of index files: the given ones, else those of the files."""
    slots, entries = known or (None, None)
    slots, entries = args.index_slots or slots, args.index_entries or entries
    return None if slots is None or entries is None else IndexSizes(slots, entries)


class StoreInUse:
    """A locked store, so that no broker starts meanwhile: a context manager that returns the StoppedStore.

    A read-only directory, as of a snapshot, is not locked if the job only reads. Raises StoreFilesError if the store
    does not exist, or if another process has it open.
    """

    def __init__(self, root: str, commit_log: str | None, progress: JobProgressBar, *, writes: bool) -> None:
        self._root = os.path.abspath(root)
        self._logs = log_directories(self._root, commit_log or "")
        self._progress = progress
        self._writes = writes
        self._fs = RealFileSystem()
        self._lock: int | None = None

    def __enter__(self) -> "StoppedStore":
        from rocketd.store.offline.stopped_store import StoppedStore

        try:
            if not StoppedStore(self._root, self._logs).is_store():
                raise StoreFilesError(f"{self._root} is not a store: it has no commitlog, consumequeue or index")
            self._lock = self._fs.lock(lock_path(self._root), LOCK_CONTENT)
        except StoreLockedError as error:
            raise StoreFilesError(f"{error}; stop the broker, or name a snapshot of its store") from None
        except StoreError as error:
            raise StoreFilesError(str(error)) from None
        except OSError as error:
            if self._writes:
                raise StoreFilesError(f"cannot lock {self._root}: {error}") from error
            self._progress.note(f"not locked, since the directory cannot be written: {error}")
        # Again, because from here on the store cannot change.
        return StoppedStore(self._root, self._logs)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._lock is not None:
            self._fs.unlock(self._lock)
            self._lock = None
