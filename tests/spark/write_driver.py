"""A driver to be killed: NAMESRV FOLDER RATE. Streams the text files of FOLDER/source into topics by each delivery, and
writes a frame effectively once beside them; the topics' names are in FOLDER/topics.json.
"""

import json
import sys
from pathlib import Path

import rocketd.spark

namesrv, folder, rate = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
topics = json.loads((folder / "topics.json").read_text())
spark = rocketd.spark.session(
    "local[2,3]", "killed", {"spark.local.dir": str(folder / "local"), "spark.sql.shuffle.partitions": "2"}
)


def options(delivery):
    """Of a writer into the topic of this delivery; sendTimeout and retryTimeout suit a machine under load."""
    return {
        "namesrv": namesrv,
        "topic": topics[delivery],
        "batchBytes": "1k",
        "messagesPerSecond": rate,
        "sendTimeout": "60s",
        "retryTimeout": "120s",
    }


source = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder / "source"))
queries = [
    source.withColumnRenamed("value", "body")
    .writeStream.format("rocketd")
    .options(**options(delivery), delivery=delivery)
    .option("checkpointLocation", str(folder / delivery))
    .trigger(availableNow=True)
    .start()
    for delivery in ("effectively-once", "at-least-once", "transactional")
]
(
    spark.range(0, int(topics["rows"]), 1, 3)
    .selectExpr("concat('body ', id) as body")
    .write.format("rocketd")
    .mode("append")
    .options(**options("job"), delivery="effectively-once")
    .options(sinkId="frame", jobId="one", stagingDir=str(folder / "staging"))
    .save()
)
for query in queries:
    query.awaitTermination()
spark.stop()
