"""What a task reads, and how: the same for batches and streams."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from rocketd.spark.planning.losses import on_loss
from rocketd.spark.range_rows import RANGE, range_rows
from rocketd.spark.ranges import QueueRange
from rocketd.spark.source import Source

if TYPE_CHECKING:
    import pyarrow as pa


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
            yield from shaped(source.read(part, columns, lost))
    finally:
        source.close()
