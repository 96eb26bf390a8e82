"""The wire client against rocketd's servers and Apache's: the same must hold with both."""

import multiprocessing
import pickle
import shutil
import subprocess
import sys
import zlib
from dataclasses import replace
from time import time

import pyarrow as pa
import pytest

from rocketd.common.sysflag import COMPRESSED
from rocketd.remoting.headers.client import TopicRequestHeader
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.spark.columns import DEFAULT_COLUMNS, arrow_schema
from rocketd.spark.errors import ClusterError, DataLossError, NoAnswerError, OptionError
from rocketd.spark.ranges import Queue, QueueRange, ReadPlan
from rocketd.spark.wire import (
    BrokerCatalog,
    ClusterClient,
    ClusterOptions,
    NoMasterError,
    RawMessage,
    Sender,
    Transactions,
    UnknownTopicError,
    admin,
    close_connections,
    offsets,
    read_range,
)
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.format.record import decode_messages
from rocketd.store.upkeep.log_begin import NotedBegin, write_log_begin
from tests.spark.clusters import APACHE, BROKER, ROCKETD, await_condition, start_cluster
from tests.spark.guarded import READER
from tests.support import twistd_servers
from tests.support import wire as independent
from tests.support.ports import free_broker_port

OFFSETS = ("queue_offset", "body")


def read(running, part, columns=OFFSETS, on_loss=None, **plan):
    batches = list(read_range(running.options, part, ReadPlan(columns, **plan), on_loss))
    return pa.Table.from_batches(batches, arrow_schema(columns))


def bodies(table):
    return table.column("body").to_pylist()


def numbered(count, size=0):
    return [b"%06d" % number + b"." * size for number in range(count)]


# ---------------------------------------------------------------- routes


def test_queues_and_topics_are_found(live_cluster):
    topic = live_cluster.create_topic(3)
    catalog = live_cluster.catalog
    assert catalog.queues(topic) == [Queue(topic, BROKER, number) for number in range(3)]
    topics = catalog.topics()
    assert topic in topics
    assert topics == sorted(topics)
    assert not {BROKER, "DefaultCluster", "SELF_TEST_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC"} & set(topics)
    assert admin.brokers(live_cluster.cluster) == [BROKER]
    assert int(admin.runtime_info(live_cluster.cluster, BROKER)["bootTimestamp"]) > 0


def test_unknown_topic_has_no_queues_and_its_route_raises(live_cluster):
    assert live_cluster.catalog.queues("no-such-topic") == []
    with pytest.raises(UnknownTopicError, match="knows no topic 'no-such-topic'"):
        live_cluster.cluster.route("no-such-topic")


def test_created_topic_can_be_used_at_once(live_cluster):
    admin.create_topic(live_cluster.cluster, "created-by-a-job", 2)
    assert live_cluster.cluster.write_queues("created-by-a-job") == live_cluster.catalog.queues("created-by-a-job")
    live_cluster.send("created-by-a-job", [b"first"], queue_id=1)


# ---------------------------------------------------------------- offsets


def test_bounds_times_and_sizes(live_cluster):
    topic = live_cluster.create_topic(1)
    queue = live_cluster.queue(topic)
    catalog = live_cluster.catalog
    assert catalog.bounds(queue) == (0, 0)
    assert catalog.offset_at(queue, 0) == 0
    assert catalog.bytes_of(QueueRange(queue, 0, 0)) == 0
    for _ in range(12):
        live_cluster.send(topic, numbered(40))
    assert catalog.bounds(queue) == (0, 480)
    table = read(live_cluster, QueueRange(queue, 0, 480), ("store_time", "store_size"))
    times = [micros // 1000 for micros in table.column("store_time").cast(pa.int64()).to_pylist()]
    assert len(set(times)) > 3
    for moment in {*times, times[0] - 1, times[-1] + 1, *(one + 1 for one in times), 0, int(time() * 1000) + 10**9}:
        expected = next((place for place, one in enumerate(times) if one >= moment), 480)
        assert catalog.offset_at(queue, moment) == expected, moment
    assert [catalog.stored_at(queue, at) for at in (0, 479, 480)] == [times[0], times[-1], None]
    sizes = sum(table.column("store_size").to_pylist())
    assert catalog.bytes_of(QueueRange(queue, 0, 480)) == sizes
    state = admin.topic_state(live_cluster.cluster, topic, BROKER)[queue]
    assert (state.start, state.end, state.last_stored_ms) == (0, 480, times[-1])


def test_offsets_of_a_group(live_cluster):
    topic = live_cluster.create_topic(2)
    live_cluster.send(topic, numbered(5))
    first, second = (live_cluster.queue(topic, number) for number in range(2))
    catalog = live_cluster.catalog
    assert catalog.group_offset("group-of-wire", first) is None
    catalog.commit_group("group-of-wire", {first: 3, second: 0})
    await_condition("3 is committed", lambda: catalog.group_offset("group-of-wire", first) == 3)
    await_condition("0 is committed", lambda: catalog.group_offset("group-of-wire", second) == 0)
    assert catalog.group_offset("another-group", second) is None


# ---------------------------------------------------------------- pulls


def test_a_range_is_read_in_batches(live_cluster):
    topic = live_cluster.create_topic(1)
    sent = numbered(700, 90)
    live_cluster.send(topic, sent)
    part = QueueRange(live_cluster.queue(topic), 37, 613)
    table = read(live_cluster, part, batch_bytes=20_000)
    assert bodies(table) == sent[37:613]
    assert table.column("queue_offset").to_pylist() == list(range(37, 613))
    plan = ReadPlan(OFFSETS, batch_bytes=20_000)
    counts = [batch.num_rows for batch in read_range(live_cluster.options, part, plan)]
    assert len(counts) > 3
    assert sum(counts) == 576
    assert read(live_cluster, QueueRange(part.queue, 5, 5)).num_rows == 0


def test_large_messages_are_read(live_cluster):
    """Brokers cut these answers by their bytes, so that no two are of one length."""
    topic = live_cluster.create_topic(1)
    sent = [bytes([number]) * (1 + 7919 * number % 50_000) for number in range(150)]
    live_cluster.send(topic, sent)
    assert bodies(read(live_cluster, QueueRange(live_cluster.queue(topic), 0, 150))) == sent


def test_all_columns_are_those_of_the_record(live_cluster):
    topic = live_cluster.create_topic(1)
    message = RawMessage(topic, b"body", "tag", "key1 key2", {"colour": "bläu"}, 7, "0" * 32)
    (position,) = live_cluster.send(topic, [message])
    table = read(live_cluster, QueueRange(live_cluster.queue(topic), 0, 1), (*DEFAULT_COLUMNS, "raw"))
    (row,) = table.to_pylist()
    (record,) = decode_messages(row["raw"])
    assert record.topic == row["topic"] == topic
    assert row["broker"] == BROKER
    assert row["msg_id"] == position.offset_msg_id
    assert row["commit_log_offset"] == position.commit_log_offset == record.physical_offset
    assert (row["body"], row["tags"], row["keys"], row["flag"]) == (b"body", "tag", "key1 key2", 7)
    assert row["uniq_key"] == position.unique_key == "0" * 32
    assert dict(row["properties"])["colour"] == "bläu"


def test_messages_of_another_client_are_read(live_cluster):
    topic = live_cluster.create_topic(1)
    for number in range(3):
        answer = independent.call(
            live_cluster.broker,
            RequestCode.SEND_MESSAGE,
            {
                "producerGroup": "others",
                "topic": topic,
                "defaultTopic": "TBW102",
                "defaultTopicQueueNums": "4",
                "queueId": "0",
                "sysFlag": "0",
                "bornTimestamp": str(int(time() * 1000)),
                "flag": "0",
                "properties": "TAGS\x01theirs",
            },
            b"from others %d" % number,
            60.0,
        )
        assert answer.code == 0, answer.remark
    live_cluster.await_end(live_cluster.queue(topic), 3)
    table = read(live_cluster, QueueRange(live_cluster.queue(topic), 0, 3), ("body", "tags"))
    assert bodies(table) == [b"from others %d" % number for number in range(3)]
    assert set(table.column("tags").to_pylist()) == {"theirs"}


def test_tags_are_compared_as_text_too(live_cluster):
    """Brokers compare hashes, and these two have the same in Java."""
    topic = live_cluster.create_topic(1)
    tags = ["Aa", "BB", None, "other"]
    live_cluster.send(topic, [RawMessage(topic, b"%d" % number, tags[number % 4]) for number in range(2000)])
    part = QueueRange(live_cluster.queue(topic), 100, 1900)
    table = read(live_cluster, part, OFFSETS, tags=frozenset({"Aa"}))
    assert table.column("queue_offset").to_pylist() == list(range(100, 1900, 4))
    table = read(live_cluster, part, ("tags",), tags=frozenset({"BB", "other"}))
    assert sorted(set(table.column("tags").to_pylist())) == ["BB", "other"]
    assert table.num_rows == 900
    assert read(live_cluster, part, tags=frozenset()).num_rows == 0
    assert read(live_cluster, part, tags=frozenset({"none has this"})).num_rows == 0


def test_sql92_filter_runs_in_the_broker(live_cluster):
    topic = live_cluster.create_topic(1)
    live_cluster.send(
        topic, [RawMessage(topic, b"%d" % number, properties={"n": str(number)}) for number in range(1200)]
    )
    part = QueueRange(live_cluster.queue(topic), 0, 1200)
    table = read(live_cluster, part, sql92="n >= 990 AND n < 1000 OR n = 3")
    assert table.column("queue_offset").to_pylist() == [3, *range(990, 1000)]
    for wrong in ("n >>> 3", "n = 3 n = 4"):  # Apache's broker would send everything
        with pytest.raises(OptionError, match="the SQL92 filter"):
            read(live_cluster, part, sql92=wrong)


# ---------------------------------------------------------------- losses


def test_offsets_behind_the_end_are_lost(live_cluster):
    topic = live_cluster.create_topic(1)
    live_cluster.send(topic, numbered(10))
    queue = live_cluster.queue(topic)
    with pytest.raises(DataLossError, match=r"10 messages .*/0\[10, 20\): the queue ends at 10; set failOnDataLoss"):
        read(live_cluster, QueueRange(queue, 4, 20))
    lost = []
    assert bodies(read(live_cluster, QueueRange(queue, 4, 20), on_loss=lost.append)) == numbered(10)[4:]
    assert lost == [QueueRange(queue, 10, 20)]


def test_deleted_topic_is_named(live_cluster):
    topic = live_cluster.create_topic(1)
    live_cluster.send(topic, numbered(10))
    queue = live_cluster.queue(topic)
    live_cluster.cluster.ask(BROKER, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(topic))
    lost = []

    def outcome():
        try:
            table = read(live_cluster, QueueRange(queue, 0, 10), on_loss=lost.append)
        except ClusterError as error:
            return error.code, error.retriable, topic in str(error)
        return table.num_rows, lost

    # Apache's broker has forgotten the topic, or has its queue still until that is deleted too.
    assert outcome() in ((ResponseCode.TOPIC_NOT_EXIST, False, True), (0, [QueueRange(queue, 0, 10)]))


@pytest.mark.parametrize("kind", [ROCKETD, APACHE])
def test_a_broker_restarts_in_the_middle_and_loses_its_oldest_file(kind, tmp_path, request):
    if kind == APACHE:
        request.getfixturevalue("apache_cluster")  # skips without Java
    with start_cluster(kind, tmp_path / "servers", {"mappedFileSizeCommitLog": "1048576"}) as running:
        topic = running.create_topic(1)
        sent = numbered(3000, 500)
        running.send(topic, sent)
        part = QueueRange(running.queue(topic), 0, 3000)
        plan = ReadPlan(OFFSETS, batch_bytes=100_000)
        batches = read_range(running.options, part, plan)
        table = [next(batches)]
        running.stop_broker()
        impatient = ClusterOptions(running.namesrv, timeout=5.0, patience=0.2)
        with pytest.raises(NoAnswerError) as caught:
            list(read_range(impatient, part, plan))
        assert caught.value.retriable
        running.start_broker()
        table += batches
        assert bodies(pa.Table.from_batches(table)) == sent

        running.stop_broker()
        store = running.directory / "store"
        first, second, *_ = sorted((store / "commitlog").iterdir())
        if kind == ROCKETD:
            write_log_begin(
                RealFileSystem(), str(store), NotedBegin(int(second.name), ())
            )  # as before a file is deleted
        first.unlink()
        running.start_broker()
        catalog = BrokerCatalog(running.options)
        first = await_condition("the first file is missed", lambda: catalog.bounds(part.queue)[0])
        lost = []
        assert bodies(read(running, part, on_loss=lost.append)) == sent[first:]
        assert lost == [QueueRange(part.queue, 0, first)]
        with pytest.raises(DataLossError, match=rf"{first} messages .*\[0, {first}\): the broker has removed it"):
            read(running, part)


def test_a_slave_is_read_while_the_master_is_away(tmp_path):
    pair = {"brokerRole": "SYNC_MASTER", "registerNameServerPeriod": "10000", "brokerIP2": "127.0.0.1"}
    with start_cluster(ROCKETD, tmp_path / "master", pair) as running:
        topic = running.create_topic(1)
        running.send(topic, numbered(100))
        queue = running.queue(topic)
        given = {**running.properties, **pair, "brokerRole": "SLAVE", "brokerId": "1"}
        # It would copy the topics ten seconds later.
        shutil.copytree(tmp_path / "master" / "store" / "config", tmp_path / "slave" / "store" / "config")
        slave = twistd_servers.start_broker(tmp_path / "slave", free_broker_port(), running.namesrv, given)
        try:
            cluster = ClusterClient(_options(running, timeout=10.0, patience=0.5))
            address = cluster.addresses(BROKER)[1]
            await_condition("all is copied", lambda: offsets.bounds_at(cluster, address, queue) == (0, 100))
            running.stop_broker()
            plan = ReadPlan(OFFSETS)
            table = pa.Table.from_batches(read_range(cluster, QueueRange(queue, 10, 100), plan))
            assert bodies(table) == numbered(100)[10:]
            with pytest.raises(NoMasterError, match="broker-a has no master"):
                list(read_range(cluster, QueueRange(queue, 10, 101), plan))
            with pytest.raises(NoMasterError):
                offsets.bounds(cluster, queue)
        finally:
            slave.stop()


def test_two_ranges_are_read_in_turn_over_one_connection(live_cluster):
    topic = live_cluster.create_topic(2)
    parts = [QueueRange(live_cluster.queue(topic, number), 0, 1000) for number in range(2)]
    for part in parts:
        live_cluster.send(topic, numbered(1000), part.queue.queue_id)
    plan = ReadPlan(("queue_id", "queue_offset"), batch_bytes=1)
    both = [read_range(live_cluster.options, part, plan) for part in parts]
    seen = [pa.Table.from_batches(batches).to_pydict() for batches in zip(*zip(*both, strict=True), strict=True)]
    assert seen == [{"queue_id": [number] * 1000, "queue_offset": list(range(1000))} for number in range(2)]
    first = next(read_range(live_cluster.options, parts[0], plan))  # the other batches stay unread
    assert first.num_rows < 1000
    assert read(live_cluster, parts[1]).num_rows == 1000


# ---------------------------------------------------------------- sends


def test_sends_one_by_one_and_in_batches(live_cluster):
    topic = live_cluster.create_topic(2)
    first, second = (live_cluster.queue(topic, number) for number in range(2))
    sender = Sender(live_cluster.cluster)
    one = sender.send(first, RawMessage(topic, b"one", "t"))
    assert (one.queue, one.queue_offset, one.status) == (first, 0, 0)
    more = sender.send_batch(first, [RawMessage(topic, body, keys="k") for body in numbered(50)])
    assert [position.queue_offset for position in more] == list(range(1, 51))
    for number in range(20):
        sender.submit(second if number % 2 else first, [RawMessage(topic, b"%d" % number)], number)
    receipts = sender.finish()
    assert [receipt.token for receipt in receipts] == list(range(20))
    expected = [51 + number // 2 if number % 2 == 0 else number // 2 for number in range(20)]
    assert [receipt.positions[0].queue_offset for receipt in receipts] == expected
    live_cluster.await_end(first, 61)
    live_cluster.await_end(second, 10)
    columns = ("body", "msg_id", "uniq_key", "keys")
    table = read(live_cluster, QueueRange(first, 0, 51), columns)
    assert bodies(table) == [b"one", *numbered(50)]
    assert table.column("msg_id").to_pylist() == [one.offset_msg_id, *(where.offset_msg_id for where in more)]
    assert table.column("uniq_key").to_pylist() == [one.unique_key, *(where.unique_key for where in more)]
    assert bodies(read(live_cluster, QueueRange(second, 0, 10))) == [b"%d" % number for number in range(1, 20, 2)]


def test_a_body_is_compressed_above_the_limit(live_cluster):
    topic = live_cluster.create_topic(1)
    queue = live_cluster.queue(topic)
    body = b"abc" * 5000
    Sender(live_cluster.cluster, compress_over=4096).send(queue, RawMessage(topic, body))
    live_cluster.await_end(queue, 1)
    part = QueueRange(queue, 0, 1)
    assert bodies(read(live_cluster, part)) == [body]
    (row,) = read(live_cluster, part, ("body", "sys_flag"), decompress=False).to_pylist()
    assert row["sys_flag"] & COMPRESSED
    assert zlib.decompress(row["body"]) == body


def test_refused_sends_raise(live_cluster):
    topic = live_cluster.create_topic(1)
    sender = Sender(live_cluster.cluster)
    with pytest.raises(ClusterError) as caught:
        sender.send(live_cluster.queue(topic), RawMessage(topic, b"x" * (4 * 1024 * 1024 + 1)))
    assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert not caught.value.retriable
    assert not caught.value.doubtful
    assert "SEND_MESSAGE_V2 (310): MESSAGE_ILLEGAL (13)" in str(caught.value)
    sender.submit(live_cluster.queue(topic), [RawMessage(topic, b"x" * (4 * 1024 * 1024 + 1))], "large")
    sender.submit(live_cluster.queue(topic), [RawMessage(topic, b"small")], "small")
    large, small = sender.finish()
    assert large.error.code == ResponseCode.MESSAGE_ILLEGAL
    assert small.positions[0].queue_offset == 0


# ---------------------------------------------------------------- transactions


def test_half_messages_are_seen_when_they_are_committed(live_cluster):
    topic = live_cluster.create_topic(1)
    queue = live_cluster.queue(topic)
    transactions = Transactions(live_cluster.cluster, "group-of-transactions")
    halves = transactions.begin_all((queue, RawMessage(topic, body, "tag")) for body in numbered(6))
    halves.append(transactions.begin(queue, RawMessage(topic, b"one more")))
    assert live_cluster.catalog.bounds(queue) == (0, 0)
    halves = pickle.loads(pickle.dumps(halves))
    assert [ended.error for ended in transactions.end(halves[:2], commit=False)] == [None] * 2
    assert [ended.error for ended in transactions.end(halves[2:], commit=True)] == [None] * 5
    live_cluster.await_end(queue, 5)
    table = read(live_cluster, QueueRange(queue, 0, 5), ("body", "uniq_key"))
    assert bodies(table) == [*numbered(6)[2:], b"one more"]
    assert table.column("uniq_key").to_pylist() == [half.unique_key for half in halves[2:]]
    (ended,) = transactions.end([replace(halves[0], group="another-group")], commit=True)
    assert ended.error.code == ResponseCode.SYSTEM_ERROR
    assert not ended.error.retriable


def test_second_transaction_end_is_refused_or_repeats_the_message(live_cluster):
    """Why nothing ends a transaction twice by itself."""
    topic = live_cluster.create_topic(1)
    queue = live_cluster.queue(topic)
    transactions = Transactions(live_cluster.cluster, "group-of-repeats")
    half = transactions.begin(queue, RawMessage(topic, b"once?"))
    assert [ended.error for ended in transactions.end([half, half], commit=True)] == [None, None]
    live_cluster.await_end(queue, 2)
    assert bodies(read(live_cluster, QueueRange(queue, 0, 2))) == [b"once?"] * 2


def test_broker_checks_undecided_half_messages(live_cluster):
    topic = live_cluster.create_topic(1)
    queue = live_cluster.queue(topic)
    asked = []

    def decide(record, table):
        asked.append(record.body)
        return {b"commit": True, b"rollback": False}[record.body]

    transactions = Transactions(live_cluster.cluster, f"asked-{live_cluster.kind}", decide)
    transactions.serve([BROKER], 0)
    for body in (b"rollback", b"commit"):
        transactions.begin(queue, RawMessage(topic, body))

    def seen():
        transactions.serve([BROKER], 0.5)
        return {b"commit", b"rollback"} <= set(asked) and live_cluster.catalog.bounds(queue)[1] >= 1

    await_condition("the broker asked", seen)
    assert bodies(read(live_cluster, QueueRange(queue, 0, 1))) == [b"commit"]


# ---------------------------------------------------------------- processes


def _count(options, part, results):
    results.put(sum(batch.num_rows for batch in read_range(options, part, ReadPlan(OFFSETS))))


def test_forked_process_opens_new_connections(rocketd_cluster):
    topic = rocketd_cluster.create_topic(1)
    rocketd_cluster.send(topic, numbered(200))
    part = QueueRange(rocketd_cluster.queue(topic), 0, 200)
    batches = read_range(rocketd_cluster.options, part, ReadPlan(OFFSETS, batch_bytes=1))
    first = next(batches)  # answers to further pulls are on their way to the parent
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_count, args=(rocketd_cluster.options, part, results))
    child.start()
    assert results.get(timeout=120) == 200
    child.join(120)
    assert child.exitcode == 0
    assert first.num_rows + sum(batch.num_rows for batch in batches) == 200


def test_a_fresh_process_reads_without_twisted(rocketd_cluster):
    topic = rocketd_cluster.create_topic(1)
    rocketd_cluster.send(topic, numbered(5))
    part = QueueRange(rocketd_cluster.queue(topic), 0, 5)
    code = (
        "import pickle, sys\n"
        "from rocketd.spark.wire import read_range\n"
        "rows = sum(batch.num_rows for batch in read_range(*pickle.load(sys.stdin.buffer)))\n"
        "print(rows, sorted({'twisted', 'zope.interface', 'pyspark'} & set(sys.modules)))\n"
    )
    given = pickle.dumps((rocketd_cluster.options, part, ReadPlan(OFFSETS)))
    done = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, timeout=300, check=False)
    assert done.stdout.decode().strip() == "5 []", done.stderr.decode()


# ---------------------------------------------------------------- accounts and TLS


def _options(running, **changes):
    return ClusterOptions(**{**{name: getattr(running.options, name) for name in running.options.__slots__}, **changes})


def test_account_with_permission_reads_and_sends(guarded):
    topic = guarded.create_topic(1)
    queue = guarded.queue(topic)
    guarded.send(topic, numbered(200))
    part = QueueRange(queue, 0, 200)
    table = pa.Table.from_batches(read_range(_options(guarded, **READER), part, ReadPlan(OFFSETS)))
    assert bodies(table) == numbered(200)
    half = Transactions(guarded.cluster, "signed").begin(queue, RawMessage(topic, b"half"))
    assert [ended.error for ended in Transactions(guarded.cluster, "signed").end([half], commit=True)] == [None]
    guarded.await_end(queue, 201)


@pytest.mark.parametrize(
    "account",
    [
        {"access_key": "", "secret_key": ""},
        {"access_key": "nobody", "secret_key": "12345678"},
        {"access_key": "adminKey", "secret_key": "another-secret"},
        READER,
    ],
    ids=["none", "unknown", "wrong", "reader"],
)
def test_account_without_permission_cannot_send(guarded, account):
    topic = guarded.create_topic(1)
    with pytest.raises(ClusterError, match="AclException") as caught:
        Sender(ClusterClient(_options(guarded, **account))).send(guarded.queue(topic), RawMessage(topic, b"x"))
    assert not caught.value.retriable
    assert not caught.value.doubtful
    assert "-secret" not in str(caught.value)


def test_account_with_wrong_secret_cannot_read(guarded):
    topic = guarded.create_topic(1)
    wrong = _options(guarded, secret_key="another-secret")
    with pytest.raises(ClusterError, match="AclException"):
        list(read_range(wrong, QueueRange(guarded.queue(topic), 0, 1), ReadPlan(OFFSETS)))


def test_broker_without_sql92_is_named(guarded):
    topic = guarded.create_topic(1)
    guarded.send(topic, [b"x"])
    with pytest.raises(ClusterError, match=r"SQL92.* enablePropertyFilter=true"):
        read(guarded, QueueRange(guarded.queue(topic), 0, 1), sql92="a = 1")


def test_tls_is_verified_and_asked_for(rocketd_guarded):
    def catalog(**changes):
        return BrokerCatalog(_options(rocketd_guarded, timeout=10.0, patience=0.0, **changes))

    assert catalog().bounds(rocketd_guarded.queue(rocketd_guarded.create_topic(1))) == (0, 0)
    assert catalog(tls_ca="", tls_verify=False).topics()
    with pytest.raises(NoAnswerError, match="certificate") as caught:
        catalog(tls_ca="").topics()
    assert not caught.value.retriable
    with pytest.raises(NoAnswerError, match="did not answer"):
        catalog(tls=False).bounds(Queue("any", BROKER, 0))


# ---------------------------------------------------------------- unreachable servers


def test_no_name_server_answers():
    options = ClusterOptions("127.0.0.1:1;[::1]:1", timeout=5.0, patience=0.0)
    with pytest.raises(NoAnswerError, match=r"no name server answers: 127\.0\.0\.1:1 .* \[::1\]:1 ") as caught:
        BrokerCatalog(options).topics()
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.retriable) == (NoAnswerError, str(caught.value), True)


def test_next_name_server_is_asked(rocketd_cluster):
    options = ClusterOptions(f"127.0.0.1:1;{rocketd_cluster.namesrv}", timeout=30.0, patience=30.0)
    assert BrokerCatalog(options).topics() == rocketd_cluster.catalog.topics()
    close_connections()
    assert BrokerCatalog(options).topics() == rocketd_cluster.catalog.topics()
