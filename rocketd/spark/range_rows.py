"""Rows that name ranges of queues instead of carrying messages: the archive's sink reads those ranges itself.

``.schema("range string")`` requests them. Archived messages then bypass Spark's row format, whose conversion costs more
than the reading and writing. A row holds everything a task needs to read the range, including the options of the read.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple

import pyarrow as pa

from rocketd.spark.errors import ArchiveError, OptionError
from rocketd.spark.options import READ_OPTIONS, ReadOptions
from rocketd.spark.planning.losses import on_loss
from rocketd.spark.ranges import Queue, QueueRange
from rocketd.spark.source import Source

RANGE = "range"
"""Name of the column."""

SCHEMA = pa.schema([(RANGE, pa.string())])


def are_ranges(schema: pa.Schema) -> bool:
    """Tell whether rows of this schema are ranges."""
    return bool(schema.equals(SCHEMA))


def range_rows(given: Mapping[str, str], parts: Sequence[QueueRange], *, stream: bool) -> pa.RecordBatch:
    """Return one row for each range. A row holds the read options as given, and whether the read is a stream."""
    said = [
        {"options": dict(given), "stream": stream, "queue": astuple(one.queue), "offsets": [one.start, one.end]}
        for one in parts
    ]
    return pa.RecordBatch.from_arrays([pa.array(map(json.dumps, said), pa.string())], schema=SCHEMA)


def check_no_secret(given: Mapping[str, str]) -> None:
    """Raise OptionError for a secret among the options, since rows can be shown and stored."""
    secrets = {one.name.lower(): one.name for one in READ_OPTIONS if one.secret}
    for name in given:
        if name.lower() in secrets:
            raise OptionError(
                f"option {secrets[name.lower()]} would stand in the rows of column {RANGE}: give option credentialsFile"
            )


class RangeRowReader:
    """Reads the messages of range rows. Not thread-safe."""

    def __init__(self) -> None:
        self._sources: dict[str, Source] = {}

    def read(self, row: str | None, columns: Sequence[str]) -> tuple[Queue, Iterator[pa.RecordBatch]]:
        """Return the queue of a row and its messages, in batches of these columns. The options of the read apply.

        Raises ArchiveError if the row is not a range. Iterating raises the errors of `Source.read`.
        """
        try:
            said = json.loads(row or "")
            queue = Queue(*said["queue"])
            part = QueueRange(queue, *said["offsets"])
            given, stream = said["options"], said["stream"]
        except (ValueError, TypeError, KeyError):
            raise ArchiveError(f"column {RANGE} has a row that no read made: {row!r}") from None
        key = json.dumps(given, sort_keys=True)
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = Source(ReadOptions.parse(given, stream=stream))
        return queue, source.read(part, columns, on_loss(source.options.fail_on_data_loss))

    def close(self) -> None:
        """Close files and connections."""
        for source in self._sources.values():
            source.close()
