"""What an examination of a stopped store says: one finding is one thing that is wrong, or odd, at one place.

Answers to nothing in Apache's code. Values only; the words are for the operator.
"""

import enum
import os
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

SHOWN_OF_A_KIND = 20
"""Findings of one kind in one file beyond these are only counted."""


class Severity(enum.Enum):
    """Whether something is wrong."""

    DAMAGE = "damage"
    NOTE = "note"
    """Normal after a crash, a deleted topic or expired files: nothing is lost that can be told."""


class Problem(enum.Enum):
    """Kinds of findings, by what is not as it should be."""

    FILE_SIZE = "file-size"
    FILE_MISSING = "file-missing"
    RECORD = "record"
    BODY_CRC = "body-crc"
    TAIL = "tail"
    FILLER = "filler"
    STORE_TIME = "store-time"
    QUEUE_MISSING = "queue-missing"
    QUEUE_ENTRY = "queue-entry"
    RECORD_PLACE = "record-place"
    QUEUE_TAGS = "queue-tags"
    QUEUE_LACKS = "queue-lacks"
    QUEUE_AHEAD = "queue-ahead"
    INDEX_HEADER = "index-header"
    INDEX_CHAIN = "index-chain"
    INDEX_ENTRY = "index-entry"
    INDEX_LACKS = "index-lacks"
    INDEX_MISSING = "index-missing"
    CHECKPOINT = "checkpoint"


class Remedy(enum.Enum):
    """What to do about a finding."""

    NONE = "none"
    START = "start"
    REPAIR = "repair"
    REPLACE = "replace"
    BACKUP = "backup"

    def advice(self, root: str) -> str:
        """Return what to do, in words; empty where there is nothing to do."""
        return {
            Remedy.NONE: "",
            Remedy.START: "the next start of the broker puts this right",
            Remedy.REPAIR: f"run: rocketd store repair --write {root}",
            Remedy.REPLACE: f"run: rocketd store repair --write --replace-damaged {root}",
            Remedy.BACKUP: "nothing here can bring this back: restore the file from a backup if there is one",
        }[self]


class Finding(msgspec.Struct, frozen=True):
    """One finding.

    `path` names the file and `position` the byte in it. `physical_offset` and `size` are the bytes of the log that a
    finding about the log means, -1 in others; `queue` is the topic and queue id that one about a queue means, and
    `queue_offset` the place in it that a record should name.
    """

    severity: Severity
    problem: Problem
    remedy: Remedy
    path: str
    position: int
    text: str
    physical_offset: int = -1
    size: int = -1
    queue: tuple[str, int] | None = None
    queue_offset: int = -1

    def line(self, root: str) -> str:
        """Return the finding as one line of text, the file named from the store's directory on."""
        advice = self.remedy.advice(root)
        where = os.path.relpath(self.path, root)
        return f"{self.severity.value}: {where} at {self.position}: {self.text}" + (f"; {advice}" if advice else "")


def shortened(findings: Iterable[Finding], shown: int = SHOWN_OF_A_KIND) -> Iterator[Finding]:
    """Yield the first findings of each kind, remedy and file, and at the end how many others there were."""
    counts: Counter[tuple[Severity, Problem, Remedy, str]] = Counter()
    for finding in findings:
        key = (finding.severity, finding.problem, finding.remedy, finding.path)
        counts[key] += 1
        if counts[key] <= shown:
            yield finding
    for (severity, problem, remedy, path), count in counts.items():
        if count > shown:
            yield Finding(severity, problem, remedy, path, 0, f"{count - shown} more findings of kind {problem.value}")
