"""Commits one staged batch of sink "s": NAMESRV TOPIC STAGING FILE...; slowly, so that it can be killed meanwhile."""

import sys

import pyarrow as pa

from rocketd.spark.sink.cluster_output import ClusterOutput
from rocketd.spark.sink.effectively_once.delivery import EffectivelyOnce
from rocketd.spark.sink.effectively_once.staging import StagedFile
from rocketd.spark.sink.options import WriteOptions

namesrv, topic, staging, *names = sys.argv[1:]
options = WriteOptions.parse(
    {
        "namesrv": namesrv,
        "topic": topic,
        "delivery": "effectively-once",
        "sinkId": "s",
        "stagingDir": staging,
        "batchBytes": "1k",
        "messagesPerSecond": "300",
        "sendTimeout": "60s",
    }
)


def rows_in(name):
    """How many messages a staged file has."""
    with pa.OSFile(f"{staging}/s/{name}") as file, pa.ipc.open_stream(file) as reader:
        return sum(batch.num_rows for batch in reader)


staged = [StagedFile(name, rows_in(name), frozenset({topic})) for name in names]
EffectivelyOnce(options, "s", "q", lambda: ClusterOutput(options)).commit("0", staged)
