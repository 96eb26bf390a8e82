"""Findings of an examination of a stopped store. A finding is one wrong or unusual thing at one place.

The values hold the words for the operator.
"""

import enum
import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

_REPAIR = ("rocketd", "store", "repair", "--write")
SHOWN_OF_A_KIND = 20
"""Further findings of one kind in one file are only counted."""


class Severity(enum.Enum):
    """Severity of a finding."""

    DAMAGE = "damage"
    NOTE = "note"
    """Normal after a crash, a deleted topic or expired files. No loss is known."""


class Disorder(enum.Enum):
    """Kinds of findings, named by the thing in disorder."""

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
    """Remedy for a finding."""

    NONE = "none"
    START = "start"
    REPAIR = "repair"
    REPLACE = "replace"
    BACKUP = "backup"

    def advice(self, root: str, config: str | None = None) -> str:
        """Return the advice in words, empty if nothing needs to be done. ``config`` is the broker's configuration file."""
        options = [] if config is None else ["--config", config]
        return {
            Remedy.NONE: "",
            Remedy.START: "the next start of the broker repairs this",
            Remedy.REPAIR: f"run: {shlex.join([*_REPAIR, *options, root])}",
            Remedy.REPLACE: f"run: {shlex.join([*_REPAIR, '--replace-damaged', *options, root])}",
            Remedy.BACKUP: "this tool cannot repair it: restore the file from a backup, if there is one",
        }[self]


class Finding(msgspec.Struct, frozen=True):
    """One finding.

    - `path` names the file, `position` the byte in it.
    - `physical_offset` and `size` are the bytes of the log, for findings about the log; otherwise -1.
    - `queue` is (topic, queue id), for findings about a queue.
    - `queue_offset` is the queue offset the record should have.
    """

    severity: Severity
    problem: Disorder
    remedy: Remedy
    path: str
    position: int
    text: str
    physical_offset: int = -1
    size: int = -1
    queue: tuple[str, int] | None = None
    queue_offset: int = -1

    def line(self, root: str, config: str | None = None) -> str:
        """Return the finding as one line of text. The file is named relative to the store's directory."""
        advice = self.remedy.advice(root, config)
        where = os.path.relpath(self.path, root)
        return f"{self.severity.value}: {where} at {self.position}: {self.text}" + (f"; {advice}" if advice else "")


def shortened(findings: Iterable[Finding], shown: int = SHOWN_OF_A_KIND) -> Iterator[Finding]:
    """Yield the first `shown` findings of each kind, remedy and file, and finally the number of the others."""
    counts: Counter[tuple[Severity, Disorder, Remedy, str]] = Counter()
    for finding in findings:
        key = (finding.severity, finding.problem, finding.remedy, finding.path)
        counts[key] += 1
        if counts[key] <= shown:
            yield finding
    for (severity, problem, remedy, path), count in counts.items():
        if count > shown:
            yield Finding(severity, problem, remedy, path, 0, f"{count - shown} more findings of kind {problem.value}")
