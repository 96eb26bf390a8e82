"""Makes the files that a power cut leaves of a killed process.

Reads the records of `RecordingFileSystem`. According to POSIX, unsynced data cannot be relied on, and may survive as
well. A file has the length of its last sync or the newest one. Each page of 4 KiB changed since is the old one, the new
one, or sectors of 512 bytes of both. Of the changes to the names in a directory, the first few since its last sync
happened. Only one rule is taken from real file systems, not from POSIX: a file that had its length before its name has
it whenever it has the name.
"""

import os
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path
from random import Random

from rocketd.store.base.layout import BLANK_MAGIC, MESSAGE_MAGIC, is_mapped_file_name
from tests.crash.recording import PAGE, Entry, Names, Operation, read_journal

SECTOR = 512
_BEGIN = struct.Struct(">ii")


@dataclass
class Cut:
    """The outcome of a power cut. ``flushed_log`` holds of each file of the log the bytes that were surely on the disk,
    up to the first that the process changed since; None if nothing was changed.
    """

    style: str = "before the broker began"
    files: int = 0
    damaged: int = 0
    names_lost: int = 0
    flushed_log: dict[int, bytes] | None = None

    def __str__(self) -> str:
        return f"{self.style}: {self.damaged} of {self.files} files lost bytes, {self.names_lost} changes of names gone"


def cut_power(root: Path, shadow: Path, random: Random) -> Cut:
    """Turn the files that a killed process left in ``root`` into the content of the disk after a power cut."""
    journal = read_journal(str(shadow))
    if ["ready"] not in journal:
        return Cut()
    cut = Cut(random.choice(("nothing unsynced is kept", "pages", "pages", "torn pages", "torn pages", "all is kept")))
    live, durable, flushed_names = _names(journal, cut, random)
    contents = shadow / "contents"
    live_files = {entry: root / name for name, entry in live.entries.items() if entry is not None}
    image = root.with_name(root.name + ".image")
    image.mkdir()
    for name, entry in sorted(durable.entries.items()):
        if not (image / name).parent.is_dir():
            continue  # the name of its directory is lost
        if entry is None:
            (image / name).mkdir(exist_ok=True)
        else:
            old = _durable(contents, entry)
            new = _read_live(live_files, entry)
            kept = old if new is None or new == old else _mixed(old, new, cut.style, random)
            (image / name).write_bytes(kept)
            cut.files += 1
            cut.damaged += new is not None and kept != new
    cut.flushed_log = {}
    for name, entry in flushed_names.entries.items():
        folder, _, base = name.rpartition(os.sep)
        if folder == "commitlog" and entry is not None and is_mapped_file_name(base):
            # A sync may have seen the first half of an append that ran at the same time.
            cut.flushed_log[int(base)] = _unchanged(_durable(contents, entry), _read_live(live_files, entry))
    shutil.rmtree(root)
    image.rename(root)
    return cut


def flushed_offsets(cut: Cut) -> set[int]:
    """Offsets of the records of the log that were whole on the disk, with all before them in their file and, between
    the first and this one, no file missing.
    """
    found = set()
    flushed_log = cut.flushed_log or {}
    expected = min(flushed_log, default=0)
    for start, data in sorted(flushed_log.items()):
        if start != expected:
            break
        at = 0
        while at + _BEGIN.size <= len(data):
            size, magic = _BEGIN.unpack_from(data, at)
            if magic != MESSAGE_MAGIC or size <= 0 or at + size > len(data):
                break
            found.add(start + at)
            at += size
        if at + _BEGIN.size > len(data) or _BEGIN.unpack_from(data, at)[1] != BLANK_MAGIC:
            break
        expected = start + len(data)
    return found


def _names(journal: list[Operation], cut: Cut, random: Random) -> tuple[Names, Names, Names]:
    """Names as the process saw them last, as the disk has them now, and as it was sure to have them."""
    live, durable = Names(), Names()
    pending: dict[str, list[tuple[int, Operation]]] = {}
    for number, operation in enumerate(journal):
        kind = operation[0]
        if kind in ("file", "dir"):
            live.apply(operation)
            durable.apply(operation)
        elif kind == "names":
            waiting = pending.get(operation[1], [])
            for _, each in (each for each in waiting if each[0] < operation[2]):
                durable.apply(each)
            pending[operation[1]] = [each for each in waiting if each[0] >= operation[2]]
        elif kind not in ("run", "ready"):
            live.apply(operation)
            pending.setdefault(os.path.dirname(operation[1]) or ".", []).append((number, operation))
    sure = Names(dict(durable.entries))
    for _, waiting in sorted(pending.items()):
        happened = random.randint(0, len(waiting))
        for _, each in waiting[:happened]:
            durable.apply(each)
        cut.names_lost += len(waiting) - happened
    return live, durable, sure


def _durable(contents: Path, entry: Entry) -> bytes:
    """Content as of the last sync; before the first the file is as long as when it got its name."""
    content = _read(contents / str(entry.file))
    return bytes(entry.size) if content is None else content


def _read_live(live_files: dict[Entry, Path], entry: Entry) -> bytes | None:
    return _read(live_files[entry], entry.inode) if entry in live_files else None


def _unchanged(old: bytes, new: bytes | None) -> bytes:
    """Return the common beginning of both; the whole old content if the new one is missing."""
    if new is None or new == old:
        return old
    return old[
        : next((at for at, (before, after) in enumerate(zip(old, new, strict=False)) if before != after), len(old))
    ]


def _read(path: Path, inode: int | None = None) -> bytes | None:
    """Return the content of a file; None if it is missing or, by its inode, another one."""
    try:
        with path.open("rb") as file:
            if inode is not None and os.fstat(file.fileno()).st_ino != inode:
                return None
            return file.read()
    except FileNotFoundError:
        return None


def _mixed(old: bytes, new: bytes, style: str, random: Random) -> bytes:
    size = random.choice((len(old), len(new)))
    if style == "all is kept":
        return new[:size].ljust(size, b"\0")
    old, new = old[:size].ljust(size, b"\0"), new[:size].ljust(size, b"\0")
    if style == "nothing unsynced is kept":
        return old
    parts = []
    for at in range(0, size, PAGE):
        before, after = old[at : at + PAGE], new[at : at + PAGE]
        if before == after or random.random() < 0.5:
            parts.append(after)
        elif style == "pages" or random.random() < 0.5:
            parts.append(before)
        else:
            sectors = range(0, len(after), SECTOR)
            parts += [random.choice((before, after))[sector : sector + SECTOR] for sector in sectors]
    return b"".join(parts)
