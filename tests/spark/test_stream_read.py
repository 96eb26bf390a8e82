"""Streaming reads through Spark: each message exactly once, despite restarts, and every stored message is seen."""

import json
import os
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from rocketd.spark.columns import COLUMNS
from rocketd.spark.ranges import Queue
from tests.spark.clusters import BROKER, ROCKETD, await_condition, start_cluster
from tests.support.stores import START_MS, message, messages, write_store


class Sink:
    """A stream into Spark's Parquet sink, that can be started again and again."""

    def __init__(self, spark, directory, columns="topic, queue_id, queue_offset, body", **options):
        self.spark = spark
        self.directory = directory
        self.schema = ", ".join(f"{name.strip()} {COLUMNS[name.strip()].ddl}" for name in columns.split(","))
        self.options = options
        self.batches = []

    @contextmanager
    def running(self, trigger=None, **more):
        frame = self.spark.readStream.format("rocketd").options(**{**self.options, **more}).schema(self.schema).load()
        query = (
            frame.writeStream.format("parquet")
            .option("path", f"{self.directory}/rows")
            .option("checkpointLocation", f"{self.directory}/checkpoint")
            .trigger(**(trigger or {"processingTime": "0 seconds"}))
            .start()
        )
        try:
            yield query
        finally:
            query.stop()
            self.batches += [one.numInputRows for one in query.recentProgress if one.numInputRows]

    def drain(self, **more):
        """Read all that there is now, and stop."""
        with self.running({"availableNow": True}, **more) as query:
            query.awaitTermination()
            assert query.exception() is None
        return self

    def rows(self):
        """All rows that the sink holds, sorted."""
        return sorted(map(tuple, self.spark.read.parquet(f"{self.directory}/rows").collect()))

    def offsets(self):
        """How often each offset is in the sink."""
        return Counter((topic, queue_id, offset) for topic, queue_id, offset, _ in self.rows())

    def checkpoint(self):
        """Return the offsets of the last batch in the checkpoint."""
        directory = Path(self.directory, "checkpoint", "offsets")
        last = max(int(name) for name in os.listdir(directory) if name.isdigit())
        return json.loads((directory / str(last)).read_text().splitlines()[-1])


def every(topic, spans):
    """The offsets from 0 on of each queue, each once."""
    return Counter((topic, queue_id, offset) for queue_id, end in spans.items() for offset in range(end))


def failure(query):
    """The text of the error that a query ends with."""
    await_condition("the query fails", lambda: not query.isActive)
    assert query.exception() is not None
    return str(query.exception())


# ---------------------------------------------------------------- exactly once


def test_each_message_once_over_restarts(spark, tmp_path):
    store = str(tmp_path / "store")
    write_store(store, 1000, body_size=50)
    sink = Sink(spark, tmp_path, store=store, subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger=300)
    sink.drain()
    assert sink.batches == [300, 300, 300, 100]
    write_store(store, messages(500, first=1000, body_size=50))
    # The checkpoint decides the position, not the option.
    sink.drain(startingOffsets="latest", maxOffsetsPerTrigger=10_000)
    assert sink.batches == [300, 300, 300, 100, 500]
    rows = sink.rows()
    assert sink.offsets() == every("orders", dict.fromkeys(range(4), 375))
    assert sorted(int(row[3].partition(b"|")[0]) for row in rows) == list(range(1500))
    kept = sink.checkpoint()
    # The store times of the last messages tell a topic that was recreated.
    assert set(kept.pop("stored")["orders"]["broker-a"]) == set("0123")
    assert kept == {"offsets": {"orders": {"broker-a": dict.fromkeys("0123", 375)}}, "v": 1}


def test_batch_run_again_reads_the_same_messages(spark, tmp_path):
    store = str(tmp_path / "store")
    write_store(store, 400, body_size=50)
    sink = Sink(spark, tmp_path, store=store, subscribe="orders", startingOffsets="earliest").drain()
    # As if the driver had died after the batch was planned: later messages are not in it.
    for directory in (tmp_path / "checkpoint" / "commits", tmp_path / "rows" / "_spark_metadata"):
        for path in directory.iterdir():
            path.unlink()
    write_store(store, messages(400, first=400, body_size=50))
    sink.drain()
    assert sink.batches == [400, 400, 400]
    assert sink.offsets() == every("orders", dict.fromkeys(range(4), 200))


def test_process_all_available_covers_all_messages(spark, tmp_path):
    """Each round: some messages, some in a new queue, once in a new topic; all of them are in the sink at once."""
    store = str(tmp_path / "store")
    write_store(store, 40, topic="a-1", queues=1, body_size=50)
    sink = Sink(spark, tmp_path, store=store, subscribePattern="a-.*")
    with sink.running() as query:
        query.processAllAvailable()
        spans = {}
        for number in range(6):
            topic, queue_id = f"a-{1 + number // 4}", number % 2
            write_store(store, [message(b"%d" % number, topic, queue_id)] * 5)
            end = spans.get((topic, queue_id), 40 if (topic, queue_id) == ("a-1", 0) else 0) + 5
            spans[topic, queue_id] = end
            query.processAllAvailable()
            done = sum(one.numInputRows for one in query.recentProgress)
            assert done == 5 * (number + 1)
    expected = {(topic, queue_id, offset) for (topic, queue_id), end in spans.items() for offset in range(end)}
    assert sink.offsets() == Counter(expected - {("a-1", 0, offset) for offset in range(40)})
    # A queue's first batch records its start, so that it can be run again.
    assert "started" in sink.checkpoint()


# ---------------------------------------------------------------- limits


def test_limits_in_bytes_and_starts_by_time(spark, tmp_path):
    store = str(tmp_path / "store")
    write_store(store, 400, body_size=1000, group=1)
    start = {"startingTimestamp": START_MS + 200, "maxBytesPerTrigger": "100k"}
    sink = Sink(spark, tmp_path, store=store, subscribe="orders", **start).drain()
    assert sum(sink.batches) == 200
    assert len(sink.batches) == 3
    assert min(offset for _, _, offset in sink.offsets()) == 50


def test_messages_are_held_back_until_they_are_enough(spark, tmp_path):
    store = str(tmp_path / "store")
    write_store(store, 40, body_size=50)
    held = {"minOffsetsPerTrigger": 100, "maxTriggerDelay": "10m"}
    sink = Sink(spark, tmp_path, store=store, subscribe="orders", startingOffsets="earliest", **held)
    with sink.running() as query:
        # Held back for ten minutes, but a query that is stopped ends, and so does the process that planned for it.
        await_condition("the end of a batch is asked for", lambda: "offsets" in query.status["message"])
        assert source_processes(spark)
    await_condition("the source's process ends", lambda: not source_processes(spark))
    assert sink.batches == []
    with sink.running() as query:
        write_store(store, messages(60, first=40, body_size=50))
        query.processAllAvailable()
    assert sink.batches == [100]
    write_store(store, messages(60, first=100, body_size=50))
    assert sink.drain().batches == [100, 60]
    write_store(store, messages(60, first=160, body_size=50))
    with sink.running(maxTriggerDelay="1s") as query:
        query.processAllAvailable()
    assert sink.batches == [100, 60, 60]


def source_processes(spark):
    """The processes that plan for running streams of this session."""
    driver = spark.sparkContext._gateway.proc.pid
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == driver and b"pyspark.sql.streaming.python_streaming_source_runner" in words:
            found.append(path.name)
    return found


# ---------------------------------------------------------------- losses and errors


def test_lost_messages_are_named_or_left_out(spark, tmp_path):
    store = str(tmp_path / "store")
    write_store(store, 400, queues=1, body_size=1000, log_file_size=1 << 18)
    sink = Sink(spark, tmp_path, store=store, subscribe="orders", startingOffsets="earliest").drain()
    write_store(store, messages(1000, queues=1, first=400, body_size=1000), log_file_size=1 << 18)
    log = tmp_path / "store" / "commitlog"
    for path in sorted(log.iterdir())[:-2]:
        path.unlink()
    with sink.running({"availableNow": True}) as query:
        assert "messages are not there any more: orders/broker-a/0[400, " in failure(query)
    sink.drain(failOnDataLoss="false")
    first = sink.checkpoint()["started"]["orders"]["broker-a"]["0"]
    assert 400 < first < 1400
    assert sink.offsets() == every("orders", {0: 400}) + Counter(("orders", 0, offset) for offset in range(first, 1400))


def test_wrong_streams_raise(spark, tmp_path):
    store = str(tmp_path / "store")
    write_store(store, 10)
    wrong = Sink(spark, tmp_path / "a", store=store, subscribe="orders", endingOffsets="latest")
    with wrong.running() as query:
        assert failure(query).count("OptionError: option endingOffsets is for batch reads only") == 1
        assert "UnboundLocalError" not in failure(query)
    with Sink(spark, tmp_path / "b", store=store, subscribe="order").running() as query:
        assert "did you mean orders?" in failure(query)


# ---------------------------------------------------------------- live


def test_a_stream_of_a_cluster_commits_for_a_group(spark, tmp_path, live_cluster):
    topic = live_cluster.create_topic(2)
    live_cluster.send(topic, [b"%d" % number for number in range(50)], 0)
    group = f"group-of-{topic}"
    catalog = live_cluster.catalog
    options = {"namesrv": live_cluster.namesrv, "subscribe": topic, "commitGroup": group}
    sink = Sink(spark, tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=30, **options)
    with sink.running() as query:
        query.processAllAvailable()
        live_cluster.send(topic, [b"%d" % number for number in range(20)], 1)
        query.processAllAvailable()
        assert sum(one.numInputRows for one in query.recentProgress) == 70
    sink.drain()
    assert sink.offsets() == every(topic, {0: 50, 1: 20})
    # Offsets of a batch are committed with the next one: this is good enough to watch the lag, but not for more.
    committed = catalog.group_offset(group, Queue(topic, BROKER, 0))
    assert committed is not None
    assert 0 < committed <= 50


def test_a_stream_outlives_a_restart_of_the_broker(spark, tmp_path):
    with start_cluster(ROCKETD, tmp_path / "cluster") as cluster:
        topic = cluster.create_topic(2)
        cluster.send(topic, [b"%d" % number for number in range(30)], 0)
        sink = Sink(spark, tmp_path, namesrv=cluster.namesrv, subscribe=topic, startingOffsets="earliest")
        with sink.running() as query:
            query.processAllAvailable()
            cluster.stop_broker()
            run = query.lastProgress.batchId
            cluster.start_broker()
            for number in range(3):
                cluster.send(topic, [b"%d" % each for each in range(10)], number % 2)
                query.processAllAvailable()
            assert query.lastProgress.batchId > run
            assert query.exception() is None
        assert sink.offsets() == every(topic, {0: 50, 1: 10})
        # And a query that is started while the broker is away waits for it.
        cluster.stop_broker()
        with sink.running() as query:
            cluster.start_broker()
            cluster.send(topic, [b"last"], 1)
            query.processAllAvailable()
        assert sink.offsets() == every(topic, {0: 50, 1: 11})
