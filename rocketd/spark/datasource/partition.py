"""What a task reads, and how: the same for batches and streams."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from rocketd.spark.planning.losses import on_loss
from rocketd.spark.range_rows import RANGE, range_rows
from rocketd.spark.ranges import QueueRange
from rocketd.spark.source import Source

if TYPE_CHECKING:
    import pyarrow as pa

_PIECE_BYTES: Final = 512 * 1024
"""What crosses to the JVM at once. It copies a batch several times over, which costs a tenth to a fifth less CPU where the
batch stays in a core's cache. Parsing gains from larger ones.
"""


class RangesPartition(InputPartition):
    """The ranges of one task, read one after the other."""

    def __init__(self, ranges: Sequence[QueueRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)

    def __repr__(self) -> str:
        return f"RangesPartition({', '.join(map(str, self.ranges))})"


def read_partition(
    source: Source,
    schema: StructType,
    columns: Sequence[str],
    given: Mapping[str, str],
    partition: InputPartition | None,
) -> Iterator["pa.RecordBatch"]:
    """The rows of a task, in batches: messages, or where the columns say so its ranges, with the `given` options. Nothing
    for the partition that stands for no work at all.
    """
    if not isinstance(partition, RangesPartition):
        return
    if columns == (RANGE,):
        yield range_rows(given, partition.ranges, stream=source.options.stream)
        return
    from rocketd.spark.datasource.shape import shaper

    shaped = shaper(schema)
    lost = on_loss(source.options.fail_on_data_loss)
    try:
        for part in partition.ranges:
            for batch in shaped(source.read(part, columns, lost)):
                yield from _pieces(batch)
    finally:
        source.close()


def _pieces(batch: "pa.RecordBatch") -> Iterator["pa.RecordBatch"]:
    """The batch in parts of about `_PIECE_BYTES`, not copied."""
    rows = batch.num_rows
    step = max(1, rows * _PIECE_BYTES // max(1, batch.nbytes))
    if step >= rows:
        yield batch
        return
    for begin in range(0, rows, step):
        yield batch.slice(begin, step)
