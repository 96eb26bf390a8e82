"""Measures the disks of log and queues, and refuses writes if one is too full.

Counterpart: `CleanCommitLogService.isSpaceToDelete` and `isSpaceFull` (Apache). Each change is logged once. Of several
log directories the emptiest counts, and full ones get no new files. Unlike Apache, read-only directories do not count.
"""

import enum
from collections.abc import Callable, Sequence

from twisted.logger import Logger

from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.base.running_flags import DISK_FULL, RunningFlags
from rocketd.store.base.settings import MessageStoreConfig

CHECK_SECONDS = 10.0

LOWEST_MAX_USED_PERCENT = 10
HIGHEST_MAX_USED_PERCENT = 95
"""Limits of diskMaxUsedSpaceRatio: values outside count as the nearer limit."""

_log = Logger()


class DiskState(enum.Enum):
    """Consequence of the fuller disk, in words for the operator."""

    GOOD = "messages are accepted, expired log files are deleted at the hours of deleteWhen"
    SHORT = "messages are accepted, expired log files are deleted at any hour"
    CRITICAL = "messages are accepted, log files may be deleted before they expire"
    FULL = "messages are refused"


class DiskWatch:
    """Sets DISK_FULL while a disk is fuller than diskSpaceWarningLevelRatio.

    `check` and `run_once` belong to one thread at a time, the maintenance thread once the store is open. Any thread may
    read the measured values. Ratios are used shares, 0.0 to 1.0.
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
        """`avoid` is called after each measurement with the log directories that must not get new files."""
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
        self._fresh = False
        self._flags = flags
        self.state = DiskState.GOOD

    @property
    def ratio(self) -> float:
        """Ratio of the log's disk, the emptiest of several."""
        return self._ratios[0]

    @property
    def queue_ratio(self) -> float:
        """Ratio of the consume queues' disk, possibly the same disk."""
        return self._ratios[1]

    @property
    def limit(self) -> float:
        """Ratio above which messages are refused."""
        return self._config.disk_space_warning_level_ratio

    @property
    def short(self) -> bool:
        """Whether expired files are deleted at any hour."""
        percent = self._config.disk_max_used_space_ratio
        return max(self._ratios) > min(max(percent, LOWEST_MAX_USED_PERCENT), HIGHEST_MAX_USED_PERCENT) / 100

    @property
    def critical(self) -> bool:
        """Whether files should be deleted before they expire, if that is allowed."""
        return max(self._ratios) > min(self._config.disk_space_clean_forcibly_ratio, self.limit)

    def describe(self) -> str:
        """Return the fuller disk and its limit in words."""
        ratio = max(self._ratios)
        return f"disk of {self._paths[self._ratios.index(ratio)]}: {ratio:.1%} used, limit {self.limit:.0%}"

    def run_once(self, now: float) -> float:
        """Measure, unless `check` was called since the last time. Return the time of the next call in the seconds of
        `now`.
        """
        if not self._fresh:
            self.check()
        self._fresh = False
        return now + CHECK_SECONDS

    def check(self) -> None:
        """Measure now. A disk that cannot be measured keeps its last value."""
        self._fresh = True
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
                "log directories fuller than {limit:.0%} get no new files: {paths}",
                limit=limit,
                paths=", ".join(sorted(full)) or "none",
            )
        if self._avoid is not None:
            self._avoid(full)
