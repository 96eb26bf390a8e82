"""Celery on RocketMQ: workers as processes, the transport alone in the test's process, and the guide."""

import os
import signal
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import celery  # noqa: F401 - a test run without it skips this module
import kombu
import pytest
from kombu.utils.json import dumps

from rocketd.client import MessageQueue
from rocketd.client.errors import CommitError, NoNameServerError, UnreachableError
from rocketd.client.sync import Message, Producer
from rocketd.kombu import group_reader
from rocketd.kombu.channel import PriorityError
from rocketd.kombu.delays import eta_of, level_within
from rocketd.kombu.names import group_of, topic_of
from rocketd.testing import Cluster
from tests.support.celery_workers import CeleryWorld, check_killed_worker, check_tasks_and_retries
from tests.support.places import ROOT
from tests.support.server_processes import SOURCES
from tests.support.shell_sessions import Session, section
from tests.support.store_wire import await_condition

SECONDS = 120.0
GUIDE = ROOT / "docs" / "howto" / "celery.md"


@pytest.fixture(scope="module")
def cluster():
    with Cluster() as cluster:
        cluster.address = cluster.listen()
        yield cluster


@pytest.fixture
def connect(cluster):
    """Make connections to the cluster; their queue has one queue of RocketMQ, so the order is that of the sends."""
    made = []

    def connect(**options):
        options = {"queues": 1, **cluster.client_options(**options)}
        made.append(kombu.Connection("rocketmq://", transport_options=options))
        return made[-1]

    yield connect
    for connection in made:
        connection.close()


@pytest.fixture
def queue(request):
    return f"kombu.{request.node.name}"


def send(connection, queue, *bodies, **options):
    for body in bodies:
        connection.Producer().publish(body, routing_key=queue, declare=[kombu.Queue(queue)], **options)


def receive(connection, queue, count):
    """Return the next messages of a queue, not acknowledged."""
    got = []
    deadline = datetime.now(UTC) + timedelta(seconds=SECONDS)
    while len(got) < count:
        message = connection.default_channel.basic_get(queue)
        if message is not None:
            got.append(message)
        assert datetime.now(UTC) < deadline, [each.payload for each in got]
    return got


# ------------------------------------------------------------ workers


def test_worker_runs_tasks_and_the_next_one_those_of_a_killed_one(cluster, tmp_path):
    world = CeleryWorld(tmp_path, cluster.address, "celery")
    try:
        check_killed_worker(world, check_tasks_and_retries(world))
    finally:
        world.close()


def test_application_of_the_guide_runs_its_tasks(cluster, tmp_path):
    session = Session(tmp_path, {"PYTHONPATH": SOURCES, "NAMESRV_ADDR": cluster.address}, SECONDS)
    try:
        session.run(section(GUIDE, "A first task"))
    finally:
        session.close()


def test_every_program_of_the_guide_is_run():
    assert section(GUIDE, "A first task").count("```python") == GUIDE.read_text().count("```python")


# ------------------------------------------------------------ the transport


def test_messages_acknowledged_out_of_order_do_not_come_again(connect, queue):
    first = connect()
    send(first, queue, "a", "b", "c")
    _, b, _ = receive(first, queue, 3)
    b.ack()
    first.close()
    second = connect()
    again = receive(second, queue, 2)
    assert sorted(message.payload for message in again) == ["a", "c"]
    for message in again:
        message.ack()
    assert second.default_channel.queue_declare(queue).message_count == 0


def test_message_given_back_comes_again_marked(connect, queue):
    connection = connect()
    send(connection, queue, "a")
    (message,) = receive(connection, queue, 1)
    message.requeue()
    (again,) = receive(connection, queue, 1)
    assert (again.payload, again._raw["redelivered"]) == ("a", True)
    again.reject()
    assert connection.default_channel.queue_declare(queue).message_count == 0


def test_consumer_gets_messages_and_cancel_gives_the_queue_up(connect, queue):
    got = []
    first, second = connect(), connect()
    send(first, queue, "a", "b")
    with first.Consumer(kombu.Queue(queue), callbacks=[lambda body, message: got.append(body)], no_ack=True):
        while len(got) < 2:
            first.drain_events(timeout=SECONDS)
    assert got == ["a", "b"]
    assert first.default_channel._readers == {}
    send(second, queue, "c")
    assert [message.payload for message in receive(second, queue, 1)] == ["c"]


def test_size_purge_and_delete(connect, cluster, queue):
    connection = connect()
    send(connection, queue, "a", "b")
    cluster.settle()
    channel = connection.default_channel
    assert channel.queue_declare(queue).message_count == 2
    assert channel.queue_purge(queue) == 2
    assert channel.queue_declare(queue).message_count == 0
    channel._delete(queue)
    assert not channel._has_queue(queue)


def test_message_that_comes_too_early_waits_at_the_broker(connect, cluster, queue):
    """As from a broker without a timer, such as Apache's."""
    connection = connect()
    connection.default_channel.queue_declare(queue)
    eta = (datetime.now(UTC) + timedelta(seconds=50)).isoformat()
    early = {"body": "", "headers": {"eta": eta}, "properties": {"delivery_tag": "x", "delivery_info": {}}}
    with Producer("early", **cluster.client_options()) as producer:
        producer.send(Message(topic_of(queue), dumps(early).encode()))
    cluster.settle()
    assert connection.default_channel.basic_get(queue) is None
    assert connection.default_channel.queue_declare(queue).message_count == 0
    cluster.advance(31)
    assert connection.default_channel.queue_declare(queue).message_count == 1


def test_delayed_message_waits_for_the_timer_and_beyond_its_limit_for_levels(connect, cluster, queue):
    connection = connect()
    connection.default_channel.queue_declare(queue)
    admin = connection.default_channel.connection.clients.admin
    eta = datetime.now(UTC) + timedelta(seconds=50)
    for limit in (60, 10):
        admin.set_broker_config("broker-a", {"timerMaxDelaySec": str(limit)})
        connection.default_channel._put(
            queue, {"body": "", "headers": {"eta": eta.isoformat()}, "properties": {"delivery_tag": "x"}}
        )
    admin.set_broker_config("broker-a", {"timerMaxDelaySec": "259200"})
    assert connection.default_channel._size(queue) == 0
    cluster.advance(60)
    assert connection.default_channel._size(queue) == 2


def test_messages_that_kombu_has_not_sent_are_skipped_with_an_error(connect, cluster, queue, caplog):
    connection = connect()
    connection.default_channel.queue_declare(queue)
    foreign = (
        *(b"\xff", b"no JSON", b"[]", b'{"body": ""}', b'{"headers": {}, "properties": {}}'),
        b'{"headers": {}, "properties": {"delivery_info": {}, "body_encoding": "none"}, "body": "x"}',
        b'{"headers": {"__type__": "datetime", "__value__": 5}, "properties": {"delivery_info": {}}}',
    )
    with Producer("foreign", **cluster.client_options()) as producer:
        for body in foreign:
            producer.send(Message(topic_of(queue), body))
    send(connection, queue, "a")
    (message,) = receive(connection, queue, 1)
    assert message.payload == "a"
    message.ack()
    assert connection.default_channel.queue_declare(queue).message_count == 0
    assert sum("is skipped" in record.getMessage() for record in caplog.records) == len(foreign)


def test_failed_commit_is_made_again(connect, queue, monkeypatch):
    connection = connect()
    send(connection, queue, "a")
    (message,) = receive(connection, queue, 1)
    reader = connection.default_channel._readers[queue]
    with monkeypatch.context() as patch:
        patch.setattr(reader._consumer, "commit_if", raise_commit_error)
        message.ack()
    assert connection.default_channel._size(queue) == 1
    assert connection.default_channel.basic_get(queue) is None
    assert connection.default_channel._size(queue) == 0


def raise_commit_error(wanted, offsets):
    raise CommitError("the broker is away")


def test_priorities_are_refused(connect, queue):
    connection = connect()
    with pytest.raises(PriorityError, match="one queue for each priority"):
        send(connection, queue, "a", priority=3)
    with pytest.raises(PriorityError, match="x-max-priority"):
        connection.default_channel.queue_declare(queue, arguments={"x-max-priority": 9})


def test_queue_is_declared_while_a_broker_has_no_master():
    with Cluster(brokers=2, slaves=1) as cluster:
        cluster.brokers["broker-b"].kill()
        cluster.settle()
        with kombu.Connection("rocketmq://", transport_options=cluster.client_options()) as connection:
            assert connection.default_channel.queue_declare("lone").message_count == 0
            send(connection, "lone", "a")
            assert [message.payload for message in receive(connection, "lone", 1)] == ["a"]


def test_unreachable_cluster_is_an_error_of_the_connection(connect):
    connection = kombu.Connection("rocketmq://127.0.0.1:1")
    with pytest.raises((NoNameServerError, UnreachableError, kombu.exceptions.OperationalError)):
        connection.ensure_connection(max_retries=1, interval_start=0)
    connection.release()


def test_url_gives_account_and_namespace():
    transport = kombu.Connection("rocketmq://key:secret@mq.example:9877/tenant").transport
    config = transport._config()
    assert (config.namesrv, config.namespace, config.credentials.access_key) == ("mq.example:9877", "tenant", "key")
    config = kombu.Connection("rocketmq://").transport._config()
    assert (config.namesrv, config.namespace, config.credentials) == ("", "", None)


# ------------------------------------------------------------ offsets


class ScriptedConsumer:
    """A consumer whose polls are the calls of a script."""

    def __init__(self, *args, on_assigned, on_revoked, **options):
        self.assigned, self.revoked = on_assigned, on_revoked
        self.commits, self.polls = [], []

    def open(self):
        return self

    def poll(self, timeout):
        return self.polls.pop(0)() if self.polls else []

    def commit_beginnings(self, queues):
        pass

    def commit_if(self, wanted, offsets):
        if wanted():
            self.commits += offsets.values()


QUEUE = MessageQueue("T", "broker-a", 0)


def polled(*offsets):
    return [SimpleNamespace(queue=QUEUE, queue_offset=offset, msg_id=str(offset)) for offset in offsets]


@pytest.fixture
def reader(monkeypatch):
    """A reader of one queue, with a scripted consumer."""
    monkeypatch.setattr(group_reader, "ResetTellingConsumer", ScriptedConsumer)
    reader = group_reader.GroupReader(None, "T", "G", None)
    reader.consumer = reader._consumer
    reader.consumer.assigned([QUEUE])
    return reader


def take_all(reader):
    return list(iter(lambda: reader.take(0), None))


def test_offsets_after_a_step_back_commit_no_unacknowledged_message(reader):
    reader.consumer.polls = [lambda: polled(8, 9)]
    old = reader.take(0), reader.take(0)
    reader.consumer.polls = [lambda: polled(0, 1)]
    new = take_all(reader)
    assert [message.queue_offset for message in new] == [0, 1]
    reader.acknowledge(old[0])
    reader.acknowledge(new[1])
    assert max(reader.consumer.commits, default=0) == 0
    reader.acknowledge(new[0])
    assert reader.consumer.commits[-1] == 2


def test_acknowledgement_of_an_older_track_leaves_the_same_offset_unacknowledged(reader):
    reader.consumer.polls = [lambda: polled(5)]
    (old,) = take_all(reader)
    reader.consumer.revoked([QUEUE])
    reader.consumer.assigned([QUEUE])
    reader.consumer.polls = [lambda: polled(5)]
    (new,) = take_all(reader)
    reader.acknowledge(old)
    assert reader.consumer.commits in ([], [5])
    reader.acknowledge(new)
    assert reader.consumer.commits[-1] == 6


def test_messages_polled_before_their_queue_was_revoked_are_dropped(reader):
    def late():
        reader.consumer.revoked([QUEUE])
        return polled(10)

    reader.consumer.polls = [late]
    assert reader.take(0) is None
    reader.consumer.assigned([QUEUE])
    reader.consumer.polls = [lambda: polled(8, 9)]
    first, _ = take_all(reader)
    reader.acknowledge(first)
    assert reader.consumer.commits == [9]


def test_messages_polled_before_a_reset_are_dropped_below_it(reader):
    def late():
        reader._reset({QUEUE: 10})
        return polled(8, 9, 10)

    reader.consumer.polls = [late]
    (message,) = take_all(reader)
    reader.acknowledge(message)
    assert reader.consumer.commits == [11]


def test_purge_drops_messages_that_a_worker_holds(connect, cluster, queue):
    worker, other = connect(), connect()
    send(worker, queue, "done", "a", "b", "c")
    cluster.settle()
    done, a = receive(worker, queue, 2)
    done.ack()
    assert other.default_channel.queue_purge(queue) == 3
    reader = worker.default_channel._readers[queue]
    await_condition("the worker has heard of the reset", lambda: not reader._ready)
    a.ack()
    assert other.default_channel._size(queue) == 0
    send(other, queue, "d")
    assert [message.payload for message in receive(worker, queue, 1)] == ["d"]


def test_purge_before_the_first_acknowledgement_of_a_worker_resets_all_queues(cluster, queue):
    with kombu.Connection("rocketmq://", transport_options={"queues": 4, **cluster.client_options()}) as connection:
        send(connection, queue, "a", "b")
        cluster.settle()
        receive(connection, queue, 1)
        assert connection.default_channel.queue_purge(queue) == 2
        assert connection.default_channel._size(queue) == 0


def test_recover_stores_each_unacknowledged_message_once(connect, queue):
    connection = connect()
    send(connection, queue, "a", "b")
    assert len(receive(connection, queue, 1)) == 1
    connection.default_channel.basic_recover(requeue=True)
    again = receive(connection, queue, 2)
    assert [message.payload for message in again] == ["b", "a"]
    for message in again:
        message.ack()
    assert connection.default_channel._size(queue) == 0


def test_two_channels_of_a_connection_are_two_members_of_the_group(connect, cluster, queue):
    connection = connect()
    send(connection, queue, "a")
    with connection.channel() as first, connection.channel() as second:
        for channel in (first, second):
            channel.basic_get(queue, no_ack=True)
        consumers = cluster.broker.consumers
        await_condition("both are members", lambda: len(consumers.find(group_of(queue)).clients()) == 2)


def test_connection_used_before_a_fork_sends_in_the_child(cluster, queue):
    with kombu.Connection(f"rocketmq://{cluster.address}", transport_options={"queues": 1}) as connection:
        send(connection, queue, "a")
        receive(connection, queue, 1)[0].ack()
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(int(SECONDS))
            status = 1
            try:
                send(connection, queue, "b")
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [message.payload for message in receive(connection, queue, 1)] == ["b"]


# ------------------------------------------------------------ names and delays


def test_names_of_queues_become_names_of_topics():
    assert topic_of("celery") == "celery"
    assert topic_of("shop.orders@north") == "shop%2Eorders%40north"
    assert topic_of("grün") == "gr%C3%BCn"
    assert group_of("a.b") == "kombu_a%2Eb"
    for name in ("", "x" * 115, "." * 39):
        with pytest.raises(ValueError, match="accepted are 1 to 114"):
            topic_of(name)


def test_eta_is_read_from_the_headers_of_a_task():
    assert eta_of({"eta": "2026-11-26T10:00:00+01:00"}) == datetime(2026, 11, 26, 9, tzinfo=UTC)
    assert eta_of({"eta": "2026-11-26T10:00:00"}) == datetime(2026, 11, 26, 10, tzinfo=UTC)
    for headers in ({}, {"eta": None}, {"eta": 5}, {"eta": "soon"}):
        assert eta_of(headers) is None


def test_level_is_the_longest_that_does_not_exceed_the_rest():
    for seconds, level in ((-1, 0), (0.5, 0), (1, 1), (4.9, 1), (90, 5), (7200, 18), (10**6, 18)):
        assert level_within(timedelta(seconds=seconds)) == level
