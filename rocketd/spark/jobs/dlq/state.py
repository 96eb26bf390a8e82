"""The progress of sending dead letters again: how far each queue was sent, so that no message is sent twice.

It is kept in a file beside the sink's ledger. The ranges are recorded before anything is sent; an interrupted run
resumes with exactly these. Each filter has a separate progress, because it selects other messages.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocketd.spark.archive.format.durable import make_dirs, replace
from rocketd.spark.errors import OptionError
from rocketd.spark.ranges import Offsets, Queue, QueueRange, offsets_from_json, offsets_to_json

_FILE = "redriven.json"


def filter_name(**parts: object) -> str:
    """Return a short name of a filter and its target; the same parts always give the same name."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of sending: its number in the state's directory, and its ranges."""

    name: str
    number: int
    ranges: tuple[QueueRange, ...]

    @property
    def job_id(self) -> str:
        """The name by which the sink recognizes this write."""
        return f"{self.name}-{self.number}"


class RedriveState:
    """The state in one directory.

    Raises OSError; `begin` raises OptionError while a step of another filter is unfinished.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._path = os.path.join(directory, _FILE)
        try:
            with open(self._path, encoding="utf-8") as file:
                self._content = json.load(file)
        except FileNotFoundError:
            self._content = {"done": {}, "numbers": {}, "begun": None}

    def done(self, name: str) -> Offsets:
        """Return the offsets up to which messages were sent with this filter."""
        return offsets_from_json(self._content["done"].get(name, {}))

    def begin(self, name: str, ranges: Sequence[QueueRange]) -> Step:
        """Return the next step: the interrupted one, or the rest of these ranges, which is recorded.

        Raises OptionError if a step with another filter was interrupted.
        """
        begun = self._content["begun"]
        if begun is not None:
            if begun["name"] != name:
                raise OptionError(
                    f"a redriving with another filter was cut short in {self._directory}: repeat that first, with the same "
                    "arguments, or name another directory by --state"
                )
            starts, ends = offsets_from_json(begun["starts"]), offsets_from_json(begun["ends"])
            return Step(name, begun["number"], tuple(QueueRange(queue, starts[queue], ends[queue]) for queue in starts))
        left = remaining(ranges, self.done(name))
        number = self._content["numbers"].get(name, 0) + 1
        if left:
            self._content["begun"] = {
                "name": name,
                "number": number,
                "starts": offsets_to_json({one.queue: one.start for one in left}),
                "ends": offsets_to_json({one.queue: one.end for one in left}),
            }
            self._save()
        return Step(name, number, left)

    def finish(self, step: Step) -> None:
        """Record that a step is done."""
        done = self.done(step.name)
        done |= {one.queue: max(one.end, done.get(one.queue, 0)) for one in step.ranges}
        self._content["done"][step.name] = offsets_to_json(done)
        self._content["numbers"][step.name] = step.number
        self._content["begun"] = None
        self._save()

    def _save(self) -> None:
        make_dirs(self._directory)
        replace(self._path, json.dumps(self._content, indent=1).encode())


def remaining(ranges: Sequence[QueueRange], done: Mapping[Queue, int]) -> tuple[QueueRange, ...]:
    """Return the parts of the ranges that were not sent, without empty ones."""
    cut = (QueueRange(one.queue, max(one.start, done.get(one.queue, 0)), one.end) for one in ranges)
    return tuple(one for one in cut if one.count)
