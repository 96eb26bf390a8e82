"""A directory of JSON files numbered without gaps, each complete or missing, and quick to open with thousands of files.

The single files are the truth. Summaries hold the content of a hundred files, or of a hundred times as many, and are
read instead. A missing or damaged summary only costs time.
"""

import contextlib
import json
import os
import re
from typing import Any

from rocketd.spark.archive.format.durable import make_dirs, replace, write_once
from rocketd.spark.archive.format.layout import NUMBER_DIGITS, numbered
from rocketd.spark.errors import ArchiveError

FOLD = 100
"""The number of files, or of summaries of the level below, in a summary."""

_NAME = re.compile(rf"\d{{{NUMBER_DIGITS}}}\.json")
_SUMMARY = re.compile(r"(\d+)-(\d+)\.json")

Entry = dict[str, Any]


class Journal:
    """The numbered files of one directory. `append` needs a lock held by the caller; reading needs none."""

    def __init__(self, directory: str, fold: int = FOLD) -> None:
        self.directory = directory
        self._fold = fold
        self.entries: list[Entry] = []
        """All entries read or appended; the position is the number."""

    def refresh(self) -> list[Entry]:
        """Read and return the entries appended since the last call.

        Raises ArchiveError if a number is missing or its file is damaged; OSError.
        """
        begin = len(self.entries)
        numbers = self._numbers()
        if numbers != list(range(len(numbers))):
            # Listing a directory while it grows may show gaps.
            numbers = self._numbers()
        later = numbers[begin:]
        if numbers[:begin] != list(range(begin)) or later != list(range(begin, begin + len(later))):
            known = set(numbers)
            lost = next(number for number in range(max([*numbers, begin - 1]) + 1) if number not in known)
            raise ArchiveError(f"{self._path(lost)} is missing: its commit is not known; bring the file back")
        found: list[Entry] = []
        summaries = self._summaries() if len(later) > 1 else {}
        while (number := begin + len(found)) < begin + len(later):
            found += self._summary(summaries, number, begin + len(later)) or [self._read(number)]
        self.entries += found
        return found

    def append(self, entry: Entry) -> int:
        """Write the next file and return its number. Raises ArchiveError if another process has written that number."""
        number = len(self.entries)
        make_dirs(self.directory)
        try:
            write_once(self._path(number), _encoded(entry))
        except FileExistsError:
            raise ArchiveError(f"{self._path(number)} has been written by another process; try again") from None
        self.entries.append(entry)
        span = self._fold
        while (number + 1) % span == 0:
            # The appended entry counts without the summary.
            with contextlib.suppress(OSError):
                self._summarise(number + 1 - span, number)
            span *= self._fold
        return number

    def sweep(self) -> None:
        """Remove leftovers of killed writers. The caller holds the lock."""
        for directory in (self.directory, self._summary_dir):
            with contextlib.suppress(FileNotFoundError):
                for name in os.listdir(directory):
                    if name.startswith(".") and name.endswith(".tmp"):
                        os.unlink(os.path.join(directory, name))

    @property
    def _summary_dir(self) -> str:
        return os.path.join(self.directory, "summary")

    def _path(self, number: int) -> str:
        return os.path.join(self.directory, numbered(number))

    def _numbers(self) -> list[int]:
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return []
        return sorted(int(name[:NUMBER_DIGITS]) for name in names if _NAME.fullmatch(name))

    def _read(self, number: int) -> Entry:
        path = self._path(number)
        with open(path, "rb") as file:
            try:
                entry = json.load(file)
            except ValueError as error:
                raise ArchiveError(f"{path} is damaged ({error}); bring the file back from a copy") from None
        if not isinstance(entry, dict):
            raise ArchiveError(f"{path} is damaged (not an object); bring the file back from a copy")
        return entry

    def _summaries(self) -> dict[int, list[int]]:
        """Return for each first number of a summary its last numbers, the largest first."""
        found: dict[int, list[int]] = {}
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._summary_dir):
                match = _SUMMARY.fullmatch(name)
                if match:
                    found.setdefault(int(match[1]), []).append(int(match[2]))
        for lasts in found.values():
            lasts.sort(reverse=True)
        return found

    def _summary(self, summaries: dict[int, list[int]], number: int, end: int) -> list[Entry]:
        """Return the entries of the widest usable summary that begins at a number; empty if there is none."""
        for last in summaries.get(number, ()):
            if last < end:
                with contextlib.suppress(OSError, ValueError), open(self._summary_path(number, last), "rb") as file:
                    entries = json.load(file)
                    if isinstance(entries, list) and len(entries) == last + 1 - number:
                        return entries
        return []

    def _summary_path(self, first: int, last: int) -> str:
        return os.path.join(self._summary_dir, f"{first}-{last}.json")

    def _summarise(self, first: int, last: int) -> None:
        make_dirs(self._summary_dir)
        replace(self._summary_path(first, last), _encoded(self.entries[first : last + 1]))


def _encoded(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
