"""The ledger of a sink: batches begun, messages stored and batches done, in lines that survive a crash.

An entry is one line: the CRC-32 of the JSON text in eight hexadecimal digits, a blank, and the JSON text. Only the last
line can be cut short by a crash; it is removed when the ledger is opened. A bad line before good ones is damage. The
first entry identifies the owner. Entries hold only numbers and names: the messages are in the staged files.
"""

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rocketd.spark.ranges import Queue
from rocketd.spark.sink.effectively_once.files import replace_durably, sync_folder
from rocketd.spark.sink.problems import SinkError

_VERSION: Final = 1
_REWRITTEN_OVER: Final = 1 << 20
"""Ledgers larger than this (bytes) are rewritten with only the current entries."""


@dataclass(frozen=True, slots=True)
class LedgerOwner:
    """The owner of a ledger: the sink, the name servers, the topic ("" if rows name it), and the streaming query."""

    sink: str
    namesrv: tuple[str, ...]
    topic: str
    query: str = ""


@dataclass(frozen=True, slots=True)
class Begun:
    """A batch to send: its staged files in order, each with its number of rows; and its queues.

    A queue is listed with its end before the first send of the batch. `BatchProgress` names a queue by its place in
    that list.
    """

    batch: str
    files: tuple[tuple[str, int], ...]
    queues: tuple[tuple[Queue, int], ...]

    @property
    def rows(self) -> int:
        """The number of messages in the batch."""
        return sum(rows for _, rows in self.files)


@dataclass(slots=True)
class BatchProgress:
    """The progress of a batch. `sent` maps the place of a queue to a message number and an offset.

    All messages of the queue up to this number are certainly stored. The offset is the one after the last of them.
    """

    begun: Begun
    sent: dict[int, tuple[int, int]] = field(default_factory=dict)


class Ledger:
    """The ledger in one folder, open for writing. The caller holds the sink's lock.

    Raises SinkError for a damaged ledger, or one of another owner.
    """

    def __init__(self, path: str, identity: LedgerOwner) -> None:
        self._path = path
        self.done: set[str] = set()
        """Finished batches without a number: those of batch writes."""
        self._last_number = -1
        self.open_batch: BatchProgress | None = None
        """The batch that is begun but not done."""
        entries, good = _read(path)
        if entries:
            _check(path, _identity(entries[0], path), identity)
            for entry in entries[1:]:
                self._take_in(entry)
        self._file = open(path, "ab")  # noqa: SIM115 - open as long as this object
        if good < os.path.getsize(path):
            self._file.truncate(good)
        if not entries:
            self._append(_identity_entry(identity))
            sync_folder(os.path.dirname(path))
        self.sync()

    def is_done(self, batch: str) -> bool:
        """Tell whether this batch is done. A numbered batch is also done if a later one is."""
        return batch in self.done or (batch.isdigit() and int(batch) <= self._last_number)

    def begin(self, begun: Begun) -> BatchProgress:
        """Record that a batch will be sent from now on. It is on the disk when this returns."""
        if self._file.tell() > _REWRITTEN_OVER:
            self._rewrite()
        self._append(
            {
                "entry": "begin",
                "batch": begun.batch,
                "files": [[name, rows] for name, rows in begun.files],
                "queues": [[queue.topic, queue.broker, queue.queue_id, end] for queue, end in begun.queues],
            }
        )
        self.sync()
        self.open_batch = BatchProgress(begun)
        return self.open_batch

    def note_sent(self, sent: Mapping[int, tuple[int, int]]) -> None:
        """Record the stored messages of the open batch.

        This need not reach the disk: without it, more is searched at the brokers.
        """
        assert self.open_batch is not None
        self._append({"entry": "sent", "queues": {str(place): list(two) for place, two in sent.items()}})
        self.open_batch.sent.update(sent)

    def finish(self) -> None:
        """Record that the open batch is done. It is on the disk when this returns."""
        assert self.open_batch is not None
        batch = self.open_batch.begun.batch
        self._append({"entry": "done", "batch": batch})
        self.sync()
        self._note_done(batch)

    def sync(self) -> None:
        """Bring all entries to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _append(self, entry: Mapping[str, Any]) -> None:
        self._file.write(_line(entry))
        self._file.flush()

    def _rewrite(self) -> None:
        """Replace a long ledger with a new one, between two batches: the owner and the finished batches."""
        done = sorted(self.done) + ([str(self._last_number)] if self._last_number >= 0 else [])
        with open(self._path, "rb") as old:
            first = old.readline()
        self._file.close()
        replace_durably(self._path, first + b"".join(_line({"entry": "done", "batch": batch}) for batch in done))
        self._file = open(self._path, "ab")  # noqa: SIM115 - as above

    def _take_in(self, entry: Mapping[str, Any]) -> None:
        kind = entry.get("entry")
        try:
            if kind == "begin":
                self.open_batch = BatchProgress(_begun(entry))
            elif kind == "sent" and self.open_batch is not None:
                for place, (number, end) in entry["queues"].items():
                    self.open_batch.sent[int(place)] = (int(number), int(end))
            elif kind == "done":
                self._note_done(entry["batch"])
            else:
                raise ValueError(f"an entry {kind!r} here")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SinkError(f"{self._path} has an entry that makes no sense ({error}): was it edited?") from error

    def _note_done(self, batch: str) -> None:
        if batch.isdigit():
            self._last_number = max(self._last_number, int(batch))
        else:
            self.done.add(batch)
        if self.open_batch is not None and self.open_batch.begun.batch == batch:
            self.open_batch = None


def _line(entry: Mapping[str, Any]) -> bytes:
    text = json.dumps(entry, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _read(path: str) -> tuple[list[dict[str, Any]], int]:
    """Return the ledger's entries, and their length in bytes. Raises SinkError for a bad line before a good one."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return [], 0
    entries: list[dict[str, Any]] = []
    good = 0
    bad = 0
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        entry = _entry(line)
        if entry is None:
            bad = bad or number
        elif bad:
            raise SinkError(
                f"{path} is damaged in line {bad}: the messages that the sink has sent are no longer known; "
                "choose another sinkId"
            )
        else:
            entries.append(entry)
            good += len(line)
    return entries, good


def _entry(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n") or line[8:9] != b" " or line[:8] != b"%08x" % zlib.crc32(line[9:-1]):
        return None
    entry = json.loads(line[9:-1])
    return entry if isinstance(entry, dict) else None


def _identity_entry(identity: LedgerOwner) -> dict[str, Any]:
    return {
        "entry": "sink",
        "version": _VERSION,
        "sink": identity.sink,
        "namesrv": list(identity.namesrv),
        "topic": identity.topic,
        "query": identity.query,
    }


def _identity(entry: Mapping[str, Any], path: str) -> LedgerOwner:
    if entry.get("entry") != "sink" or entry.get("version") != _VERSION:
        raise SinkError(
            f"{path} is not a ledger of this version ({_VERSION}): use the version of rocketd that wrote it"
        )
    return LedgerOwner(entry["sink"], tuple(entry["namesrv"]), entry["topic"], entry["query"])


def _check(path: str, was: LedgerOwner, now: LedgerOwner) -> None:
    """Raise SinkError for a ledger of another owner. Name servers may change, but not all of them at once."""
    other = ""
    if was.topic != now.topic:
        other = f"writes to {_topic(was.topic)}, and this write to {_topic(now.topic)}"
    elif not {*was.namesrv} & {*now.namesrv}:
        other = f"writes to the cluster of {';'.join(was.namesrv)}, and this write to that of {';'.join(now.namesrv)}"
    elif was.query != now.query:
        other = f"belongs to {_query(was.query)}, and this is {_query(now.query)}"
    if other:
        raise SinkError(f"sink {was.sink} in {os.path.dirname(path)} {other}: give this write another sinkId")


def _topic(topic: str) -> str:
    return f"topic {topic}" if topic else "the topics of column topic"


def _query(query: str) -> str:
    return f"the streaming query {query} (a new checkpoint makes a new query)" if query else "a batch write"


def _begun(entry: Mapping[str, Any]) -> Begun:
    return Begun(
        entry["batch"],
        tuple((name, int(rows)) for name, rows in entry["files"]),
        tuple((Queue(topic, broker, int(queue_id)), int(end)) for topic, broker, queue_id, end in entry["queues"]),
    )
