"""The outbox of SQLAlchemy and its relay, with SQLite and the servers of rocketd.testing."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from sqlalchemy import create_engine, event, select, update
from sqlalchemy.dialects import mssql, mysql, oracle, postgresql, sqlite
from sqlalchemy.orm import Session
from sqlalchemy.schema import CreateTable
from twisted.logger import capturedLogs

from rocketd import client
from rocketd.client import TEXT, Message, SendStatus, aio
from rocketd.client.codecs import MsgspecCodec
from rocketd.client.errors import (
    ClientClosedError,
    ConnectionLostError,
    IllegalMessageError,
    IllegalOptionError,
    UsageError,
)
from rocketd.client.outbox_sqlalchemy import OUTBOX_ID, SqlAlchemyOutbox, SqlAlchemyRelay, outbox_table
from rocketd.client.sync import Producer
from rocketd.testing import Cluster

TABLE = outbox_table("rocketd_outbox")


@pytest.fixture(scope="module")
def cluster():
    with Cluster(topics=["T", "U"]) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def producer(cluster):
    with Producer("PG", **cluster.client_options()) as producer:
        yield producer


@pytest.fixture
def engine(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path}/outbox.db", connect_args={"timeout": 60})
    SqlAlchemyOutbox(engine).create_table()
    yield engine
    engine.dispose()


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class ScriptedProducer:
    """Records what it sends. Messages with a body in ``failing`` raise its error, those in ``statuses`` have its status."""

    codec = Producer("unused").codec
    send_timeout = 3.0

    def __init__(self):
        self.sent = []
        self.failing = {}
        self.statuses = {}
        self.before = lambda message: None

    def send(self, message, *, key=None):
        self.before(message)
        if message.body in self.failing:
            raise self.failing[message.body]
        self.sent.append((key, message.body))
        return SimpleNamespace(status=self.statuses.get(message.body, SendStatus.SEND_OK))


@pytest.fixture
def scripted():
    return ScriptedProducer()


def add(engine, *bodies, topic="T", **options):
    with Session(engine) as session, session.begin():
        outbox = SqlAlchemyOutbox(session, now=lambda: 0.0)
        return [outbox.add(Message(topic, body), **options) for body in bodies]


def rows(engine, *columns):
    with engine.connect() as connection:
        return connection.execute(select(*columns).order_by(TABLE.c.id)).all()


# ------------------------------------------------------------ adding


def test_message_of_committed_transaction_is_sent_whole(cluster, producer, engine):
    whole = Message(
        "T", "pêche", tags="fruit", keys=["A17", "B18"], properties={"colour": "red"}, flag=7, wait_stored=False
    )
    with engine.begin() as connection:
        outbox_id = SqlAlchemyOutbox(connection, codec=TEXT).add(whole, key="A17")
    relay = SqlAlchemyRelay(engine, producer)
    assert (relay.pending(), relay.run_once(), relay.run_once(), relay.pending()) == (1, 1, 0, 0)
    (got,) = (each for each in cluster.messages("T") if each.properties.get(OUTBOX_ID) == outbox_id)
    assert (got.body.decode(), got.tags, got.keys, got.flag) == ("pêche", "fruit", ["A17", "B18"], 7)
    assert got.properties["colour"] == "red"


def test_message_of_rolled_back_transaction_is_not_sent(engine, scripted):
    with Session(engine) as session:
        SqlAlchemyOutbox(session).add(Message("T", b"lost"))
        session.rollback()
    assert SqlAlchemyRelay(engine, scripted).run_once() == 0


def test_times_and_content_type_are_kept(engine, scripted):
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    messages = [Message("T", {"n": 1}, deliver_at=moment), Message("T", {"n": 2}, deliver_after=2.5)]
    seen = []
    with engine.begin() as connection:
        outbox = SqlAlchemyOutbox(engine, codec=MsgspecCodec())
        for message in messages:
            outbox.add(message, within=connection)
    scripted.before = seen.append
    SqlAlchemyRelay(engine, scripted).run_once()
    assert [(each.deliver_at, each.deliver_after) for each in seen] == [(moment, None), (None, 2.5)]
    assert seen[0].body == b'{"n":1}'
    assert seen[0].properties["content-type"] == "application/json"


def test_invalid_messages_and_uses_are_refused(engine, scripted):
    with engine.begin() as connection:
        outbox = SqlAlchemyOutbox(connection)
        for wrong in (Message("T", b""), Message("T", "text"), "text"):
            with pytest.raises(IllegalMessageError):
                outbox.add(wrong)
        for key in ("", "x" * 256, 5):
            with pytest.raises(UsageError, match="key="):
                outbox.add(Message("T", b"x"), key=key)
    with pytest.raises(UsageError, match="within="):
        SqlAlchemyOutbox(engine).add(Message("T", b"x"))
    with pytest.raises(UsageError, match="no codec"):
        SqlAlchemyRelay(engine, Producer("PG", codec=TEXT))
    for face in (aio, client):
        with pytest.raises(UsageError, match=r"needs a producer of rocketd\.client\.sync"):
            SqlAlchemyRelay(engine, face.Producer("PG"))
    for wrong in (dict.fromkeys(["lease"], 3), dict.fromkeys(["batch"], 0)):
        with pytest.raises(IllegalOptionError, match=next(iter(wrong))):
            SqlAlchemyRelay(engine, scripted, **wrong)


# ------------------------------------------------------------ order and failures


def test_messages_of_a_key_are_sent_in_order_within_a_turn(engine, scripted):
    for number in range(3):
        for key in ("A", "B", None):
            add(engine, b"%d" % number, key=key)
    assert SqlAlchemyRelay(engine, scripted).run_once() == 9
    for key in ("A", "B"):
        assert [body for each, body in scripted.sent if each == key] == [b"0", b"1", b"2"]


def test_message_that_fails_blocks_its_key_alone_and_is_tried_again_with_growing_pauses(engine, scripted):
    add(engine, b"A1", b"A2", key="A")
    add(engine, b"B1", b"B2", key="B")
    add(engine, b"1", b"2")
    clock = Clock()
    scripted.failing = {b"A1": IllegalMessageError("too large"), b"1": IllegalMessageError("too large")}
    relay = SqlAlchemyRelay(engine, scripted, now=clock)
    assert relay.run_once() == 3
    assert [body for _, body in scripted.sent] == [b"B1", b"B2", b"2"]
    assert rows(engine, TABLE.c.attempts, TABLE.c.error, TABLE.c.lease)[0] == (
        1,
        "IllegalMessageError: too large",
        None,
    )
    pauses = []
    for _ in range(12):
        before = clock.now
        clock.now = rows(engine, TABLE.c.next_at)[0][0] - 0.01
        assert relay.run_once() == 0
        clock.now += 0.02
        relay.run_once()
        pauses.append(round(clock.now - before))
    assert pauses[:4] == [1, 2, 4, 8]
    assert pauses[-1] == 300
    scripted.failing.clear()
    clock.now += 301
    assert relay.run_once() == 3
    assert [body for key, body in scripted.sent if key == "A"] == [b"A1", b"A2"]


def test_outage_of_a_topic_costs_one_try_a_turn_and_leaves_other_topics(engine, scripted):
    add(engine, b"1", b"2", b"3", topic="U")
    add(engine, b"4")
    tries = []
    scripted.before = lambda message: tries.append(message.body)
    scripted.failing = dict.fromkeys((b"1", b"2", b"3"), ConnectionLostError("gone"))
    assert SqlAlchemyRelay(engine, scripted, now=Clock()).run_once() == 1
    assert tries == [b"1", b"4"]
    assert [attempts for (attempts,) in rows(engine, TABLE.c.attempts)] == [1, 0, 0]
    with engine.begin() as connection:
        connection.execute(update(TABLE).values(attempts=20, next_at=0.0))
    SqlAlchemyRelay(engine, scripted, now=Clock()).run_once()
    assert [next_at for (next_at,) in rows(engine, TABLE.c.next_at)] == [1030.0, 1030.0, 1030.0]


def test_outage_of_a_topic_with_more_messages_than_a_turn_leaves_the_next_turn_to_other_topics(engine, scripted):
    add(engine, *(b"%d" % number for number in range(10)), topic="U")
    add(engine, b"leased", topic="U")
    add(engine, b"T1", b"T2")
    with engine.begin() as connection:
        leased = update(TABLE).where(TABLE.c.id == 11)
        connection.execute(leased.values(lease="other", lease_until=2000.0))
    scripted.failing = {b"%d" % number: ConnectionLostError("gone") for number in range(10)}
    clock = Clock()
    relay = SqlAlchemyRelay(engine, scripted, batch=3, now=clock)
    assert (relay.run_once(), relay.run_once()) == (0, 2)
    assert [body for _, body in scripted.sent] == [b"T1", b"T2"]
    assert rows(engine, TABLE.c.attempts, TABLE.c.next_at) == [(1, 1001.0), *[(0, 1001.0)] * 9, (0, 0.0)]
    scripted.failing.clear()
    clock.now = 1001.0
    assert [relay.run_once() for _ in range(5)] == [3, 3, 3, 1, 0]


@pytest.mark.parametrize("status", [SendStatus.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT])
def test_message_that_was_not_flushed_or_replicated_in_time_blocks_its_key_and_is_sent_again(engine, scripted, status):
    add(engine, b"A1", b"A2", key="A")
    add(engine, b"1")
    scripted.statuses = {b"A1": status}
    clock = Clock()
    relay = SqlAlchemyRelay(engine, scripted, now=clock)
    assert relay.run_once() == 1
    assert [body for _, body in scripted.sent] == [b"A1", b"1"]
    ((attempts, next_at, error), _) = rows(engine, TABLE.c.attempts, TABLE.c.next_at, TABLE.c.error)
    assert (attempts, next_at) == (1, 1001.0)
    assert error.startswith(f"{status.name}: ")
    scripted.statuses.clear()
    clock.now = 1001.0
    assert relay.run_once() == 2
    assert [body for _, body in scripted.sent[2:]] == [b"A1", b"A2"]


def test_message_counts_as_sent_if_no_slave_is_available(engine, scripted):
    add(engine, b"1")
    scripted.statuses = {b"1": SendStatus.SLAVE_NOT_AVAILABLE}
    relay = SqlAlchemyRelay(engine, scripted)
    assert (relay.run_once(), relay.pending()) == (1, 0)


def test_turn_ends_before_its_lease(engine, scripted):
    add(engine, b"1", b"2", b"3")
    clock = Clock()

    def take_time(message):
        clock.now += 4

    scripted.before = take_time
    relay = SqlAlchemyRelay(engine, scripted, lease=10, now=clock)
    assert (relay.run_once(), relay.run_once()) == (2, 1)


def test_number_of_messages_in_a_turn_is_limited(engine, scripted):
    add(engine, *(b"%d" % number for number in range(5)), key="A")
    add(engine, *(b"%d" % number for number in range(5)))
    relay = SqlAlchemyRelay(engine, scripted, batch=4)
    assert [relay.run_once() for _ in range(4)] == [4, 4, 2, 0]
    assert [body for key, body in scripted.sent if key == "A"] == [b"0", b"1", b"2", b"3", b"4"]


# ------------------------------------------------------------ several relays


def test_second_relay_takes_no_message_of_a_key_that_the_first_one_sends(engine, scripted):
    add(engine, b"A1", b"A2", key="A")
    add(engine, b"B1", key="B")
    other = ScriptedProducer()

    def second(message):
        if message.body == b"A1":
            add(engine, b"A3", key="A")
            add(engine, b"C1", key="C")
        SqlAlchemyRelay(engine, other).run_once()

    scripted.before = second
    assert SqlAlchemyRelay(engine, scripted).run_once() == 3
    assert [body for _, body in scripted.sent] == [b"A1", b"A2", b"B1"]
    assert [body for _, body in other.sent] == [b"C1", b"A3"]


def test_relay_leaves_a_key_if_a_lower_id_is_committed_while_another_relay_sends_the_key(engine, scripted):
    add(engine, b"first", b"second", key="A")
    with engine.begin() as connection:  # the second id is taken before the transaction with the first one commits
        connection.execute(update(TABLE).where(TABLE.c.id == 2).values(lease="other", lease_until=1060.0))
    add(engine, b"third", key="A")
    add(engine, b"B1", key="B")
    clock = Clock()
    relay = SqlAlchemyRelay(engine, scripted, batch=1, now=clock)
    assert [relay.run_once() for _ in range(2)] == [1, 0]
    clock.now = 1060.0
    assert [relay.run_once() for _ in range(3)] == [1, 1, 1]
    assert [body for _, body in scripted.sent] == [b"B1", b"first", b"second", b"third"]


def test_relay_gives_a_key_back_if_another_relay_took_a_message_of_it_in_the_same_moment(engine, scripted):
    add(engine, b"A1", b"A2", key="A")
    add(engine, b"B1", key="B")
    waiting = [update(TABLE).where(TABLE.c.id == 2).values(lease="other", lease_until=1060.0)]

    @event.listens_for(engine, "before_cursor_execute")
    def commit_the_other_lease(connection, cursor, statement, *_):
        if waiting and statement.startswith("UPDATE"):
            connection.execute(waiting.pop())

    clock = Clock()
    relay = SqlAlchemyRelay(engine, scripted, now=clock)
    assert relay.run_once() == 1
    assert rows(engine, TABLE.c.key, TABLE.c.lease) == [("A", None), ("A", "other")]
    clock.now = 1060.0
    assert relay.run_once() == 2
    assert [body for _, body in scripted.sent] == [b"B1", b"A1", b"A2"]


def test_messages_of_a_dead_relay_are_sent_after_its_lease(engine, scripted):
    add(engine, b"A1", b"A2", key="A")
    with engine.begin() as connection:
        connection.execute(update(TABLE).values(lease="dead", lease_until=1060.0))
    clock = Clock()
    relay = SqlAlchemyRelay(engine, scripted, now=clock)
    assert relay.run_once() == 0
    clock.now = 1060.0
    assert relay.run_once() == 2


def test_late_relay_leaves_messages_that_another_one_has_taken(engine, scripted):
    add(engine, b"A1", key="A")

    def lose_lease(message):
        with engine.begin() as connection:
            connection.execute(update(TABLE).values(lease="other", lease_until=1e12))

    scripted.before = lose_lease
    SqlAlchemyRelay(engine, scripted).run_once()
    assert rows(engine, TABLE.c.lease, TABLE.c.lease_until) == [("other", 1e12)]


def test_relays_side_by_side_send_each_message_once_and_in_order(engine):
    for number in range(20):
        for key in "ABCD":
            add(engine, b"%d" % number, key=key)
    producers = [ScriptedProducer() for _ in range(3)]
    log, lock = [], threading.Lock()

    def note(message):
        with lock:
            log.append(message.properties[OUTBOX_ID])

    order = []

    def run(producer):
        producer.before = note
        send = producer.send

        def sending(message, *, key=None):
            result = send(message, key=key)
            with lock:
                order.append((key, int(message.body)))
            return result

        producer.send = sending
        relay = SqlAlchemyRelay(engine, producer, batch=7)
        while relay.pending():
            relay.run_once()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run, producers))
    assert len(set(log)) == len(log) == 80
    for key in "ABCD":
        assert [number for each, number in order if each == key] == list(range(20))


def test_query_skips_locked_rows_in_databases_that_can(engine, scripted):
    query = SqlAlchemyRelay(engine, scripted)._heads(0.0)
    for dialect in (postgresql.dialect(), mysql.dialect()):
        assert "SKIP LOCKED" in str(query.compile(dialect=dialect))
    plain = SqlAlchemyRelay(engine, scripted, skip_locked=False)._heads(0.0)
    assert "FOR UPDATE" not in str(plain.compile(dialect=postgresql.dialect()))


@pytest.mark.parametrize("database", [mssql, mysql, oracle, postgresql, sqlite])
def test_table_of_an_outbox_compiles_for_each_database_with_times_in_double_precision(database):
    created = str(CreateTable(TABLE).compile(dialect=database.dialect()))
    assert "next_at DOUBLE" in created


# ------------------------------------------------------------ running


def test_run_survives_failures_of_the_database_and_ends_at_stop(engine, scripted):
    failures = []

    @event.listens_for(engine, "do_connect", retval=False)
    def refuse(*_):
        if len(failures) < 2:
            failures.append(True)
            raise engine.dialect.loaded_dbapi.OperationalError("gone")

    add_engine = create_engine(engine.url)
    add(add_engine, b"1")
    add_engine.dispose()
    engine.dispose()
    relay = SqlAlchemyRelay(engine, scripted, interval=0.01)
    scripted.before = lambda message: relay.stop()
    thread = threading.Thread(target=relay.run)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert (len(failures), [body for _, body in scripted.sent]) == (2, [b"1"])


def test_unexpected_error_of_a_send_postpones_the_message_and_is_logged_with_its_traceback(engine, scripted):
    add(engine, b"1", b"2")
    scripted.failing = {b"1": ZeroDivisionError("a hook's mistake")}
    relay = SqlAlchemyRelay(engine, scripted, now=Clock())
    with capturedLogs() as logs:
        assert relay.run_once() == 1
    assert [each["log_failure"].type for each in logs if "log_failure" in each] == [ZeroDivisionError]
    ((error, next_at, lease),) = rows(engine, TABLE.c.error, TABLE.c.next_at, TABLE.c.lease)
    assert (error, next_at, lease) == ("ZeroDivisionError: a hook's mistake", 1001.0, None)


def test_run_ends_with_the_error_of_a_stopped_producer_and_postpones_nothing(engine, scripted):
    add(engine, b"1", b"2")
    scripted.failing = {b"1": ClientClosedError("stopped")}
    relay = SqlAlchemyRelay(engine, scripted, interval=0.01)
    tries = []

    def note(message):
        tries.append(message.body)
        if len(tries) > 1:
            relay.stop()  # so that the test ends if the error does not end the run

    scripted.before = note
    with pytest.raises(ClientClosedError):
        relay.run()
    assert tries == [b"1"]
    assert rows(engine, TABLE.c.attempts, TABLE.c.next_at, TABLE.c.lease) == [(0, 0.0, None)] * 2
