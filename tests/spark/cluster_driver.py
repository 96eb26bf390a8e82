"""A driver for the tests of a standalone cluster, as a separate process: one Java serves one session.

Usage: cluster_driver.py MASTER STORE NAMESRV TOPIC; prints one JSON object with its results.
"""

import json
import os
import sys

import rocketd
import rocketd.spark
from rocketd.spark.errors import SparkError
from rocketd.spark.jobs.running.tasks import need_files_everywhere, run_tasks

_DESCRIPTOR = 250


def look(item):
    """Return facts of a task: its process and the origin of its code."""
    import time

    import pyspark_rocketd

    # Long enough that one executor cannot take all the items before the other has its first.
    time.sleep(1)
    return {
        "item": item,
        "directory": os.getcwd(),
        "rocketd": rocketd.__file__,
        "source": pyspark_rocketd.__file__,
        "python": sys.executable,
    }


def refusal(call):
    try:
        call()
    except SparkError as error:
        return str(error)
    return None


def fail(item):
    raise SparkError(f"item {item} is bad")


def counts(spark, topic, **where):
    rows = rocketd.spark.read(spark, columns=["tags"], subscribe=topic, **where).groupBy("tags").count().collect()
    return {row["tags"] or "": row["count"] for row in rows}


def main(master, store, namesrv, topic):
    conf = {
        "spark.executor.memory": "512m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = rocketd.spark.session(master, "cluster test", conf, driver_memory="1g")
    try:
        # It is this process's alone: no executor sees it.
        with open(os.path.join(store, "abort-not"), "wb") as file:
            os.dup2(file.fileno(), _DESCRIPTOR)
        need_files_everywhere(spark, [store])
        print(
            json.dumps(
                {
                    "looks": list(run_tasks(spark, range(6), look)),
                    "store": counts(spark, "orders", store=store),
                    "broker": counts(spark, topic, namesrv=namesrv),
                    "hidden": refusal(lambda: need_files_everywhere(spark, [store, f"/proc/self/fd/{_DESCRIPTOR}"])),
                    "failure": refusal(lambda: list(run_tasks(spark, range(3), fail))),
                }
            )
        )
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
