"""A driver on a cluster whose executors are on different hosts: NAMESRV FOLDER MASTER.

It writes a frame by each delivery. The first attempt of one task hands out some rows and then waits until the second,
which Spark starts for speculation, is done: so both have rows at the brokers, or staged. Prints what Spark started.
"""

import json
import sys
from pathlib import Path

import rocketd.spark

ROWS, PARTS, SLOW = 400, 4, 3
namesrv, folder, master = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
topics = json.loads((folder / "topics.json").read_text())
spark = rocketd.spark.session(
    master,
    "speculation",
    {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "600m",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
    },
    driver_memory="600m",
)


def slow_at_first(marks):
    """Bodies that begin with "body N"; the first attempt of the slow task waits after 80 of its 100 rows, for ever."""

    def run(numbers):
        from time import sleep

        from pyspark import TaskContext

        context = TaskContext.get()
        is_slow = context.partitionId() == SLOW and context.attemptNumber() == 0
        if context.partitionId() == SLOW:
            (Path(marks) / f"attempt-{context.attemptNumber()}").touch()
        for given, number in enumerate(numbers):
            yield (f"body {number} {'x' * 3000}",)
            while is_slow and given == 80:
                sleep(0.1)  # until Spark kills it, for the other attempt is done

    return spark.createDataFrame(spark.sparkContext.parallelize(range(ROWS), PARTS).mapPartitions(run), "body string")


for delivery, topic in topics.items():
    marks = folder / delivery
    marks.mkdir()
    more = {"sinkId": "s", "stagingDir": str(folder / "staging")} if delivery == "effectively-once" else {}
    (
        slow_at_first(str(marks))
        .write.format("rocketd")
        .mode("append")
        .options(namesrv=namesrv, topic=topic, delivery=delivery, batchBytes="8k", sendTimeout="60s", **more)
        .save()
    )
spark.stop()
