"""Measures how full the disks of log and queues are, and refuses writes when one is too full.

Answers to Apache's `CleanCommitLogService.isSpaceToDelete` and `isSpaceFull`. Each change is one line in the log. Of several
log directories the emptiest counts, and the full ones get no new files; those that are read-only do not count, unlike
Apache's.
"""

import enum
from collections.abc import Callable, Sequence

from twisted.logger import Logger

from rocketd.store.filesystem import IFileSystem
from rocketd.store.running_flags import DISK_FULL, RunningFlags
from rocketd.store.settings import MessageStoreConfig

CHECK_SECONDS = 10.0

LOWEST_MAX_USED_PERCENT = 10
HIGHEST_MAX_USED_PERCENT = 95
"""diskMaxUsedSpaceRatio counts as one of these when it lies outside of them."""

_log = Logger()


class DiskState(enum.Enum):
    """What the fuller disk asks for, in words for the operator."""

    GOOD = "messages are taken, log files are deleted when they have expired and deleteWhen has come"
    SHORT = "messages are taken, expired log files are deleted at any hour"
    CRITICAL = "messages are taken, log files may be deleted before they expire"
    FULL = "messages are refused"


class DiskWatch:
    """Sets DISK_FULL while a disk is fuller than diskSpaceWarningLevelRatio.

    `check` and `run_once` belong to one thread at a time, the maintenance thread once the store is open; what was
    measured may be read by any. Ratios are used parts, 0.0 to 1.0.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        fs: IFileSystem,
        log_paths: Sequence[str],
        queue_path: str,
        flags: RunningFlags,
        avoid: Callable[[frozenset[str]], None] | None = None,
    ) -> None:
        """`avoid` is told the log directories that are to get no new files, after each measurement."""
        self._config = config
        self._fs = fs
        self._log_paths = log_paths
        self._queue_path = queue_path
        self._measured = dict.fromkeys((*log_paths, queue_path), 0.0)
        self._paths = [log_paths[0], queue_path]
        self._ratios = [0.0, 0.0]
        self._avoid = avoid
        self._full_paths: frozenset[str] = frozenset()
        self._unmeasured: set[str] = set()
        self._flags = flags
        self.state = DiskState.GOOD

    @property
    def ratio(self) -> float:
        """That of the log's disk, the emptiest of several."""
        return self._ratios[0]

    @property
    def queue_ratio(self) -> float:
        """That of the consume queues' disk, which may be the same."""
        return self._ratios[1]

    @property
    def limit(self) -> float:
        """The ratio above which nothing is stored."""
        return self._config.disk_space_warning_level_ratio

    @property
    def short(self) -> bool:
        """Whether expired files have to go at any hour."""
        percent = self._config.disk_max_used_space_ratio
        return max(self._ratios) > min(max(percent, LOWEST_MAX_USED_PERCENT), HIGHEST_MAX_USED_PERCENT) / 100

    @property
    def critical(self) -> bool:
        """Whether files have to go although they have not expired, where that is allowed."""
        return max(self._ratios) > min(self._config.disk_space_clean_forcibly_ratio, self.limit)

    def describe(self) -> str:
        """The fuller disk and its limit, in words."""
        ratio = max(self._ratios)
        return f"disk of {self._paths[self._ratios.index(ratio)]}: {ratio:.1%} used, limit {self.limit:.0%}"

    def run_once(self, now: float) -> float:
        """Measure; returns when to do so again, in the seconds of `now`."""
        self.check()
        return now + CHECK_SECONDS

    def check(self) -> None:
        """Measure now. A disk that cannot be measured counts as being as full as it was."""
        for path in self._measured:
            try:
                self._measured[path] = self._fs.disk_usage(path).ratio
            except OSError as error:
                if path not in self._unmeasured:
                    self._unmeasured.add(path)
                    _log.error("cannot measure the disk of {path}: {error}", path=path, error=error)
            else:
                self._unmeasured.discard(path)
        emptiest = min(self._log_paths, key=self._measured.__getitem__)
        self._paths = [emptiest, self._queue_path]
        self._ratios = [self._measured[path] for path in self._paths]
        self._avoid_full_paths()
        full = max(self._ratios) > self.limit
        self._flags.set(DISK_FULL, full)
        if full:
            state = DiskState.FULL
        elif self.critical:
            state = DiskState.CRITICAL
        else:
            state = DiskState.SHORT if self.short else DiskState.GOOD
        if state is not self.state:
            self.state = state
            report = _log.error if state is DiskState.FULL else _log.info if state is DiskState.GOOD else _log.warn
            report("{disk}: {consequence}", disk=self.describe(), consequence=state.value)

    def _avoid_full_paths(self) -> None:
        if len(self._log_paths) < 2:
            return
        limit = self._config.disk_space_clean_forcibly_ratio
        full = frozenset(path for path in self._log_paths if self._measured[path] > limit)
        if full != self._full_paths:
            self._full_paths = full
            _log.info(
                "log directories fuller than {limit:.0%}, which get no new files: {paths}",
                limit=limit,
                paths=", ".join(sorted(full)) or "none",
            )
        if self._avoid is not None:
            self._avoid(full)
