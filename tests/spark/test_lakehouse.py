"""Streams into Delta and Iceberg tables, cut off between the table's commit and Spark's."""

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from rocketd.spark.columns import arrow_schema
from rocketd.spark.lakehouse import delta_batches, iceberg_batches
from tests.support.stores import write_store

COLUMNS = (
    "queue_id int, queue_offset bigint, tags string, body binary, store_time timestamp, properties map<string,string>"
)
NAMES = [part.split()[0] for part in COLUMNS.split(", ")]


class CutError(Exception):
    """Stands for a driver that is gone right after a batch was written."""


@pytest.fixture
def store(tmp_path):
    write_store(tmp_path / "store", 600, topic="Orders", queues=3)
    return tmp_path / "store"


def run(spark, store, checkpoint, write):
    frame = spark.readStream.format("rocketd").option("store", str(store)).option("subscribe", "Orders")
    frame = frame.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "200").schema(COLUMNS).load()
    query = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()


def run_with_a_cut(spark, store, checkpoint, write):
    """Ends in the second batch, after the table has it and before Spark knows, and starts again."""
    seen = []

    def cut(frame, batch):
        write(frame, batch)
        seen.append(batch)
        if batch == 1:
            raise CutError

    with pytest.raises(Exception, match="CutError"):
        run(spark, store, checkpoint, cut)
    assert seen == [0, 1]
    again = []

    def watched(frame, batch):
        again.append(batch)
        write(frame, batch)

    run(spark, store, checkpoint, watched)
    assert again == [1, 2]


def places(rows):
    return sorted(zip(rows["queue_id"].to_pylist(), rows["queue_offset"].to_pylist(), strict=True))


EVERY = sorted((queue, offset) for queue in range(3) for offset in range(200))


def test_delta(spark, store, tmp_path):
    table = str(tmp_path / "table")
    run_with_a_cut(spark, store, tmp_path / "checkpoint", delta_batches(table, "orders"))
    written = deltalake.DeltaTable(table)
    assert places(pa.table(written.to_pyarrow_table())) == EVERY
    assert written.version() == 2


def test_iceberg(spark, store, tmp_path):
    catalog = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("lake")
    table = catalog.create_table("lake.orders", schema=arrow_schema(NAMES))
    run_with_a_cut(spark, store, tmp_path / "checkpoint", iceberg_batches(table, "orders"))
    table.refresh()
    assert places(table.scan().to_arrow()) == EVERY
    assert len(table.snapshots()) == 3
