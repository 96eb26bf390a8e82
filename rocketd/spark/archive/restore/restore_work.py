"""Makes a store's directory from an archive, in recorded steps, so that a killed run can be resumed.

Everything is made in a work directory below the target, and renamed into place at the end. So no broker can open half a
store and write to it.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rocketd.spark.archive.archive import Archive
from rocketd.spark.archive.format.durable import make_dirs, sync_dir
from rocketd.spark.archive.format.journal import Entry, Journal
from rocketd.spark.archive.format.manifest import ArchiveFile
from rocketd.spark.archive.reader import config_of
from rocketd.spark.archive.restore.log_files import LogFileMade, LogFileTask
from rocketd.spark.archive.selection import Selection
from rocketd.spark.errors import ArchiveError
from rocketd.store.base.layout import (
    DEFAULT_COMMIT_LOG_FILE_SIZE,
    commit_log_dir,
)

WORK = ".rocketd-restore"
_DONE = WORK + "-done"
_MOVED = ("config", "checkpoint", "index", "consumequeue", "commitlog")
"""The log is last: without it, a broker does not use the others."""


def was_ended(target: str, plan: Entry) -> bool:
    """Tell whether a restore with this plan is in place, but was killed while cleaning up.

    Its leftovers are removed now.
    """
    done = os.path.join(target, _DONE)
    if not os.path.isdir(done):
        return False
    try:
        begun = Journal(os.path.join(done, "journal")).refresh()
    except ArchiveError:
        begun = []  # partly removed
    shutil.rmtree(done)
    return not begun or not _changes(begun[0], plan)


def _changes(begun: Entry, plan: Entry) -> list[str]:
    """Describe the differences to the original arguments. The number of commits may differ, since an archive may grow."""
    before, now = begun["asked"], plan["asked"]
    return [
        f"{name} {_shown(before.get(name))}, now {_shown(now[name])}" for name in now if now[name] != before.get(name)
    ]


def _shown(value: object) -> str:
    return "not given" if value is None or value is False else "given" if value is True else str(value)


class RestoreWork:
    """The work directory of a restore, and the journal of finished steps."""

    def __init__(self, target: str, plan: Entry) -> None:
        """Resume a restore with this plan, or begin it.

        The plan holds the number of `commits` in the archive, and the arguments by name in `asked`, as JSON. Raises
        ArchiveError if the target holds other files.
        """
        self.target = target
        self.work = os.path.join(target, WORK)
        self.store = os.path.join(self.work, "store")
        self.made = os.path.join(self.work, "made")
        self._journal = Journal(os.path.join(self.work, "journal"))
        begun = self._journal.refresh()
        if begun:
            changes = _changes(begun[0], plan)
            if changes:
                raise ArchiveError(
                    f"{target} has a restore that was begun with other arguments ({'; '.join(changes)}): give the same, or "
                    f"remove {self.work}"
                )
            self.commits: int = begun[0]["commits"]
        else:
            others = [name for name in os.listdir(target) if not name.startswith(WORK) and name != "lost+found"]
            if others:
                named = ", ".join(sorted(others)[:5])
                raise ArchiveError(f"{target} is not empty: it has {named}; restore into an empty directory")
            self._journal.append(plan)
            self.commits = plan["commits"]
        self.staging = os.path.join(self.work, "staging")
        if not self.is_moving:
            # Otherwise entries already in place would collide with an empty directory of the same name.
            make_dirs(self.staging)
            make_dirs(commit_log_dir(self.store))

    @property
    def is_moving(self) -> bool:
        """Whether everything is made, and the renaming has begun."""
        return any(entry.get("step") == "moving" for entry in self._journal.entries)

    def log_files(self) -> dict[int, LogFileMade]:
        """Return the finished files of the log, by their first offset."""
        made = [LogFileMade(**entry["made"]) for entry in self._journal.entries if entry.get("step") == "log"]
        return {one.begin: one for one in made}

    def note_log_file(self, made: LogFileMade) -> None:
        """Record that a file of the log is finished."""
        self._journal.append({"step": "log", "made": asdict(made)})

    @property
    def queues(self) -> Entry | None:
        """The recorded result of queues and index, once they are made."""
        return next((entry for entry in self._journal.entries if entry.get("step") == "queues"), None)

    def note_queues(self, entries: int, index_entries: int, problems: Sequence[str]) -> Entry:
        """Record that queues and index are made."""
        said = {"step": "queues", "entries": entries, "indexEntries": index_entries, "problems": list(problems)}
        self._journal.append(said)
        return said

    def put_in_place(self) -> None:
        """Move the result into the target, and remove the rest; may be repeated."""
        if not self.is_moving:
            for name in ("consumequeue", "index"):
                made = os.path.join(self.made, name)
                if os.path.isdir(made):
                    os.rename(made, os.path.join(self.store, name))
            sync_dir(self.store)
            self._journal.append({"step": "moving"})
        for name in _MOVED:
            path = os.path.join(self.store, name)
            if os.path.exists(path):
                os.rename(path, os.path.join(self.target, name))
                sync_dir(self.target)
        # In one step: half a journal would look like a damaged one.
        done = os.path.join(self.target, _DONE)
        os.rename(self.work, done)
        sync_dir(self.target)
        shutil.rmtree(done)


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The plan of a restore: the broker, the archive's files, and the size of log files."""

    broker: str
    files: tuple[ArchiveFile, ...]
    log_file_size: int
    config: Mapping[str, Any]

    @property
    def log_range(self) -> range:
        """The first offsets of the log files."""
        size = self.log_file_size
        first = min(file.log_begin for file in self.files) // size * size
        return range(first, max(file.log_end for file in self.files), size)


def plan_restore(archive: Archive, commits: int, selection: Selection, log_file_size: int | None) -> RestorePlan:
    """Return the plan for a selection of the archive's first commits.

    Raises ArchiveError if the selection is empty, or has several brokers.
    """
    found = selection.files(file for commit in archive.commits[:commits] for file in commit.files)
    if not found:
        raise ArchiveError(f"{archive.root} has no messages that were asked for")
    brokers = sorted({file.queue.broker for file in found if file.queue is not None})
    if len(brokers) > 1:
        raise ArchiveError(f"{archive.root} has messages of {', '.join(brokers)}; name one with --broker-name")
    config = config_of(archive).get(brokers[0], {})
    known = config.get("commitLogFileSize")
    size = log_file_size or (known if isinstance(known, int) and known > 0 else DEFAULT_COMMIT_LOG_FILE_SIZE)
    return RestorePlan(brokers[0], tuple(found), size, config)


def log_tasks(plan: RestorePlan, root: str, selection: Selection, work: RestoreWork) -> list[LogFileTask]:
    """Return a task for each file of the log."""
    size = plan.log_file_size
    offsets = plan.log_range
    return [
        LogFileTask(
            root,
            work.staging,
            commit_log_dir(work.store),
            begin,
            size,
            begin == offsets[-1],
            tuple(file for file in plan.files if file.log_begin < begin + size and file.log_end > begin),
            selection,
        )
        for begin in offsets
    ]
