"""One archive: its commits, new commits, and the removal of files that were never committed.

A file is written into a writer's staging directory and moved to its place while the lock is held. It counts once a
numbered commit names it. A crash at any moment leaves only files without a commit. In staging they belong to their
writer. Below `data` a later holder of the lock removes them.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rocketd.spark.archive.format.durable import Lock, make_dirs, sync_dir, write_once
from rocketd.spark.archive.format.journal import Journal
from rocketd.spark.archive.format.layout import data_dir, lock_path, manifest_dir, settings_path, staging_dir
from rocketd.spark.archive.format.manifest import ArchiveFile, Commit
from rocketd.spark.archive.format.settings import MESSAGES, Settings, check_archive_columns
from rocketd.spark.errors import ArchiveError
from rocketd.spark.ranges import Queue, QueueRange, joined

_LOCK_SECONDS = 120.0
"""Seconds for which a commit waits for the commit of another writer."""
_ABANDONED_SECONDS = 7 * 86400.0
"""Seconds without a change after which a writer's staged files count as abandoned."""


@dataclass(frozen=True, slots=True)
class UncommittedFile:
    """A file on the disk that is not committed: its present path within the archive, and its entry for the commit."""

    path: str
    file: ArchiveFile


class Archive:
    """An open archive, for one thread. No file is held open between calls."""

    def __init__(self, root: str, settings: Settings) -> None:
        self.root = root
        self.settings = settings
        self.commits: list[Commit] = []
        self._journal = Journal(manifest_dir(root))
        self._ranges: dict[Queue, list[QueueRange]] = {}
        self._batches: dict[str, int] = {}
        self._swept = False
        self.refresh()

    @staticmethod
    def open(root: str) -> "Archive":
        """Open the archive in a directory. Raises ArchiveError if there is none, or if it is damaged."""
        return Archive(root, Archive.settings_of(root))

    @staticmethod
    def settings_of(root: str) -> Settings:
        """Return the settings of the archive in a directory. Raises ArchiveError if there is none."""
        path = settings_path(root)
        try:
            with open(path, "rb") as file:
                data = file.read()
        except (FileNotFoundError, NotADirectoryError):
            raise ArchiveError(f"{root} is not an archive: it has no file {os.path.basename(path)}") from None
        return Settings.decoded(data, path)

    @staticmethod
    def wanted_settings(root: str, columns: str | None) -> Settings:
        """Return the settings of an archive of messages with the columns of an option.

        Without the option, they are those of the existing archive, or the defaults. Raises OptionError, and
        ArchiveError if the existing archive has other rows.
        """
        if columns is not None:
            return Settings.of_messages(check_archive_columns(columns))
        if os.path.exists(settings_path(root)):
            there = Archive.settings_of(root)
            there.check_whole(root)
            return there
        return Settings.of_messages()

    @staticmethod
    def open_or_create(root: str, settings: Settings) -> "Archive":
        """Open the archive in a directory, or create it.

        Raises ArchiveError if the archive has other columns, or if the directory holds other files.
        """
        Archive.ensure(root, settings)
        return Archive(root, settings)

    @staticmethod
    def ensure(root: str, settings: Settings) -> None:
        """Create the archive if needed, without reading its commits. Raises the same errors as `open_or_create`."""
        if not os.path.exists(settings_path(root)):
            others = os.listdir(root) if os.path.isdir(root) else []
            taken = any(not name.startswith(".") and name != "lost+found" for name in others)
            # Checked again: another writer may have created the archive before the directory was listed.
            if taken and not os.path.exists(settings_path(root)):
                raise ArchiveError(f"{root} is neither an archive nor empty: use another directory")
            make_dirs(root)
            with contextlib.suppress(FileExistsError):  # another writer creates it at the same time
                write_once(settings_path(root), settings.encoded())
        Archive.settings_of(root).check_same(settings, root)

    def refresh(self) -> None:
        """Read the commits that others have made since. Raises ArchiveError, OSError."""
        for entry in self._journal.refresh():
            self._add(Commit.from_json(entry))

    def _add(self, commit: Commit) -> None:
        self.commits.append(commit)
        if commit.batch is not None:
            self._batches[commit.writer] = max(commit.batch, self._batches.get(commit.writer, -1))
        for one in commit.ranges:
            known = self._ranges.setdefault(one.queue, [])
            if known and known[-1].end == one.start:
                known[-1] = QueueRange(one.queue, known[-1].start, one.end)
            else:
                known.append(one)
                if len(known) > 1 and known[-2].start >= one.start:
                    known[:] = joined(known)

    @property
    def files(self) -> list[ArchiveFile]:
        """All committed files, in the order of the commits."""
        return [file for commit in self.commits for file in commit.files]

    @property
    def gaps(self) -> list[QueueRange]:
        """The ranges that were lost before they could be archived."""
        return joined(one for commit in self.commits for one in commit.gaps)

    @property
    def queues(self) -> list[Queue]:
        """All queues with committed ranges."""
        return sorted(self._ranges)

    def ranges(self, queue: Queue) -> list[QueueRange]:
        """Return the committed ranges of a queue, including lost ones; sorted, and merged if they touch."""
        return joined(self._ranges.get(queue, ()))

    def last_batch(self, writer: str) -> int:
        """Return the last batch that a stream has committed, or -1."""
        return self._batches.get(writer, -1)

    def path_of(self, file: ArchiveFile) -> str:
        """Return the path of a file."""
        return os.path.join(self.root, file.path)

    def lock(self, wait_seconds: float = _LOCK_SECONDS) -> Lock:
        """Return the lock that a commit takes."""
        return Lock(lock_path(self.root), f"the archive {self.root}", wait_seconds)

    def commit(self, commit: Commit, staged: Sequence[UncommittedFile]) -> bool:
        """Add staged files to the archive, all or none. `commit` has all fields except the files.

        Returns False if the writer's batch was committed before: then the files are removed. Raises ArchiveError,
        OSError.
        """
        with self.lock():
            self.refresh()
            if not self._swept:
                self.sweep()
            if commit.batch is not None and commit.batch <= self.last_batch(commit.writer):
                if self.settings.kind == MESSAGES:
                    self._check_known(commit)
                discard(self.root, staged)
                return False
            if self.settings.kind == MESSAGES:
                self._check_new(commit.ranges)
            entry = Commit(
                commit.writer,
                commit.time_ms,
                tuple(one.file for one in staged),
                commit.ranges,
                commit.gaps,
                commit.batch,
                commit.brokers,
            )
            self._move(staged)
            self._journal.append(entry.to_json())
            self._add(entry)
        return True

    def _check_known(self, commit: Commit) -> None:
        for one in commit.ranges:
            if not any(known.start <= one.start and one.end <= known.end for known in self.ranges(one.queue)):
                raise ArchiveError(
                    f"batch {commit.batch} of {commit.writer} has been committed to {self.root} with other messages than "
                    f"{one}: a stream that begins anew needs another sinkId, or the checkpoint that it had before"
                )

    def _check_new(self, ranges: Iterable[QueueRange]) -> None:
        for one in ranges:
            for known in self._ranges.get(one.queue, ()):
                if known.start < one.end and one.start < known.end:
                    raise ArchiveError(
                        f"{one} is to be archived, but {known} is in {self.root} already: "
                        "use another directory, or the checkpoint that the stream had before"
                    )

    def _move(self, staged: Sequence[UncommittedFile]) -> None:
        directories = set()
        for one in staged:
            target = self.path_of(one.file)
            directory = os.path.dirname(target)
            if directory not in directories:
                make_dirs(directory)
                directories.add(directory)
            os.rename(os.path.join(self.root, one.path), target)
        for directory in directories:
            sync_dir(directory)

    def sweep(self) -> list[str]:
        """Remove files without a commit below `data`, leftovers of the journal, and abandoned staged files.

        The caller holds the lock. Returns the paths removed below `data`, relative to the archive.
        """
        named = {file.path for file in self.files}
        removed = []
        for folder, _, names in os.walk(data_dir(self.root)):
            for name in names:
                path = os.path.relpath(os.path.join(folder, name), self.root)
                if path not in named:
                    os.unlink(os.path.join(self.root, path))
                    removed.append(path)
        self._journal.sweep()
        before = time.time() - _ABANDONED_SECONDS
        staging = staging_dir(self.root)
        for name in os.listdir(staging) if os.path.isdir(staging) else ():
            if _last_change(os.path.join(staging, name)) < before:
                shutil.rmtree(os.path.join(staging, name), ignore_errors=True)
        self._swept = True
        return removed


def _last_change(directory: str) -> float:
    """Return the Unix time of the last write below a directory; the present time if unknown."""
    try:
        times = [os.stat(directory).st_mtime]
        for folder, folders, names in os.walk(directory):
            times += [os.stat(os.path.join(folder, name)).st_mtime for name in (*folders, *names)]
    except OSError:
        return time.time()
    return max(times)


def discard(root: str, staged: Iterable[UncommittedFile]) -> None:
    """Remove staged files that will not be committed."""
    for one in staged:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(root, one.path))


def clear_staging(root: str, writer: str) -> None:
    """Remove all staged files of a writer; only for a writer that has certainly ended."""
    shutil.rmtree(staging_dir(root, writer), ignore_errors=True)
