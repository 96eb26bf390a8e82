"""A file system that records the changes that survive a power cut.

`RecordingFileSystem` works on real files. Beside them, in a shadow directory, it keeps the data that was surely on the
disk: the bytes of each file as of its last finished sync, and a journal of the changes to names with the syncs of
directories. The process may be killed at any moment: half-written records there belong to a sync that had not returned,
of which any part may be on the disk. Bytes stored through a mapping count as all others.
"""

import itertools
import json
import os
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import uuid4

from rocketd.store.base.filesystem import RealFileSystem

PAGE = 4096

Operation = list[Any]
"""One line of the journal: operation, name, and more."""


class Entry(NamedTuple):
    """The file of a name: the number of its content, its inode, and its length when the name was made."""

    file: int
    inode: int
    size: int


@dataclass
class Names:
    """Names of one store: those of files with their identities, those of directories with None."""

    entries: dict[str, Entry | None] = field(default_factory=dict)

    def apply(self, operation: Operation) -> None:
        """Apply one line of the journal."""
        kind, *rest = operation
        if kind in ("file", "create"):
            self.entries[rest[0]] = Entry(*rest[1:])
        elif kind in ("dir", "mkdir"):
            self.entries[rest[0]] = None
        elif kind in ("remove", "rmdir"):
            self.entries.pop(rest[0], None)
        elif kind == "rename" and rest[0] in self.entries:
            self.entries[rest[1]] = self.entries.pop(rest[0])


def read_journal(shadow: str) -> list[Operation]:
    """Return the whole lines of a journal; an empty list if it is missing."""
    try:
        with open(os.path.join(shadow, "journal"), "rb") as file:
            return [json.loads(line) for line in file.read().split(b"\n")[:-1]]
    except FileNotFoundError:
        return []


def _encoded(line: Sequence[object]) -> bytes:
    return json.dumps(line).encode() + b"\n"


class RecordingFileSystem(RealFileSystem):
    """Any thread may call any method. Files outside ``root`` are not recorded.

    The files in ``root`` when the first instance is made count as being on the disk. A later instance on the same shadow,
    after the end of the first process, continues its records.
    """

    def __init__(self, root: str, shadow: str) -> None:
        """``shadow`` is missing, or the directory of an earlier process."""
        self._root = os.path.abspath(root)
        self._contents = os.path.join(shadow, "contents")
        self._new_content = os.path.join(shadow, "content")
        journal = read_journal(shadow)
        if ["ready"] not in journal:
            shutil.rmtree(shadow, ignore_errors=True)
            journal = [["run", str(uuid4())]]
        os.makedirs(self._contents, exist_ok=True)
        path = os.path.join(shadow, "journal")
        # Whole or not at all: this process may be killed here, and the records of the one before still count.
        with open(path + ".new", "wb") as file:
            file.writelines(_encoded(line) for line in journal)
        os.replace(path + ".new", path)
        self._run: str = journal[0][1]
        self._journal = os.open(path, os.O_WRONLY | os.O_APPEND)
        self._guard = threading.RLock()
        self._lines = len(journal)
        self._new_id = itertools.count(len(journal))
        self._sync_number = itertools.count(1)
        self._ids: dict[str, int] = {}
        self._files_of_descriptors: dict[int, int] = {}
        self._durable: dict[int, bytes] = {}
        self._last_sync: dict[int, int] = {}
        if len(journal) > 1:
            self._carry_on(journal)
        else:
            self._begin()

    def _begin(self) -> None:
        for directory, _, names in os.walk(self._root):
            self._note("dir", self._name(directory))
            for name in names:
                path = os.path.join(directory, name)
                with open(path, "rb") as file:
                    self._keep(self._add("file", path), next(self._sync_number), file.read())
        self._note("ready")

    def _carry_on(self, journal: list[Operation]) -> None:
        """Take over the known names, and record the last changes of the process before."""
        known = Names()
        for operation in journal:
            known.apply(operation)
        for file in os.listdir(self._contents):
            with open(os.path.join(self._contents, file), "rb") as content:
                self._durable[int(file)] = content.read()
        # A name that SQLite removed leaves an inode to another file, so only files without their name are searched for.
        by_inode = {
            entry.inode: (name, entry)
            for name, entry in known.entries.items()
            if entry is not None and not os.path.exists(os.path.join(self._root, name))
        }
        found = set()
        for directory, _, names in os.walk(self._root):
            found.add(self._name(directory))
            if self._name(directory) not in known.entries:
                self._note("mkdir", self._name(directory))
            for name in names:
                path = os.path.join(directory, name)
                found.add(self._name(path))
                inode = os.stat(path).st_ino
                before, entry = self._name(path), known.entries.get(self._name(path))
                if entry is None or entry.inode != inode:
                    before, entry = by_inode.get(inode, ("", None))
                if entry is None:
                    self._add("create", path)
                    continue
                self._ids[path] = entry.file
                if before != self._name(path):
                    self._note("rename", before, self._name(path))
                    found.add(before)
        for name, entry in known.entries.items():
            if name not in found:
                self._note("rmdir" if entry is None else "remove", name)

    # ---------------------------------------------------------------- recorded operations

    def _name(self, path: str) -> str:
        return os.path.relpath(path, self._root)

    def _is_recorded(self, path: str) -> bool:
        return os.path.abspath(path).startswith(self._root + os.sep)

    def _note(self, *line: object) -> None:
        os.write(self._journal, _encoded(line))
        self._lines += 1

    def _add(self, kind: str, path: str) -> int:
        number = self._ids[path] = next(self._new_id)
        figures = os.stat(path)
        self._note(kind, self._name(path), number, figures.st_ino, figures.st_size)
        return number

    def _keep(self, file: int, sync: int, data: bytes) -> None:
        """Record the bytes that a finished sync put on the disk, unless those of a later one are recorded."""
        with self._guard:
            if sync < self._last_sync.get(file, 0):
                return
            self._last_sync[file] = sync
            before = self._durable.get(file)
            self._durable[file] = data
            path = os.path.join(self._contents, str(file))
            if before is None or len(before) != len(data):
                # Whole or not at all: a length that the file never had is none that a power cut can leave.
                with open(self._new_content, "wb") as whole:
                    whole.write(data)
                os.replace(self._new_content, path)
                return
            fd = os.open(path, os.O_WRONLY)
            try:
                for at in range(0, len(data), PAGE):
                    page = data[at : at + PAGE]
                    if page != before[at : at + PAGE]:
                        os.pwrite(fd, page, at)
            finally:
                os.close(fd)

    def identity(self, path: str) -> str:
        """As the real one, but a power cut changes it: the files of the copy may get the inodes of earlier ones."""
        return f"{super().identity(path)} {self._run}"

    # ---------------------------------------------------------------- bytes

    def open(self, path: str, size: int | None = None) -> int:
        """As the real one."""
        with self._guard:
            fd = super().open(path, size)
            if self._is_recorded(path):
                file = self._ids.get(path)
                self._files_of_descriptors[fd] = self._add("create", path) if file is None else file
            return fd

    def close(self, fd: int) -> None:
        """As the real one."""
        with self._guard:
            self._files_of_descriptors.pop(fd, None)
            super().close(fd)

    def fdatasync(self, fd: int) -> None:
        """As the real one: the content of the file at the call is on the disk at the return."""
        file = self._files_of_descriptors.get(fd)
        sync = next(self._sync_number)
        data = b"" if file is None else os.pread(fd, os.fstat(fd).st_size, 0)
        super().fdatasync(fd)
        if file is not None:
            self._keep(file, sync, data)

    def write_file(self, path: str, data: bytes) -> None:
        """As the real one."""
        sync = next(self._sync_number)
        super().write_file(path, data)
        self._written(path, sync, data)

    def lock(self, path: str, content: bytes | None) -> int:
        """As the real one."""
        sync = next(self._sync_number)
        fd = super().lock(path, content)
        if content is not None:
            self._written(path, sync, content)
        return fd

    def _written(self, path: str, sync: int, data: bytes) -> None:
        if self._is_recorded(path):
            with self._guard:
                file = self._ids.get(path)
                self._keep(self._add("create", path) if file is None else file, sync, data)

    # ---------------------------------------------------------------- names

    def makedirs(self, path: str) -> None:
        """As the real one."""
        with self._guard:
            missing = []
            parent = os.path.abspath(path)
            while self._is_recorded(parent) and not os.path.isdir(parent):
                missing.append(parent)
                parent = os.path.dirname(parent)
            super().makedirs(path)
            for directory in reversed(missing):
                self._note("mkdir", self._name(directory))

    def remove(self, path: str) -> None:
        """As the real one."""
        with self._guard:
            if self._ids.pop(path, None) is not None:
                self._note("remove", self._name(path))
            super().remove(path)

    def rmdir(self, path: str) -> None:
        """As the real one."""
        with self._guard:
            there = os.path.isdir(path)
            super().rmdir(path)
            if there and not os.path.isdir(path) and self._is_recorded(path):
                self._note("rmdir", self._name(path))

    def rename(self, source: str, target: str) -> None:
        """As the real one."""
        with self._guard:
            super().rename(source, target)
            if source in self._ids:
                self._ids[target] = self._ids.pop(source)
                self._note("rename", self._name(source), self._name(target))

    def sync_dir(self, path: str) -> None:
        """As the real one; the changes of names noted before it began are on the disk when it returns."""
        with self._guard:
            lines = self._lines
        super().sync_dir(path)
        if os.path.abspath(path) == self._root or self._is_recorded(path):
            with self._guard:
                self._note("names", self._name(path), lines)
