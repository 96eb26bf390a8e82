"""Makes a store's directory from an archive, in steps that are noted, so that a run that was killed is gone on with.

All is made in a directory of its own within the target, and put in place by a few renamings at the end: no broker can open
a store of which half is missing and go on writing to it.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rocketd.spark.archive.archive import Archive
from rocketd.spark.archive.durable import make_dirs, sync_dir
from rocketd.spark.archive.journal import Entry, Journal
from rocketd.spark.archive.log_files import LogFileMade, LogFileTask
from rocketd.spark.archive.manifest import ArchiveFile
from rocketd.spark.archive.reader import config_of
from rocketd.spark.archive.selection import Selection
from rocketd.spark.errors import ArchiveError
from rocketd.store.layout import (
    DEFAULT_COMMIT_LOG_FILE_SIZE,
    commit_log_dir,
)

WORK = ".rocketd-restore"
_DONE = WORK + "-done"
_MOVED = ("config", "checkpoint", "index", "consumequeue", "commitlog")
"""The log last: without it, a broker takes nothing of the others for good."""


def was_ended(target: str, plan: Entry) -> bool:
    """Whether a restore of this plan is in place, and was killed while it cleaned up: what it left is removed now."""
    done = os.path.join(target, _DONE)
    if not os.path.isdir(done):
        return False
    try:
        begun = Journal(os.path.join(done, "journal")).refresh()
    except ArchiveError:
        begun = []  # removed in part
    shutil.rmtree(done)
    return not begun or not _changes(begun[0], plan)


def _changes(begun: Entry, plan: Entry) -> list[str]:
    """What is asked otherwise than at the beginning. How many commits the archive has may differ: it may have grown."""
    before, now = begun["asked"], plan["asked"]
    return [
        f"{name} {_shown(before.get(name))}, now {_shown(now[name])}" for name in now if now[name] != before.get(name)
    ]


def _shown(value: object) -> str:
    return "not given" if value is None or value is False else "given" if value is True else str(value)


class RestoreWork:
    """The directory in which a restore is made, and the journal of what is done."""

    def __init__(self, target: str, plan: Entry) -> None:
        """Go on with a restore of this plan, or begin it. The plan says how many `commits` the archive has, and by the names
        of arguments what is `asked`, as JSON. Raises ArchiveError when the target holds something else.
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
            # Else what is in place already would be in the way of an empty directory of its name.
            make_dirs(self.staging)
            make_dirs(commit_log_dir(self.store))

    @property
    def is_moving(self) -> bool:
        """Whether all is made, and was begun to be put in place."""
        return any(entry.get("step") == "moving" for entry in self._journal.entries)

    def log_files(self) -> dict[int, LogFileMade]:
        """The files of the log that are there, by their first offset."""
        made = [LogFileMade(**entry["made"]) for entry in self._journal.entries if entry.get("step") == "log"]
        return {one.begin: one for one in made}

    def note_log_file(self, made: LogFileMade) -> None:
        """Note that a file of the log is there."""
        self._journal.append({"step": "log", "made": asdict(made)})

    @property
    def queues(self) -> Entry | None:
        """What was told of the queues and the index, once they are made."""
        return next((entry for entry in self._journal.entries if entry.get("step") == "queues"), None)

    def note_queues(self, entries: int, index_entries: int, problems: Sequence[str]) -> Entry:
        """Note that queues and index are made."""
        said = {"step": "queues", "entries": entries, "indexEntries": index_entries, "problems": list(problems)}
        self._journal.append(said)
        return said

    def put_in_place(self) -> None:
        """Move what was made into the target, and remove the rest; may be repeated."""
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
        # In one step: half a journal would be taken for a damaged one.
        done = os.path.join(self.target, _DONE)
        os.rename(self.work, done)
        sync_dir(self.target)
        shutil.rmtree(done)


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What is restored: the broker, its files, and how its commit log is cut."""

    broker: str
    files: tuple[ArchiveFile, ...]
    log_file_size: int
    config: Mapping[str, Any]

    @property
    def log_range(self) -> range:
        """First offsets of the files of the log."""
        size = self.log_file_size
        first = min(file.log_begin for file in self.files) // size * size
        return range(first, max(file.log_end for file in self.files), size)


def plan_restore(archive: Archive, commits: int, selection: Selection, log_file_size: int | None) -> RestorePlan:
    """What a selection of the first commits of an archive makes. Raises ArchiveError when that is nothing, or of several
    brokers.
    """
    found = selection.files(file for commit in archive.commits[:commits] for file in commit.files)
    if not found:
        raise ArchiveError(f"{archive.root} has no messages of what is asked for")
    brokers = sorted({file.queue.broker for file in found if file.queue is not None})
    if len(brokers) > 1:
        raise ArchiveError(f"{archive.root} has messages of {', '.join(brokers)}; name one with --broker-name")
    config = config_of(archive).get(brokers[0], {})
    known = config.get("commitLogFileSize")
    size = log_file_size or (known if isinstance(known, int) and known > 0 else DEFAULT_COMMIT_LOG_FILE_SIZE)
    return RestorePlan(brokers[0], tuple(found), size, config)


def log_tasks(plan: RestorePlan, root: str, selection: Selection, work: RestoreWork) -> list[LogFileTask]:
    """A task for each file of the log."""
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
