"""The offsets of a stream as its checkpoint keeps them.

``{"offsets": {topic: {broker: {queue: offset}}}, "started": {…}, "v": 1}``: `offsets` is where a micro-batch ended.
`started` says where it started those of its queues that did not start at the end of the one before: new queues, and with
failOnDataLoss=false those that had lost messages. So a batch that is run again reads the same. Spark compares the text:
keys are in a fixed order, and all numbers whole.
"""

from collections.abc import Mapping
from typing import Any, Final

from rocketd.spark.errors import SparkError
from rocketd.spark.ranges import Offsets, Queue, QueueRange, offsets_from_json, offsets_to_json

VERSION: Final = 1


def encode(offsets: Mapping[Queue, int], started: Mapping[Queue, int] | None = None) -> dict[str, Any]:
    """What goes into the checkpoint."""
    result: dict[str, Any] = {"offsets": offsets_to_json(offsets)}
    if started:
        result["started"] = offsets_to_json(started)
    result["v"] = VERSION
    return result


def decode(kept: Mapping[str, Any]) -> tuple[Offsets, Offsets]:
    """Offsets and starts of what a checkpoint has. Raises SparkError where it is not of this version."""
    if kept.get("v") != VERSION or "offsets" not in kept:
        raise SparkError(
            "the checkpoint's offsets are not of this version of rocketd: start the query with another checkpointLocation"
        )
    return offsets_from_json(kept["offsets"]), offsets_from_json(kept.get("started", {}))


def batch_ranges(start: Mapping[str, Any], end: Mapping[str, Any]) -> list[QueueRange]:
    """The ranges of the micro-batch between two entries, sorted, none empty."""
    starts, _ = decode(start)
    ends, started = decode(end)
    starts |= started
    return [
        QueueRange(queue, starts[queue], ends[queue])
        for queue in sorted(ends)
        if ends[queue] > starts.get(queue, ends[queue])
    ]
