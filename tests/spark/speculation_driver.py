"""A driver on a cluster whose executors are on different hosts: NAMESRV FOLDER MASTER.

It writes a frame by each delivery. The first attempt of one task hands out some rows and then waits until the second,
which Spark starts for speculation, is done: so both have rows at the brokers, or staged. Prints what Spark started.
"""

import json
import sys
from pathlib import Path

import rocketd.spark

ROWS, PARTS, SLOW = 240, 4, 3
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
        "spark.sql.execution.arrow.maxRecordsPerBatch": "30",
    },
    driver_memory="600m",
)


def slow_at_first(marks):
    """For mapInArrow: the first attempt of the slow task waits after half of its rows, for ever."""

    def run(batches):
        from time import sleep

        from pyspark import TaskContext

        context = TaskContext.get()
        is_slow = context.partitionId() == SLOW and context.attemptNumber() == 0
        if context.partitionId() == SLOW:
            (Path(marks) / f"attempt-{context.attemptNumber()}").touch()
        for batch in batches:
            yield batch
            while is_slow:
                sleep(0.1)  # until Spark kills it, for the other attempt is done

    return run


for delivery, topic in topics.items():
    marks = folder / delivery
    marks.mkdir()
    more = {"sinkId": "s", "stagingDir": str(folder / "staging")} if delivery == "effectively-once" else {}
    (
        spark.range(0, ROWS, 1, PARTS)
        .selectExpr("concat('body ', id, ' ', repeat('x', 3000)) as body")
        .mapInArrow(slow_at_first(str(marks)), "body string")
        .write.format("rocketd")
        .mode("append")
        .options(namesrv=namesrv, topic=topic, delivery=delivery, batchBytes="8k", sendTimeout="60s", **more)
        .save()
    )
spark.stop()
