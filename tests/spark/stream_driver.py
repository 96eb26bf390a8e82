"""One run of a streaming query, to be killed: NAMESRV TOPIC DIRECTORY STOP.

Reads the topic into an archive below the directory, until the file STOP is there and all is read. Prints a line when the
query runs, and one for every batch.
"""

import os
import sys
import threading

import rocketd.spark
from rocketd.spark.columns import ddl

COLUMNS = (
    "topic",
    "broker",
    "queue_id",
    "queue_offset",
    "commit_log_offset",
    "store_size",
    "store_time",
    "body",
    "raw",
)

namesrv, topic, directory, stop = sys.argv[1:]
spark = rocketd.spark.session("local[2,3]", "stream", {"spark.sql.shuffle.partitions": "2"}, driver_memory="1g")
frame = (
    spark.readStream.format("rocketd")
    .options(
        namesrv=namesrv, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="1000", minPartitions="2"
    )
    .schema(ddl(COLUMNS))
    .load()
)
query = (
    frame.writeStream.format("rocketd")
    .option("archive", f"{directory}/archive")
    .option("checkpointLocation", f"{directory}/checkpoint")
    .start()
)
print("running", flush=True)
pause = threading.Event()
while not os.path.exists(stop):
    assert query.isActive, query.exception()
    pause.wait(0.2)
query.processAllAvailable()
query.stop()
print("done", flush=True)
spark.stop()
