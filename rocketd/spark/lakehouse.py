"""Streams into Delta and Iceberg tables, each batch once: functions for ``writeStream.foreachBatch``.

Both table formats record the query and the batch in the same atomic commit as the rows. Delta uses transaction
identifiers, Iceberg the properties of the snapshot. If Spark runs a batch again after a crash, the record is found and
the batch is not written twice.

The tables are written in the driver by the formats' Python packages (``deltalake``, ``pyiceberg``), without a jar. A
batch must fit into the driver's memory, so limit it with ``maxBytesPerTrigger``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rocketd.spark.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WriteBatch = Callable[["DataFrame", int], None]
"""The function type of ``foreachBatch``: called with the rows of a batch and the batch number."""

QUERY_PROPERTY = "rocketd.query"
BATCH_PROPERTY = "rocketd.batch"


def delta_batches(
    table: str, query: str, *, partition_by: Sequence[str] = (), storage_options: Mapping[str, str] | None = None
) -> WriteBatch:
    """Append batches to the Delta table at this path or URL. The first batch creates the table.

    `query` names the stream: one name for each checkpoint, kept across restarts. Raises SparkError if the package
    ``deltalake`` is not installed.
    """
    try:
        import deltalake
    except ImportError as error:
        raise SparkError("Delta tables need the package deltalake: pip install deltalake") from error
    options = dict(storage_options or {})

    def write(frame: "DataFrame", batch: int) -> None:
        if deltalake.DeltaTable.is_deltatable(table, options):
            written = deltalake.DeltaTable(table, storage_options=options).transaction_version(query)
            if written is not None and written >= batch:
                return
        deltalake.write_deltalake(
            table,
            frame.toArrow(),
            mode="append",
            partition_by=list(partition_by) or None,
            storage_options=options,
            commit_properties=deltalake.CommitProperties(app_transactions=[deltalake.Transaction(query, batch)]),
        )

    return write


def iceberg_batches(table: Any, query: str) -> WriteBatch:
    """Append batches to an Iceberg table that ``pyiceberg`` has loaded or created; `query` as for Delta.

    The stream's columns must be those of the table, by name. While the stream runs, do not expire every snapshot of
    this query: the newest one holds the number of the last batch.
    """

    def write(frame: "DataFrame", batch: int) -> None:
        table.refresh()
        written = _last_batch(table, query)
        if written is not None and written >= batch:
            return
        properties = {QUERY_PROPERTY: query, BATCH_PROPERTY: str(batch)}
        rows = frame.toArrow()
        if rows.num_rows:
            table.append(rows, snapshot_properties=properties)

    return write


def _last_batch(table: Any, query: str) -> int | None:
    snapshot = table.current_snapshot()
    while snapshot is not None:
        properties = snapshot.summary.additional_properties if snapshot.summary else {}
        if properties.get(QUERY_PROPERTY) == query:
            return int(properties[BATCH_PROPERTY])
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return None
