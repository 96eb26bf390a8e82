"""Streams into Delta and Iceberg tables, each batch once: functions for ``writeStream.foreachBatch``.

Both table formats keep, in the same atomic commit as the rows, what was written for which query and batch: Delta in its
transaction identifiers, Iceberg in the properties of the snapshot. A batch that Spark runs again after a crash is found
there and not written twice. The tables are written by the formats' own Python packages (``deltalake``, ``pyiceberg``) in
the driver, without a jar; a batch has to fit into the driver's memory, so bound it with ``maxBytesPerTrigger``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rocketd.spark.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WriteBatch = Callable[["DataFrame", int], None]
"""What ``foreachBatch`` takes: the rows of a batch, and its number."""

QUERY_PROPERTY = "rocketd.query"
BATCH_PROPERTY = "rocketd.batch"


def delta_batches(
    table: str, query: str, *, partition_by: Sequence[str] = (), storage_options: Mapping[str, str] | None = None
) -> WriteBatch:
    """Append batches to the Delta table at this path or URL, which is made with the first.

    `query` names the stream: one name for one checkpoint, kept over restarts. Raises SparkError when the package
    ``deltalake`` is not there.
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
    """Append batches to an Iceberg table that ``pyiceberg`` has loaded or made; `query` as for Delta.

    The stream's columns are those of the table, by name. Snapshots that name the query must not all be expired while
    the stream goes on: the newest of them says which batch was the last.
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
