"""The options of the ``rocketd store`` commands, and the stopped store, with its lock.

The store is locked as a broker locks it. No broker can start meanwhile.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from rocketd.broker.base.settings import BrokerSettings
from rocketd.broker.timer.delay_levels import DelayLevels
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.output import complain
from rocketd.common.settings.declaration import ConfigError
from rocketd.store.base.errors import StoreError, StoreLockedError
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.base.layout import CONSUME_QUEUE_UNIT, LOCK_CONTENT, lock_path
from rocketd.store.log.log_paths import log_paths
from rocketd.store.offline.stopped_store import FileSizes, StoppedStore
from rocketd.store.recovery.lost_log import refuse_lost_begin, refuse_lost_log

_LOCKED = 2
"""Exit status if a process has the store open."""


@dataclass(frozen=True)
class StoreAccess:
    """A store directory and its settings: those of the file `config`, or the defaults if it is None."""

    root: str
    settings: BrokerSettings
    config: str | None

    @property
    def configured(self) -> bool:
        """Whether the settings are those of a configuration file."""
        return self.config is not None

    @property
    def commit_log(self) -> tuple[str, ...]:
        """Directories of the log."""
        return log_paths(self.settings.store).all

    @property
    def sizes(self) -> FileSizes | None:
        """Sizes of the files, or None if no settings were given."""
        if not self.configured:
            return None
        store = self.settings.store
        return FileSizes(
            store.mapped_file_size_commit_log,
            -(-store.mapped_file_size_consume_queue // CONSUME_QUEUE_UNIT) * CONSUME_QUEUE_UNIT,
            store.max_hash_slot_num,
            store.max_index_num,
        )

    @property
    def delay_time_of(self) -> Callable[[int, int], int]:
        """Delivery time of delayed messages, in ms."""
        return DelayLevels(self.settings.store.message_delay_level).deliver_ms

    def store(self) -> StoppedStore:
        """Return the store as it is now."""
        return StoppedStore(self.root, self.commit_log, self.sizes)

    def refuse_lost_log(self) -> None:
        """Refuse a store whose log, or the beginning of it, is somewhere else: everything would look damaged.

        Raises StoreLogMissingError or StoreBeginLostError.
        """
        fs = RealFileSystem()
        refuse_lost_log(fs, self.root, self.commit_log)
        now_ms = time.time_ns() // 1_000_000
        refuse_lost_begin(fs, self.root, self.commit_log, self.settings.store.file_reserved_time, now_ms)

    @contextmanager
    def locked(self, *, writes: bool = False) -> Iterator[None]:
        """Hold the lock. A directory that cannot be written is not locked, unless the command `writes` into it.

        Raises:
            UsageError: the directory is not a store.
            CommandError: a process has the store open, or a file or the store cannot be read or written, also inside the
                context.
        """
        try:
            if not self.store().is_store():
                raise click.UsageError(f"{self.root} is not a store: it has no commitlog, consumequeue or index")
            with self._lock(writes=writes):
                yield
        except StoreLockedError as error:
            raise CommandError(str(error), _LOCKED) from error
        except BrokenPipeError:
            raise
        except (OSError, StoreError) as error:
            raise CommandError(str(error)) from error

    @contextmanager
    def _lock(self, *, writes: bool) -> Iterator[None]:
        fs = RealFileSystem()
        try:
            lock = fs.lock(lock_path(self.root), LOCK_CONTENT if writes else None)
        except OSError as error:
            if writes:
                raise
            complain(f"not locked, since the directory cannot be written: {error}")
            yield
            return
        try:
            yield
        finally:
            fs.unlock(lock)


def store_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add DIR and --config to a command's function, and pass them as a StoreAccess, the first argument."""

    @click.argument("directory", metavar="DIR")
    @click.option(
        "-c",
        "--config",
        metavar="FILE",
        help="Configuration file of the broker: delay levels, sizes of files, directory of the log.",
    )
    @wraps(function)
    def with_access(directory: str, config: str | None, **given: Any) -> int:
        return function(_access(os.path.abspath(directory), config), **given)

    return with_access


def _access(root: str, config: str | None) -> StoreAccess:
    try:
        # The environment and the file of another broker have no meaning here.
        settings, _ = BrokerSettings.load(config, [("storePathRootDir", root)])
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    return StoreAccess(root, settings, None if config is None else os.path.abspath(config))
