"""Writes through Spark: data frames and streams into topics of real brokers, with tasks that fail and are tried again."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from rocketd.common.names import TRANS_HALF_TOPIC
from rocketd.spark.wire import RawMessage
from tests.spark.guarded import ADMIN, READER
from tests.spark.write_helpers import bodies, count_of, rows_of

ROWS = 300
PARTS = 3


def failing_once(spark, marks, cluster, topic, delivery):
    """Bodies that begin with "body N". The first attempt of each partition fails once the writer behind it has got rows:
    they are in the topic, among the half messages, or there is a file to stage them by then.
    """
    options, watched = cluster.options, cluster.queue(topic if delivery == "at-least-once" else TRANS_HALF_TOPIC)
    before = 0 if delivery == "at-least-once" else cluster.catalog.bounds(watched)[1]

    def run(numbers):
        from time import monotonic, sleep

        from pyspark import TaskContext

        from rocketd.spark.wire import BrokerCatalog

        partition = TaskContext.get().partitionId()
        mark = Path(marks) / f"failed-{partition}"
        catalog = BrokerCatalog(options)

        def have_arrived():
            if delivery == "effectively-once":
                return any(Path(marks).glob(f"staging/s/*/.{partition}-0-*"))
            return catalog.bounds(watched)[1] > before

        for given, number in enumerate(numbers, 1):
            yield (f"body {number} {'x' * 3000}",)  # long, so that the writer gets rows before the last one is there
            if given == 80 and not mark.exists():
                ends = monotonic() + 120
                while not have_arrived():
                    if monotonic() > ends:
                        raise AssertionError("the writer gets no rows")
                    sleep(0.05)
                mark.touch()
                raise RuntimeError("the first attempt fails")

    return spark.createDataFrame(spark.sparkContext.parallelize(range(ROWS), PARTS).mapPartitions(run), "body string")


def write(frame, cluster, topic, **options):
    frame.write.format("rocketd").mode("append").options(namesrv=cluster.namesrv, topic=topic, **options).save()


def sorted_bodies(cluster, topic, count):
    """The beginnings of all bodies."""
    return sorted(b" ".join(body.split()[:2]) for some in bodies(cluster, topic, count).values() for body in some)


def wanted(count=ROWS):
    return sorted(b"body %d" % n for n in range(count))


DELIVERIES = ("at-least-once", "transactional", "effectively-once")


@pytest.fixture
def small_batches(spark):
    """The session, which hands ten rows at a time to Python."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    usual = spark.conf.get(name)
    spark.conf.set(name, "10")
    yield spark
    spark.conf.set(name, usual)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_frame_with_failing_first_attempts_is_written(small_batches, live_cluster, tmp_path, delivery):
    spark = small_batches
    topic = live_cluster.create_topic(4)
    frame = failing_once(spark, str(tmp_path), live_cluster, topic, delivery)
    more = {"sinkId": "s", "stagingDir": str(tmp_path / "staging")} if delivery == "effectively-once" else {}
    write(frame, live_cluster, topic, delivery=delivery, batchBytes="8k", **more)
    assert len(list(tmp_path.glob("failed-*"))) == PARTS
    found = sorted_bodies(live_cluster, topic, ROWS)
    if delivery == "at-least-once":
        assert sorted(set(found)) == wanted()
        assert len(found) > ROWS
    else:
        assert found == wanted()
    assert not list(tmp_path.glob("staging/**/*.arrow"))


def test_written_columns_arrive_unchanged(spark, live_cluster):
    topic = live_cluster.create_topic(2)
    frame = spark.sql(
        "select 'b' as body, 'TagA' as tags, array('k1', 'k2') as keys, 7 as flag, map('a', '1') as properties, "
        "1 as queue_id"
    )
    write(frame, live_cluster, topic, queueSelector="column")
    (row,) = rows_of(live_cluster, topic, 1, "body", "tags", "keys", "flag", "properties")[1]
    properties = dict(row.pop("properties"))
    assert row == {"body": b"b", "tags": "TagA", "keys": "k1 k2", "flag": 7}
    assert properties["a"] == "1"
    assert len(properties["UNIQ_KEY"]) == 32


def test_read_frame_is_written_to_another_topic(spark, live_cluster):
    topics = [live_cluster.create_topic(1) for _ in range(2)]
    large = b"large " * 2000
    messages = [RawMessage(topics[0], body, tags="T", keys="k", properties={"a": "1"}) for body in (b"small", large)]
    live_cluster.send(topics[0], messages)
    frame = spark.read.format("rocketd").options(namesrv=live_cluster.namesrv, subscribe=topics[0]).load()
    write(frame, live_cluster, topics[1])
    columns = ("body", "tags", "keys", "uniq_key")
    first, second = (rows_of(live_cluster, topic, 2, *columns)[0] for topic in topics)
    assert sorted(row["body"] for row in second) == sorted([b"small", large])
    assert sorted(map(str, first)) == sorted(map(str, second))


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_permanently_failing_write_raises(spark, rocketd_cluster, tmp_path, delivery):
    topic = rocketd_cluster.create_topic(2)
    frame = spark.range(0, 90, 1, 2).selectExpr("if(id = 80, '', concat('body ', id)) as body")
    more = {"sinkId": "s", "stagingDir": str(tmp_path)} if delivery == "effectively-once" else {}
    with pytest.raises(PySparkException, match="row 35 of partition 1 cannot be sent: its body is null or empty"):
        write(frame, rocketd_cluster, topic, delivery=delivery, **more)
    if delivery != "at-least-once":
        assert count_of(rocketd_cluster, topic) == 0
    assert not list(tmp_path.glob("**/*.arrow"))


def test_wrong_writes_raise_at_once(spark, tmp_path):
    frame = spark.range(5).selectExpr("string(id) as body")
    options = {"namesrv": "127.0.0.1:1"}
    for mode, more, text in (
        ("overwrite", {"topic": "T"}, "only ever appended"),
        ("append", {"topic": "T", "delivery": "x"}, "option delivery is 'x'; accepted is at-least-once or"),
        ("append", {"topik": "T"}, "did you mean topic"),
        ("append", {}, "option topic must be given, or a column 'topic'"),
        ("append", {"topic": "T", "delivery": "effectively-once", "stagingDir": str(tmp_path)}, "option sinkId"),
    ):
        with pytest.raises(PySparkException, match=text):
            frame.write.format("rocketd").mode(mode).options(**options, **more).save()


def test_stream_with_each_delivery_writes_all_rows(spark, live_cluster, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for number in range(3):
        lines = "".join(f"body {n}\n" for n in range(number * 40, number * 40 + 40))
        (source / f"{number}.txt").write_text(lines)
    frame = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(source))
    topics = {delivery: live_cluster.create_topic(2) for delivery in DELIVERIES}
    queries = [
        frame.withColumnRenamed("value", "body")
        .writeStream.format("rocketd")
        .options(namesrv=live_cluster.namesrv, topic=topic, delivery=delivery)
        .option("checkpointLocation", str(tmp_path / delivery))
        .trigger(availableNow=True)
        .start()
        for delivery, topic in topics.items()
    ]
    for query in queries:
        query.awaitTermination()
    for topic in topics.values():
        assert sorted_bodies(live_cluster, topic, 120) == wanted(120)
    assert not list(tmp_path.glob("**/*.arrow"))


def signed_for(cluster, path, account):
    """Return options of an account, and of TLS if the cluster has it."""
    path.write_text(f"accessKey: {account['access_key']}\nsecretKey: {account['secret_key']}\n")
    tls = {"tls": "true", "tlsCaFile": cluster.options.tls_ca} if cluster.options.tls else {}
    return {"credentialsFile": str(path), **tls}


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_write_to_broker_with_accounts_and_tls_is_delivered(spark, rocketd_guarded, tmp_path, delivery):
    cluster = rocketd_guarded
    topic = cluster.create_topic(2)
    more = {"sinkId": "s", "stagingDir": str(tmp_path / "staging")} if delivery == "effectively-once" else {}
    signed = signed_for(cluster, tmp_path / "admin.yml", ADMIN)
    frame = spark.range(0, ROWS, 1, PARTS).selectExpr("concat('body ', id) as body")
    write(frame, cluster, topic, delivery=delivery, **more, **signed)
    assert sorted_bodies(cluster, topic, ROWS) == wanted()
    reading = signed_for(cluster, tmp_path / "reader.yml", READER)
    read = spark.read.format("rocketd").options(namesrv=cluster.namesrv, subscribe=topic, **reading)
    assert read.load().count() == ROWS


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_account_without_permission_cannot_write(spark, rocketd_guarded, tmp_path, delivery):
    cluster = rocketd_guarded
    topic = cluster.create_topic(2)
    more = {"sinkId": "s", "stagingDir": str(tmp_path / "staging")} if delivery == "effectively-once" else {}
    frame = spark.range(0, 10, 1, 2).selectExpr("concat('body ', id) as body")
    # A reader would do for messages alone: brokers, Apache's too, look at no rights for batches unless aclStrict is set.
    wrong = signed_for(cluster, tmp_path / "wrong.yml", {**ADMIN, "secret_key": "another-secret"})
    admin = signed_for(cluster, tmp_path / "admin.yml", ADMIN)
    unsigned = {name: value for name, value in admin.items() if name != "credentialsFile"}
    unverified = {name: value for name, value in admin.items() if name != "tlsCaFile"}
    for options, text in ((wrong, "AclException"), (unsigned, "AclException"), (unverified, "certificate")):
        with pytest.raises(PySparkException, match=text) as caught:
            write(frame, cluster, topic, delivery=delivery, **more, **options)
        assert "-secret" not in str(caught.value)
    assert count_of(cluster, topic) == 0
