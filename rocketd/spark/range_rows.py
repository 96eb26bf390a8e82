"""Rows that name ranges of queues instead of bringing their messages: what an archive's sink reads for itself.

``.schema("range string")`` asks for them. A message that is archived so never passes through Spark's own rows, which
costs more than reading and writing it. A row says all that a task needs to read the range: the options of the read, too.
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
"""The column."""

SCHEMA = pa.schema([(RANGE, pa.string())])


def are_ranges(schema: pa.Schema) -> bool:
    """Whether rows of this schema are ranges."""
    return bool(schema.equals(SCHEMA))


def range_rows(given: Mapping[str, str], parts: Sequence[QueueRange], *, stream: bool) -> pa.RecordBatch:
    """A row for each range, with the options of the read as they were given, and whether that is a stream."""
    said = [
        {"options": dict(given), "stream": stream, "queue": astuple(one.queue), "offsets": [one.start, one.end]}
        for one in parts
    ]
    return pa.RecordBatch.from_arrays([pa.array(map(json.dumps, said), pa.string())], schema=SCHEMA)


def check_no_secret(given: Mapping[str, str]) -> None:
    """Raise OptionError for a secret among the options: rows can be shown, and stored."""
    secrets = {one.name.lower(): one.name for one in READ_OPTIONS if one.secret}
    for name in given:
        if name.lower() in secrets:
            raise OptionError(
                f"option {secrets[name.lower()]} would stand in the rows of column {RANGE}: give option credentialsFile"
            )


class RangeReader:
    """Reads the messages of such rows. Not for several threads at once."""

    def __init__(self) -> None:
        self._sources: dict[str, Source] = {}

    def read(self, row: str | None, columns: Sequence[str]) -> tuple[Queue, Iterator[pa.RecordBatch]]:
        """The queue of a row, and the messages as the options of the read want them, in batches of these columns.

        Raises ArchiveError for a row that is no range; reading raises as `Source.read`.
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
        """Let go of files and connections."""
        for source in self._sources.values():
            source.close()
