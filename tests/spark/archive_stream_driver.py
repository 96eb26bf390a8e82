"""A streaming query from a store into an archive, as a separate program that can be killed.

Its arguments are store, archive, checkpoint and schema.
"""

import sys

import rocketd.spark
from rocketd.spark.archive.format.settings import DEFAULT_COLUMNS
from rocketd.spark.columns import ddl

MESSAGES = ddl(DEFAULT_COLUMNS)
RANGES = "range string"


def start(spark, store, archive, checkpoint, schema=MESSAGES, **options):
    """The query, available now, some hundred messages at a time."""
    given = {"store": store, "subscribe": "orders", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "400"}
    frame = spark.readStream.format("rocketd").options(**given).schema(schema).load()
    return (
        frame.writeStream.format("rocketd")
        .options(archive=archive, checkpointLocation=checkpoint, **options)
        .trigger(availableNow=True)
        .start()
    )


def main():
    store, archive, checkpoint, schema = sys.argv[1:]
    spark = rocketd.spark.session("local[2,3]", "stream")
    start(spark, store, archive, checkpoint, schema).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
