"""Batch reads through Spark: of a store's files, of a store whose broker is running, and of clusters."""

import json
import os
import random
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import datasource as ds
from pyspark.sql import functions as f
from stores import START_MS, messages, read_store, write_group_offsets, write_store

import rocketd.spark
from rocketd.spark.columns import COLUMNS, DEFAULT_COLUMNS
from rocketd.spark.datasource.filters import Narrowing
from rocketd.spark.errors import BrokerError, DataLossError, OptionError
from rocketd.spark.options import ReadOptions
from rocketd.spark.ranges import Queue
from rocketd.spark.source import Source
from rocketd.spark.wire import Message

COUNT = 4000


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Two topics: `orders` with 4 queues of 1000 messages, all kinds of them, and `payments` with 2 of 50."""
    root = tmp_path_factory.mktemp("batch") / "store"
    write_store(root, COUNT, variants=True)
    write_store(root, 100, topic="payments", queues=2)
    return str(root)


def load(spark, store, columns="queue_id, queue_offset", topic="orders", **options):
    """A read of some columns. `options` are as Spark's users write them."""
    chosen = {} if {"subscribe", "subscribePattern", "assign"} & set(options) else {"subscribe": topic}
    reader = spark.read.format("rocketd").options(store=store, **chosen, **options)
    names = [name.strip() for name in columns.split(",")] if columns else []
    return (reader.schema(", ".join(f"{name} {COLUMNS[name].ddl}" for name in names)) if names else reader).load()


def spans(frame):
    """First and last offset and the number of rows of each queue."""
    grouped = frame.groupBy("queue_id").agg(f.min("queue_offset"), f.max("queue_offset"), f.count("*"))
    return {row[0]: tuple(row)[1:] for row in grouped.collect()}


def refused(kind, action):
    """The text of an error that crosses from Python through Spark."""
    with pytest.raises(Exception, match=kind.__name__) as caught:
        action()
    return str(caught.value)


# ---------------------------------------------------------------- rows


def test_every_column_of_every_message_comes_as_the_store_has_it(spark, store):
    assert load(spark, store, "").columns == list(DEFAULT_COLUMNS)
    got = load(spark, store, ",".join(COLUMNS), brokerName="b").orderBy("commit_log_offset").toArrow()
    assert got.num_rows == COUNT
    expected = [record for record in read_store(store) if record.topic == "orders"]
    assert got.column("commit_log_offset").to_pylist() == [one.physical_offset for one in expected]
    assert got.column("properties_raw").to_pylist() == [one.properties for one in expected]
    assert {type(body) for body in got.column("body").to_pylist()} == {bytes}
    times = [datetime.fromtimestamp(one.store_timestamp / 1000, UTC) for one in expected]
    assert got.column("store_time").to_pylist() == times
    # What the parser makes of each record is tested beside it; here, that Spark changes nothing.
    direct = Source(ReadOptions.parse({"store": store, "subscribe": "orders", "brokerName": "b"}))
    rows = [row for part in direct.plan() for batch in direct.read(part, tuple(COLUMNS)) for row in batch.to_pylist()]
    rows.sort(key=lambda row: row["commit_log_offset"])
    assert got.to_pylist() == rows


def test_a_read_without_rows(spark, store):
    empty = load(spark, store, startingTimestamp="2200-01-01")
    assert empty.collect() == []
    assert load(spark, store, subExpression="nobody").count() == 0


def test_columns_may_be_declared_not_null_and_in_any_order(spark, store):
    reader = spark.read.format("rocketd").options(store=store, subscribe="payments")
    frame = reader.schema("tags string, queue_offset bigint not null, properties map<string,string>").load()
    assert frame.columns == ["tags", "queue_offset", "properties"]
    assert frame.where("queue_offset = 7").first().properties["CLUSTER"] == "DefaultCluster"


def test_read_of_the_package(spark, store):
    frame = rocketd.spark.read(spark, columns=["tags"], store=store, subscribe=["payments"], max_rows=10)
    assert (frame.columns, frame.count()) == (["tags"], 10)


def test_sql_over_a_view(spark, store):
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW paid USING rocketd OPTIONS (store '{store}', subscribe 'payments')")
    assert spark.sql("SELECT count(*), count(tags) FROM paid").first() == (100, 76)


# ---------------------------------------------------------------- what is read


def test_topics_pattern_and_queues(spark, store):
    assert load(spark, store, "topic", subscribe="orders, payments").count() == COUNT + 100
    assert load(spark, store, "topic", subscribePattern="pay.*").count() == 100
    assert set(spans(load(spark, store, assign='{"orders": [1, 3]}'))) == {1, 3}


def test_offsets(spark, store):
    start = json.dumps({"orders": {"broker-a": {"0": 10, "1": -2, "2": 990, "3": -1}}})
    end = json.dumps({"orders": {"0": 20, "1": 5, "2": -1, "3": -1}})
    assert spans(load(spark, store, startingOffsets=start, endingOffsets=end)) == {
        0: (10, 19, 10),
        1: (0, 4, 5),
        2: (990, 999, 10),
    }


def test_times(spark, store):
    # Of each 100 messages, all have one time.
    start, end = START_MS + 1000, START_MS + 2000
    expected = dict.fromkeys(range(4), (250, 499, 250))
    assert spans(load(spark, store, startingTimestamp=start, endingTimestamp=end)) == expected
    iso = [datetime.fromtimestamp(moment / 1000, UTC).isoformat() for moment in (start, end)]
    assert spans(load(spark, store, startingTimestamp=iso[0], endingTimestamp=iso[1])) == expected
    by_queue = json.dumps({"orders": {"0": start, "1": iso[1], "2": START_MS + 999_999, "3": 0}})
    assert spans(load(spark, store, startingOffsetsByTimestamp=by_queue)) == {
        0: (250, 999, 750),
        1: (500, 999, 500),
        3: (0, 999, 1000),
    }
    late = {"startingTimestamp": START_MS + 999_999, "timestampStrategy": "error"}
    assert "has no message since then" in refused(OptionError, load(spark, store, **late).count)


def test_a_group_of_the_stopped_broker(spark, store):
    write_group_offsets(store, {("orders", "readers"): {0: 900, 2: 950}})
    assert spans(load(spark, store, startingOffsets="group:readers")) == {
        0: (900, 999, 100),
        1: (0, 999, 1000),
        2: (950, 999, 50),
        3: (0, 999, 1000),
    }


def test_filters_of_options(spark, store):
    rows = load(spark, store, "tags", subExpression="TagA || TagC").groupBy("tags").count().collect()
    assert {row[0] for row in rows} == {"TagA", "TagC"}
    every = [record.properties.decode() for record in read_store(store) if record.topic == "orders"]
    wanted = sum("TAGS\x01TagA" in text or "TAGS\x01TagC" in text for text in every)
    assert sum(row[1] for row in rows) == wanted
    assert load(spark, store, "keys", keys="key-0,key-3,nobody").count() == 2
    assert load(spark, store, "queue_offset", keys="key-11").count() == 1
    numbered = load(spark, store, "properties", sql92="a >= 50 AND CLUSTER IS NULL")
    assert {int(row[0]["a"]) >= 50 for row in numbered.collect()} == {True}
    assert 0 < numbered.count() < COUNT / 10


def test_at_most_so_many_rows(spark, store):
    assert spans(load(spark, store, maxRows=10)) == {0: (0, 2, 3), 1: (0, 2, 3), 2: (0, 1, 2), 3: (0, 1, 2)}


def test_bodies_as_they_were_sent(spark, store):
    stored = {
        row.queue_offset: row.body for row in load(spark, store, "queue_offset, body", decompress="false").collect()
    }
    plain = load(spark, store, "queue_offset, body, sys_flag", verifyCrc="true").where("sys_flag & 1 = 1").collect()
    assert len(plain) == COUNT / 10
    assert all(len(row.body) > len(stored[row.queue_offset]) or row.body != stored[row.queue_offset] for row in plain)


# ---------------------------------------------------------------- tasks


def test_tasks(spark, store):
    assert load(spark, store, topic="payments").rdd.getNumPartitions() == 1
    assert load(spark, store, minPartitions=5).rdd.getNumPartitions() == 5
    split = load(spark, store, maxBytesPerPartition="200k", batchBytes="10k")
    assert split.rdd.getNumPartitions() >= 5
    assert spans(split) == spans(load(spark, store))


def test_rows_of_a_task_are_in_order(spark, store):
    frame = load(spark, store, minPartitions=3).withColumn("task", f.spark_partition_id())
    rows = [(row.task, row.queue_id, row.queue_offset) for row in frame.collect()]
    assert rows == sorted(rows)


def test_a_plan_is_a_snapshot(spark, tmp_path):
    root = tmp_path / "store"
    write_store(root, 400)
    frame = load(spark, str(root), "queue_id, queue_offset, body")
    first = frame.collect()
    write_store(root, messages(400, first=400))
    assert frame.collect() == first
    assert len(first) == 400
    # While its tasks run, too: the first row that comes is waited for before there are more.
    frame = load(spark, str(root), "queue_id, queue_offset", minPartitions=8)
    rows = frame.toLocalIterator()
    begun = [next(rows)]
    write_store(root, messages(400, first=800))
    assert len(begun + list(rows)) == 800
    assert load(spark, str(root)).count() == 1200


# ---------------------------------------------------------------- filters of queries


def test_filters_narrow_what_is_read(spark, store):
    frame = load(spark, store, "").where(
        "queue_id = 1 and queue_offset >= 100 and queue_offset < 200 and topic = 'orders'"
    )
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "Filter" not in plan
    assert spans(frame) == {1: (100, 199, 100)}
    assert load(spark, store).where("queue_id > 7").rdd.getNumPartitions() == 1
    tagged = load(spark, store, "tags").where("tags = 'TagA' or tags = 'TagB'")
    assert {row[0] for row in tagged.distinct().collect()} == {"TagA", "TagB"}


def test_filters_with_pushing_switched_off(spark, store):
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        frame = load(spark, store).where("queue_id = 1 and queue_offset >= 100 and queue_offset < 200")
        assert spans(frame) == {1: (100, 199, 100)}
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


CONDITIONS = [
    "queue_id = 1",
    "queue_id <> 1",
    "queue_id in (0, 3)",
    "queue_id not in (0, 3)",
    "queue_id not in (0, null)",
    "queue_id between 1 and 2",
    "queue_id is null",
    "topic = 'orders'",
    "topic <> 'orders'",
    "topic like 'pay%'",
    "topic like '%ers'",
    "topic not like '%d%'",
    "topic > 'orders'",
    "broker = 'broker-a'",
    "queue_offset < 30",
    "queue_offset <= 30 and queue_offset > 10",
    "queue_offset = 17",
    "queue_offset in (3, 40, 900)",
    "queue_offset <> 17",
    "queue_offset > 17 or queue_id = 0",
    "tags = 'TagA'",
    "tags in ('TagA', 'Grüße')",
    "tags = 'TagA' and tags = 'TagB'",
    "tags is null",
    "tags is not null",
    "tags <=> 'TagC'",
    "tags <=> null",
    "not (tags = 'TagA')",
    "tags like 'Tag%'",
    "store_time >= timestamp_millis(1700000001000)",
    "store_time < timestamp_millis(1700000001000)",
    "store_time = timestamp_millis(1700000000100)",
    "keys = 'key-3'",
    "properties['TAGS'] = 'TagA'",
]


def test_filters_never_change_a_result(spark, store):
    """Two conditions at a time, by Spark alone and pushed down."""
    columns = "broker, topic, queue_id, queue_offset, store_time, tags, keys, properties"
    whole = load(spark, store, columns, subscribe="orders,payments", maxRows=1500).cache()
    source = random.Random(11)
    pairs = [(one, source.choice(CONDITIONS)) for one in CONDITIONS]
    try:
        rows = sum_of(whole, pairs)
    finally:
        whole.unpersist()
    for start in range(0, len(pairs), 6):
        # Some at a time: a union of reads of their own, each with its condition.
        frame = None
        for number, (one, other) in enumerate(pairs[start : start + 6], start):
            read = load(spark, store, columns, subscribe="orders,payments", maxRows=1500).where(
                f"({one}) and ({other})"
            )
            part = read.select(f.lit(number).alias("pair"), "topic", "queue_id", "queue_offset")
            frame = part if frame is None else frame.union(part)
        got = {tuple(row) for row in frame.collect()}
        assert got == {row for row in rows if start <= row[0] < start + 6}
    assert len(rows) > 1000


def sum_of(whole, pairs):
    frame = None
    for number, (one, other) in enumerate(pairs):
        part = whole.where(f"({one}) and ({other})").select(f.lit(number), "topic", "queue_id", "queue_offset")
        frame = part if frame is None else frame.union(part)
    return {tuple(row) for row in frame.collect()}


def test_which_filters_are_left_to_spark():
    moment = datetime(2024, 5, 1, tzinfo=UTC)
    done = [
        ds.EqualTo(("topic",), "a"),
        ds.Not(ds.In(("queue_id",), (1, 2))),
        ds.GreaterThan(("queue_offset",), 5),
        ds.IsNotNull(("store_size",)),
        ds.StringStartsWith(("broker",), "b"),
    ]
    left = [
        ds.EqualTo(("tags",), "a"),
        ds.IsNotNull(("tags",)),
        ds.In(("queue_offset",), (1, 2)),
        ds.GreaterThan(("store_time",), moment),
        ds.EqualTo(("keys",), "k"),
        ds.EqualTo(("properties", "a"), "k"),
        ds.EqualTo(("queue_id",), "1"),
    ]
    assert Narrowing([*done, *left]).remaining == left
    assert Narrowing([*done, *left], exact=False).remaining == [*done, *left]


def test_a_clock_that_went_back_hides_nothing(tmp_path, spark):
    root = str(tmp_path / "store")
    write_store(root, 400, queues=1)
    write_store(root, messages(400, queues=1, first=400), start_ms=START_MS - 200)
    write_store(root, messages(400, queues=1, first=800))
    for moment in (START_MS - 100, START_MS, START_MS + 150):
        bound = f"timestamp_millis({moment})"
        frame = load(spark, root, "queue_id, queue_offset, store_time")
        expected = sum(record.store_timestamp >= moment for record in read_store(root))
        assert frame.where(f"store_time >= {bound}").count() == expected
        assert frame.where(f"store_time < {bound}").count() == 1200 - expected


# ---------------------------------------------------------------- errors


def test_wrong_options_are_told_when_the_read_is_made(spark, store):
    def reader(**options):
        return lambda: spark.read.format("rocketd").options(**options).load()

    assert "did you mean subscribe?" in refused(OptionError, reader(store=store, subscrbe="orders"))
    assert "maxRows is '0'" in refused(OptionError, reader(store=store, subscribe="orders", maxRows=0))
    assert "one of the options store, namesrv" in refused(OptionError, reader(subscribe="orders"))


def test_wrong_reads_are_told(spark, store):
    assert "did you mean orders?" in refused(OptionError, load(spark, store, subscribe="order").count)
    assert "no queue orders/9" in refused(OptionError, load(spark, store, assign='{"orders": [9]}').count)
    assert "leaves out orders/broker-a/1" in refused(
        OptionError, load(spark, store, startingOffsets='{"orders": {"0": 1}}').count
    )
    assert "is for streams only" in refused(OptionError, load(spark, store, maxOffsetsPerTrigger=5).count)


def test_wrong_schemas_are_told(spark, store):
    reader = spark.read.format("rocketd").options(store=store, subscribe="orders")
    assert "did you mean queue_offset?" in refused(OptionError, reader.schema("queueoffset bigint").load().count)
    assert "queue_id of messages is int, and the schema says bigint" in refused(
        OptionError, reader.schema("queue_id bigint").load().count
    )


def test_a_store_that_is_not_there_is_told(spark, tmp_path):
    assert str(tmp_path) in refused(Exception, load(spark, str(tmp_path / "nowhere")).count)


def test_lost_messages_are_told_or_left_out(spark, tmp_path):
    root = str(tmp_path / "store")
    write_store(root, 8000, log_file_size=1 << 20)
    start = json.dumps({"orders": {str(queue): 0 for queue in range(4)}})
    frame = load(spark, root, startingOffsets=start)
    assert frame.count() == 8000
    first, second, *_ = sorted(os.listdir(os.path.join(root, "commitlog")))
    os.remove(os.path.join(root, "commitlog", first))
    text = refused(DataLossError, load(spark, root, startingOffsets=start).count)
    assert "messages are not there any more: orders/broker-a/0[0, " in text
    left = load(spark, root, startingOffsets=start, failOnDataLoss="false")
    kept = sum(record.physical_offset >= int(second) for record in read_store(root))
    assert left.count() == kept
    assert 0 < kept < 8000
    # Without a start of its own the read is of what is there.
    assert load(spark, root).count() == kept


# ---------------------------------------------------------------- live


def test_a_cluster(spark, live_cluster):
    topic = live_cluster.create_topic(2)
    for queue_id in range(2):
        some = [Message(topic, b"%d" % number, tags=f"Tag{number % 3}", keys=f"k{number}") for number in range(60)]
        live_cluster.send(topic, some, queue_id)

    def frame(columns="queue_id, queue_offset", **options):
        schema = ", ".join(f"{name.strip()} {COLUMNS[name.strip()].ddl}" for name in columns.split(","))
        reader = spark.read.format("rocketd").options(namesrv=live_cluster.namesrv, subscribe=topic, **options)
        return reader.schema(schema).load()

    rows = frame("broker, topic, queue_id, queue_offset, body, keys").orderBy("queue_id", "queue_offset").collect()
    assert [tuple(row) for row in rows] == [
        ("broker-a", topic, queue_id, number, b"%d" % number, f"k{number}")
        for queue_id in range(2)
        for number in range(60)
    ]
    start = json.dumps({topic: {"broker-a": {"0": 50, "1": -1}}})
    assert spans(frame(startingOffsets=start)) == {0: (50, 59, 10)}
    assert frame("tags", subExpression="Tag0||Tag1").count() == 80
    assert frame("queue_id, tags").where("tags = 'Tag2' and queue_id = 0").count() == 20
    assert frame(sql92="KEYS = 'k7'").count() == 2
    assert frame(keys="k7").count() == 2
    live_cluster.catalog.commit_group("batch-readers", {Queue(topic, "broker-a", 1): 55})
    assert spans(frame(startingOffsets="group:batch-readers", minPartitions=4)) == {0: (0, 59, 60), 1: (55, 59, 5)}
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert frame(startingTimestamp=tomorrow).count() == 0
    assert frame(endingTimestamp=tomorrow, brokerName="broker-a").count() == 120
    lost = json.dumps({topic: {"broker-a": {"0": 70, "1": 0}}})
    assert "60 messages" not in refused(DataLossError, frame(endingOffsets=lost).count)
    assert "there is no topic" in refused(
        OptionError,
        spark.read.format("rocketd").options(namesrv=live_cluster.namesrv, subscribe="none-such").load().count,
    )


def test_the_store_of_a_running_broker(spark, rocketd_cluster):
    topic = rocketd_cluster.create_topic(1)
    rocketd_cluster.send(topic, [b"%d" % number for number in range(100)])
    root = str(rocketd_cluster.directory / "store")
    assert load(spark, root, topic=topic).count() == 100
    rocketd_cluster.send(topic, [b"%d" % number for number in range(50)])
    assert load(spark, root, "body", topic=topic).distinct().count() == 100
    assert load(spark, root, topic=topic).count() == 150


def test_a_cluster_that_is_not_there_is_told(spark):
    options = {"namesrv": "127.0.0.1:1", "subscribe": "t", "retryTimeout": "200ms", "timeout": "5s"}
    assert "127.0.0.1:1" in refused(BrokerError, spark.read.format("rocketd").options(**options).load().count)
