"""A program run as `venv/bin/python job.py`: the environment is not activated, so PATH has another Python.

Usage: plain_driver.py HOW STORE TOPIC. HOW is one of
- register: Spark's own session, with `rocketd.spark.register`;
- read: Spark's own session, with `rocketd.spark.read`;
- stream: the session of `rocketd.spark` with its defaults, a streaming query whose first worker is killed.
It prints one line.
"""

import os
import signal
import sys

from pyspark import TaskContext
from pyspark.sql import SparkSession

import rocketd.spark
from rocketd.spark.errors import SparkError
from rocketd.spark.jobs.running.map_batches import map_batches


def rows(how, store, topic):
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
    try:
        if how == "read":
            return rocketd.spark.read(spark, columns=["tags"], store=store, subscribe=topic).count()
        rocketd.spark.register(spark)
        source = spark.read.format("rocketd").options(store=store, subscribe=topic)
        return source.schema("tags string").load().count()
    finally:
        spark.stop()


def rows_of_stream(store, topic):
    def killed_once(batches):
        if TaskContext.get().attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    spark = rocketd.spark.session(conf={"spark.sql.shuffle.partitions": "1"})
    try:
        frame = rocketd.spark.read_stream(
            spark, columns=["tags"], store=store, subscribe=topic, startingOffsets="earliest"
        )
        query = (
            map_batches(frame, killed_once, "tags string")
            .writeStream.format("memory")
            .queryName("seen")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return spark.table("seen").count()
    finally:
        spark.stop()


if __name__ == "__main__":
    how, *where = sys.argv[1:]
    try:
        print("rows", rows_of_stream(*where) if how == "stream" else rows(how, *where))
    except SparkError as error:
        print("refused", error)
    except Exception as error:
        print("failed", str(error).replace("\n", " ")[:200])
