"""The offsets of a stream, as the checkpoint keeps them.

``{"offsets": {topic: {broker: {queue: offset}}}, "started": {…}, "stored": {…}, "v": 1}``: `offsets` is the end of a
micro-batch. `started` holds the start of each queue that did not start at the end of the micro-batch before. These are new
queues, and with failOnDataLoss=false queues that had lost messages. So a repeated batch reads the same messages. `stored`
holds the store time (ms) of the message before each offset, if it is known: a queue that was deleted and recreated has
another message there. Entries of earlier versions lack it. Spark compares the text: keys have a fixed order, and all
numbers are integers.
"""

from collections.abc import Mapping
from typing import Any, Final

from rocketd.spark.errors import SparkError
from rocketd.spark.ranges import Offsets, Queue, QueueRange, offsets_from_json, offsets_to_json

VERSION: Final = 1


def encode(
    offsets: Mapping[Queue, int],
    started: Mapping[Queue, int] | None = None,
    stored: Mapping[Queue, int] | None = None,
) -> dict[str, Any]:
    """Return the entry for the checkpoint."""
    result: dict[str, Any] = {"offsets": offsets_to_json(offsets)}
    if started:
        result["started"] = offsets_to_json(started)
    if stored:
        result["stored"] = offsets_to_json(stored)
    result["v"] = VERSION
    return result


def decode(kept: Mapping[str, Any]) -> tuple[Offsets, Offsets]:
    """Return the offsets and the starts of a checkpoint entry. Raises SparkError for an entry of another version."""
    if kept.get("v") != VERSION or "offsets" not in kept:
        raise SparkError(
            "the checkpoint's offsets are not of this version of rocketd: start the query with another checkpointLocation"
        )
    return offsets_from_json(kept["offsets"]), offsets_from_json(kept.get("started", {}))


def stored_times(kept: Mapping[str, Any]) -> dict[Queue, int]:
    """Return the store times (ms) of a checkpoint entry. Raises SparkError for an entry of another shape."""
    return offsets_from_json(kept.get("stored", {}))


def batch_ranges(start: Mapping[str, Any], end: Mapping[str, Any]) -> list[QueueRange]:
    """Return the ranges of the micro-batch between two entries, sorted, without empty ranges."""
    starts, _ = decode(start)
    ends, started = decode(end)
    starts |= started
    return [
        QueueRange(queue, starts[queue], ends[queue])
        for queue in sorted(ends)
        if ends[queue] > starts.get(queue, ends[queue])
    ]
