"""rocketd.testing: the real servers in the test's process, as the three faces of the client find them."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise

import pytest
import pytest_twisted
from twisted.internet.threads import deferToThread

from rocketd import client
from rocketd.client import Reject, Retry, TransactionState, aio
from rocketd.client.errors import (
    ClientStateError,
    IllegalOptionError,
    RequestTimeoutError,
    RocketMQError,
    TopicNotFoundError,
    UsageError,
)
from rocketd.client.sync import Consumer, LitePullConsumer, Message, Producer
from rocketd.testing import Cluster, quiescence
from tests.support.server_processes import SOURCES

SECOND = timedelta(seconds=1)


@pytest.fixture
def cluster():
    with Cluster(topics=["T"]) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def calm_cluster():
    """For tests that change nothing."""
    with Cluster(topics=["T", "Orders"]) as cluster:
        yield cluster


class Seen:
    """A handler that notes bodies, how often each came, and when."""

    def __init__(self, cluster, fail=()):
        self.cluster = cluster
        self.fail = fail
        self.at = []
        self.came = threading.Condition()

    def __call__(self, message):
        with self.came:
            self.at.append((message.body.decode(), self.cluster.now(), message.reconsume_times))
            self.came.notify_all()
        if message.body in self.fail:
            raise ValueError("too hard")

    @property
    def bodies(self):
        return [body for body, _, _ in self.at]


def consumer(cluster, handler, group="CG", topics="T", **options):
    return Consumer(group, topics=topics, handler=handler, begin="earliest", **options, **cluster.client_options())


def producer(cluster, group="PG", **options):
    return Producer(group, **options, **cluster.client_options())


# ------------------------------------------------------------ the three faces


def test_blocking_clients(cluster):
    seen = Seen(cluster)
    with producer(cluster) as sender, consumer(cluster, seen):
        for number in range(20):
            assert sender.send(Message("T", b"%d" % number)).status == 0
        cluster.settle()
    assert sorted(seen.bodies, key=int) == [str(number) for number in range(20)]
    assert sorted(int(message.body) for message in cluster.messages("T")) == list(range(20))


def test_asyncio_clients(cluster):
    async def play():
        options = cluster.client_options()
        seen = []

        async def handle(message):
            seen.append(message.body)

        async with (
            aio.Producer("PG", **options) as sender,
            aio.Consumer("CG", topics="T", begin="earliest", handler=handle, **options),
        ):
            await sender.send(aio.Message("T", b"now"))
            await sender.send(aio.Message("T", b"in ten minutes", delay_level=14))
            await asyncio.to_thread(cluster.advance, minutes=9)
            assert seen == [b"now"]
            await asyncio.to_thread(cluster.advance, minutes=2)
            assert seen == [b"now", b"in ten minutes"]
            with pytest.raises(UsageError, match="to_thread"):
                cluster.advance(seconds=1)

    asyncio.run(play())


@pytest_twisted.ensureDeferred
async def test_twisted_clients(cluster):
    options = cluster.client_options()
    seen = []
    async with (
        client.Producer("PG", **options) as sender,
        client.Consumer(
            "CG", topics="T", begin="earliest", handler=lambda message: seen.append(message.body), **options
        ),
    ):
        await sender.send(client.Message("T", b"now"))
        await sender.send(client.Message("T", b"in ten minutes", delay_level=14))
        await deferToThread(cluster.advance, minutes=9)
        assert seen == [b"now"]
        await deferToThread(cluster.advance, minutes=2)
        assert seen == [b"now", b"in ten minutes"]


def test_iteration_and_polling(cluster):
    with producer(cluster) as sender:
        for number in range(5):
            sender.send(Message("T", b"%d" % number))
        with Consumer("I", topics="T", begin="earliest", **cluster.client_options()) as messages:
            taken = {next(messages).body for _ in range(5)}
            cluster.advance(minutes=1)  # the advance does not wait for iterating consumers
        with LitePullConsumer("L", topics="T", begin="earliest", **cluster.client_options()) as poller:
            polled = set()
            while len(polled) < 5:
                polled |= {message.body for message in poller.poll(timeout=30)}
    assert taken == polled == {b"0", b"1", b"2", b"3", b"4"}


# ------------------------------------------------------------ time


@pytest.mark.long
def test_delayed_message_comes_at_its_time_and_not_before(cluster):
    seen = Seen(cluster)
    with producer(cluster) as sender, consumer(cluster, seen):
        before = cluster.now()
        sender.send(Message("T", b"level 18", delay_level=18))
        sender.send(Message("T", b"level 3", delay_level=3))
        sender.send(Message("T", b"own time", deliver_after=timedelta(minutes=45)))
        after = cluster.now()
        cluster.advance(timedelta(hours=2) - SECOND)
        assert seen.bodies == ["level 3", "own time"]
        cluster.advance(2)
        assert seen.bodies == ["level 3", "own time", "level 18"]
    for (body, at, _), due in zip(
        seen.at, (timedelta(seconds=10), timedelta(minutes=45), timedelta(hours=2)), strict=True
    ):
        assert before + due <= at < after + due + SECOND, body


def test_failing_handler_is_tried_again_until_the_dead_letter(cluster):
    seen = Seen(cluster, fail={b"bad"})
    with producer(cluster) as sender, consumer(cluster, seen, max_reconsume_times=4):
        sender.send(Message("T", b"bad"))
        sender.send(Message("T", b"good"))
        cluster.advance(minutes=10)
    assert seen.bodies.count("good") == 1
    tries = [(at, times) for body, at, times in seen.at if body == "bad"]
    assert [times for _, times in tries] == [0, 1, 2, 3, 4]
    gaps = [(after - before).total_seconds() for (before, _), (after, _) in pairwise(tries)]
    assert gaps == pytest.approx([10, 30, 60, 120], abs=3)
    (dead,) = cluster.messages("%DLQ%CG")
    assert dead.body == b"bad"


def test_retry_and_reject_of_the_handler(cluster):
    tries = []

    def handle(message):
        tries.append((message.body, cluster.now()))
        if message.body == b"nonsense":
            raise Reject
        if len([body for body, _ in tries if body == b"again"]) == 1:
            raise Retry(timedelta(minutes=5))

    with producer(cluster) as sender, consumer(cluster, handle):
        sender.send(Message("T", b"again"))
        sender.send(Message("T", b"nonsense"))
        cluster.advance(minutes=4)
        assert sorted(body for body, _ in tries) == [b"again", b"nonsense"]
        cluster.advance(minutes=2)
    assert [body for body, _ in tries].count(b"again") == 2
    assert [message.body for message in cluster.messages("%DLQ%CG")] == [b"nonsense"]


def test_transaction_is_checked_back(cluster):
    asked = []

    class Listener:
        def execute(self, message, arg, transaction_id):
            return TransactionState.UNKNOWN

        def check(self, message):
            asked.append(cluster.now())
            return TransactionState.COMMIT if len(asked) > 1 else TransactionState.UNKNOWN

    seen = Seen(cluster)
    with producer(cluster, transactions=Listener()) as sender, consumer(cluster, seen):
        sender.send_in_transaction(Message("T", b"perhaps"))
        cluster.advance(seconds=5)
        assert not asked
        cluster.advance(minutes=4)
        assert seen.bodies == ["perhaps"]
    assert len(asked) == 2


def test_jump_of_time_does_not_expire_connections(cluster):
    seen = Seen(cluster)
    with producer(cluster) as sender, consumer(cluster, seen):
        sender.send(Message("T", b"before"))
        connections = set(cluster.broker.server.connections)
        cluster.advance(minutes=30)
        assert set(cluster.broker.server.connections) == connections
        sender.send(Message("T", b"after"))
        cluster.settle()
    assert seen.bodies == ["before", "after"]


def test_now_and_units(cluster):
    begin = cluster.now()
    cluster.advance(timedelta(minutes=1))
    cluster.advance(60)
    cluster.advance(minutes=1, seconds=30)
    cluster.advance(days=0.125, hours=1)
    assert timedelta(0) <= cluster.now() - begin - timedelta(hours=4, minutes=3, seconds=30) < timedelta(seconds=30)


def test_advancing_waits_for_handlers(cluster):
    seen = []

    def handle(message):
        time.sleep(0.05)  # the work of a handler
        seen.append(message.body)

    with producer(cluster) as sender, consumer(cluster, handle, concurrency=1):
        for _ in range(4):
            sender.send(Message("T", b"work"))
        cluster.advance(1)
        assert len(seen) == 4


def test_orderly_consumer_keeps_its_locks_while_time_passes(cluster):
    seen = []

    def handle(message):
        seen.append((int(message.body), cluster.now()))
        if len(seen) == 3:
            raise Retry(timedelta(minutes=2))

    with producer(cluster) as sender, consumer(cluster, handle, order="queue"):
        queue = sender.publish_queues("T")[0]
        for number in range(5):
            sender.send(Message("T", b"%d" % number), queue=queue)
        cluster.advance(minutes=1)
        assert [number for number, _ in seen] == [0, 1, 2]
        cluster.advance(minutes=20)
        assert [number for number, _ in seen] == [0, 1, 2, 2, 3, 4]
        sender.send(Message("T", b"5"), queue=queue)
        cluster.settle()
    assert seen[-1][0] == 5
    assert (seen[3][1] - seen[2][1]).total_seconds() == pytest.approx(120, abs=10)


def test_request_and_reply(cluster):
    def answer(message):
        replier.reply(message, message.body.upper())

    with (
        producer(cluster, "REPLIER") as replier,
        producer(cluster, "ASKER") as asker,
        consumer(cluster, answer),
        ThreadPoolExecutor() as threads,
    ):
        assert asker.request(Message("T", b"how"), timeout=30).body == b"HOW"
        cluster.create_topic("Silent")
        asking = threads.submit(asker.request, Message("Silent", b"anybody"), timeout=3600)
        while not cluster.messages("Silent"):
            cluster.settle()
        cluster.advance(minutes=59)
        assert not asking.done()
        cluster.advance(minutes=2)
        with pytest.raises(RequestTimeoutError):
            asking.result()


def test_many_delayed_messages_at_once(cluster):
    with producer(cluster) as sender:
        for _ in range(3):
            sender.send_batch([Message("T", b"x") for _ in range(300)])
        cluster.create_topic("Later")
        for number in range(300):
            sender.send(Message("Later", b"x", delay_level=6 if number % 2 else 8))  # 2 and 4 minutes
        assert len(cluster.messages("T")) == 900
        assert not cluster.messages("Later")
        cluster.advance(minutes=3)
        assert len(cluster.messages("Later")) == 150
        cluster.advance(minutes=2)
        assert len(cluster.messages("Later")) == 300


# ------------------------------------------------------------ time and threads at work


def measured_seconds(cluster):
    """Return the total durations measured by the servers' threads."""
    broker = cluster.broker
    histograms = {
        "flush": broker.store.flush_times,
        "append": broker.store.append_times,
        "get": broker.stats.get_times,
        **broker.server.lags(),
    }
    return {name: histogram.cumulative()[1] for name, histogram in histograms.items()}


def test_threads_at_work_measure_no_jump(cluster, monkeypatch):
    """The flush thread is held in its work while the time is put forward."""
    begun_real = time.monotonic()
    flushing, advanced = threading.Event(), threading.Event()
    queue = cluster.broker.store.commit_log.queue
    flush = queue.flush

    def slow_flush(least_pages):
        flushing.set()
        advanced.wait(30)
        return flush(least_pages)

    monkeypatch.setattr(queue, "flush", slow_flush)
    with producer(cluster) as sender:
        sender.send(Message("T", b"1"))
        assert flushing.wait(30)
        cluster.advance(minutes=10)
        advanced.set()
        flushing.clear()
        assert flushing.wait(30)
        sender.send(Message("T", b"2"))
    seconds = time.monotonic() - begun_real
    assert all(0 <= measured <= seconds for measured in measured_seconds(cluster).values()), measured_seconds(cluster)


def test_time_waits_for_the_callback_of_a_flush():
    with Cluster(topics=["T"], broker={"flushDiskType": "SYNC_FLUSH"}) as cluster, producer(cluster) as sender:
        sender.send(Message("T", b"1"))
        begun, advanced, times = threading.Event(), threading.Event(), []

        def slow(_):
            times.append(cluster.now())
            begun.set()
            advanced.wait(0.3)  # the time must stand meanwhile
            times.append(cluster.now())

        store = cluster.broker.store
        store.when_flushed(store.max_physical_offset(), slow)
        assert begun.wait(30)
        cluster.advance(minutes=10)
        advanced.set()
        assert times[1] - times[0] < timedelta(minutes=1)


def test_time_waits_for_the_callback_of_a_request(cluster):
    begun, advanced, times = threading.Event(), threading.Event(), []

    def slow():
        times.append(cluster.now())
        begun.set()
        advanced.wait(0.3)  # the time must stand meanwhile
        times.append(cluster.now())

    cluster.broker.callbacks(slow)
    assert begun.wait(30)
    cluster.advance(minutes=10)
    advanced.set()
    assert times[1] - times[0] < timedelta(minutes=1)


# ------------------------------------------------------------ faults


def test_kill_and_restart_lose_nothing_acknowledged(cluster):
    seen = Seen(cluster)
    with producer(cluster) as sender, consumer(cluster, seen):
        for number in range(50):
            sender.send(Message("T", b"%d" % number))
        sender.send(Message("T", b"50", delay_level=5))
        cluster.kill()
        with pytest.raises(RocketMQError):
            sender.send(Message("T", b"nowhere"), timeout=0.5)
        cluster.restart()
        cluster.advance(minutes=2)
        sender.send(Message("T", b"51"))
        cluster.settle()
    assert sorted({int(body) for body in seen.bodies}) == list(range(52))
    assert len(cluster.messages("T")) == 52


def test_power_cut(cluster):
    with producer(cluster) as sender:
        sender.send(Message("T", b"unsynced"))
        cluster.slow_fsync(1000)
        sender.send(Message("T", b"lost"))
        cluster.kill(power_cut=True)
        cluster.slow_fsync(0)
        cluster.restart()
    assert b"lost" not in [message.body for message in cluster.messages("T")]


def test_power_cut_with_synchronous_flush_loses_nothing():
    with Cluster(broker={"flushDiskType": "SYNC_FLUSH"}) as cluster, producer(cluster) as sender:
        for round_of in range(3):
            for number in range(30):
                assert sender.send(Message("T", b"%d" % (round_of * 30 + number))).status == 0
            cluster.kill(power_cut=True)
            cluster.restart()
            cluster.advance(35)  # the producer looks again where its topic is
        assert sorted(int(message.body) for message in cluster.messages("T")) == list(range(90))


def test_slow_disk_times_out():
    with (
        Cluster(broker={"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": 200}) as cluster,
        producer(cluster) as sender,
    ):
        assert sender.send(Message("T", b"fast")).status == 0
        cluster.slow_fsync(0.6)
        assert sender.send(Message("T", b"slow")).status == 10  # FLUSH_DISK_TIMEOUT
        cluster.slow_fsync(0)
        assert sender.send(Message("T", b"fast again")).status == 0


def test_send_waiting_in_virtual_time_is_refused_by_fast_failure(cluster):
    """The storage thread is held up; only the cluster's clock says that the send behind it is too old."""
    begun, freed = threading.Event(), threading.Event()

    def hold():
        begun.set()
        freed.wait(60)

    server = cluster.broker
    server.settings.broker.wait_time_mills_in_send_queue = 3_600_000
    with producer(cluster) as sender, ThreadPoolExecutor(1) as threads:
        sender.send(Message("T", b"first"))
        server.dispatcher.pool("send").call(hold)
        try:
            assert begun.wait(60)
            sent = threads.submit(sender.send, Message("T", b"second"), timeout=7 * 86_400)
            deadline = time.monotonic() + 60
            while not server.dispatcher.pool("send").queued_requests:
                assert time.monotonic() < deadline
                freed.wait(0.01)
            virtual = cluster._virtual
            with virtual.standing():
                virtual.jump_to(virtual.seconds() + 3_700)
            for reactor in cluster._machines.reactors():
                reactor.wake()
            with pytest.raises(RocketMQError, match="TIMEOUT_CLEAN_QUEUE"):
                sent.result(60)
        finally:
            freed.set()


def test_lost_requests_connections_and_answers(cluster):
    with producer(cluster) as sender:
        sender.send(Message("T", b"first"))
        with cluster.drop("send", times=1, what="connection") as drop:
            assert sender.send(Message("T", b"second")).status == 0
        assert drop.dropped == 1
        with cluster.drop("send", times=1, what="answer") as drop, ThreadPoolExecutor() as threads:
            sending = threads.submit(sender.send, Message("T", b"third"), timeout=600)
            while not drop.dropped:
                cluster.settle()
            assert not sending.done()
            cluster.advance(minutes=11)
            with pytest.raises(RequestTimeoutError):
                sending.result()
        assert [message.body for message in cluster.messages("T")].count(b"third") == 1


def test_requests_are_lost_by_chance_and_the_same_ones_each_time():
    def play():
        with Cluster() as cluster, producer(cluster) as sender:
            cluster.drop("SEND_MESSAGE_V2", rate=0.5, seed=7)
            for number in range(30):
                sender.send_oneway(Message("T", b"%d" % number))
            cluster.settle()
            return sorted(int(message.body) for message in cluster.messages("T"))

    first = play()
    assert 5 < len(first) < 25
    assert play() == first


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda cluster: cluster.drop("sned"), "'sned' is not a request: accepted are send, pull"),
        (lambda cluster: cluster.drop(["send"]), r"\['send'\] is not a request"),
        (lambda cluster: cluster.drop("send", what="answr"), "what='answr': accepted is 'request', 'answer', 'conn"),
        (lambda cluster: cluster.drop("send", rate=2), "rate=2: accepted is a probability from 0 to 1"),
        (lambda cluster: cluster.drop("send", times=-1), "times=-1: accepted is a whole number from 1 on"),
        (lambda cluster: cluster.advance(), "needs a duration"),
        (lambda cluster: cluster.advance(hours=-1), "duration="),
        (lambda cluster: cluster.create_topic("U", queues=0), "queues=0"),
        (lambda cluster: cluster.create_topic("a b"), "'a b'"),
        (lambda cluster: Cluster(topics=["a b"]), "'a b'"),
        (lambda cluster: Cluster(topics="a b"), "'a b'"),
        (lambda cluster: Cluster(topics=["T", None]), "None"),
    ],
)
def test_wrong_values_are_refused_at_once(calm_cluster, use, text):
    with pytest.raises(UsageError, match=text):
        use(calm_cluster)
    assert calm_cluster.drop("route", times=1).takes(105)


def test_messages_of_missing_topic_raise(calm_cluster):
    with pytest.raises(TopicNotFoundError, match=r"'Order' is not in.*known are Orders, T; did you mean Orders\?"):
        calm_cluster.messages("Order")
    assert calm_cluster.messages("Orders") == calm_cluster.messages("%DLQ%nobody") == []


def test_topics_of_text_is_one_topic():
    assert Cluster(topics="Orders")._topics == ("Orders",)


def test_broker_can_be_gone_for_minutes(cluster):
    seen = Seen(cluster)
    with producer(cluster) as sender, consumer(cluster, seen):
        sender.send(Message("T", b"before"))
        cluster.settle()
        cluster.kill()
        cluster.advance(minutes=10)
        with pytest.raises(RocketMQError):
            sender.send(Message("T", b"nowhere"))
        cluster.restart()
        cluster.advance(minutes=1)
        sender.send(Message("T", b"after"))
        cluster.settle()
    assert seen.bodies == ["before", "after"]


def test_network_can_drop_everything(cluster):
    seen = Seen(cluster)
    with producer(cluster) as sender, consumer(cluster, seen):
        sender.send(Message("T", b"before"))
        cluster.settle()
        with cluster.drop() as drop:
            with pytest.raises(RequestTimeoutError):
                sender.send(Message("T", b"nowhere"), timeout=0.1)
            cluster.advance(minutes=5)
            assert not cluster.broker.consumers.find("CG")
        assert drop.dropped > 10
        cluster.advance(minutes=1)
        sender.send(Message("T", b"after"))
        cluster.settle()
    assert seen.bodies == ["before", "after"]


def test_cut_connections_are_reopened(cluster):
    seen = Seen(cluster)
    with producer(cluster) as sender, consumer(cluster, seen):
        sender.send(Message("T", b"before"))
        cluster.settle()
        cluster.cut_connections()
        sender.send(Message("T", b"after"))
        cluster.advance(minutes=1)
    assert seen.bodies == ["before", "after"]


# ------------------------------------------------------------ life


def test_topics(cluster):
    cluster.create_topic("Ordered", queues=2, order=True)
    with producer(cluster) as sender:
        assert len(sender.publish_queues("Ordered")) == 2
    assert cluster.messages("Ordered") == []


def test_two_clusters_side_by_side(cluster):
    with Cluster() as other:
        with producer(cluster) as here, producer(other) as there:
            here.send(Message("T", b"here"))
            there.send(Message("T", b"there"))
        assert [message.body for message in cluster.messages("T")] == [b"here"]
        assert [message.body for message in other.messages("T")] == [b"there"]
        other.advance(hours=1)
        assert timedelta(minutes=59) < other.now() - cluster.now() < timedelta(minutes=61)


def test_wrong_uses_raise():
    cluster = Cluster()
    for use in (
        cluster.kill,
        cluster.settle,
        cluster.cut_connections,
        lambda: cluster.advance(1),
        lambda: cluster.messages("T"),
        lambda: cluster.brokers["broker-a"].messages("T"),
        lambda: cluster.brokers["broker-a"].server,
    ):
        with pytest.raises(ClientStateError, match="not started"):
            use()
    with cluster:
        with pytest.raises(ClientStateError, match="already started"):
            cluster.start()
        cluster.kill()
        with pytest.raises(ClientStateError, match="restart"):
            cluster.messages("T")
    cluster.stop()


@pytest.mark.parametrize("settings", [{"tls.server.mode": "permissive"}, {"listenPort": 1}, {"noSuchThing": 1}])
def test_unsupported_settings_are_refused(settings):
    with pytest.raises(IllegalOptionError, match=next(iter(settings))):
        Cluster(broker=settings)


def test_cluster_can_be_called_from_any_thread(cluster):
    errors = []

    def work(number):
        try:
            with producer(cluster, f"PG{number}") as sender:
                for _ in range(10):
                    sender.send(Message("T", b"x"))
                    cluster.advance(1)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(cluster.messages("T")) == 40


LEAVES_NOTHING = """
import gc, os, sys, threading
from rocketd.client.sync import Consumer, Message, Producer
from rocketd.common.settings.declaration import ConfigError
from rocketd.testing import Cluster

def opened():
    gc.collect()
    paths = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    links = [os.readlink(path) for path in paths if os.path.islink(path)]
    return [link for link in links if link.startswith(("socket:", "pipe:", "anon_inode:", "/memfd:"))]

before = opened()
for _ in range(2):
    with Cluster(topics=["T"]) as cluster:
        with Producer("P", **cluster.client_options()) as producer:
            with Consumer("C", topics="T", handler=print, begin="earliest", **cluster.client_options()):
                producer.send(Message("T", b"hello"))
                cluster.advance(minutes=1)
                assert not [link for link in opened() if link.startswith("socket:") and link not in before]
                cluster.kill()
                cluster.restart()
assert opened() == before, opened()
assert threading.enumerate() == [threading.main_thread()], threading.enumerate()
assert "twisted.internet.reactor" not in sys.modules
"""


def test_nothing_is_left_and_no_global_reactor_touched():
    ran = subprocess.run(
        [sys.executable, "-c", LEAVES_NOTHING],
        env={**os.environ, "PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr


FORKS = """
import os, sys
from rocketd.client.errors import ForkedClientError
from rocketd.client.sync import Message, Producer
from rocketd.testing import Cluster

def send(cluster):
    with Producer("P", **cluster.client_options()) as producer:
        producer.send(Message("T", b"x"))
        cluster.advance(minutes=1)
    return len(cluster.messages("T"))

with Cluster(topics=["T"]) as cluster:
    child = os.fork()
    if not child:
        try:
            cluster.advance(1)
        except ForkedClientError:
            cluster.stop()
            with Cluster(topics=["T"]) as own:
                os._exit(send(own))
        os._exit(100)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert send(cluster) == 1
"""


def test_forked_child_must_make_a_new_cluster():
    ran = subprocess.run(
        [sys.executable, "-c", FORKS],
        env={**os.environ, "PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr


def test_blocking_clients_beside_a_running_loop():
    """A cluster is started and used beside a running asyncio loop."""

    async def play():
        with Cluster() as cluster:
            async with aio.Producer("P", **cluster.client_options()) as sender:
                await sender.send(aio.Message("T", b"one"))
            return [message.body for message in cluster.messages("T")]

    assert asyncio.run(play()) == [b"one"]


def test_start_and_stop_are_fast():
    with Cluster():
        pass
    began = time.perf_counter()
    for _ in range(10):
        with Cluster():
            pass
    assert (time.perf_counter() - began) / 10 < 1.0  # about 0.02 on an idle machine


def test_endless_messages_raise(cluster, monkeypatch):
    monkeypatch.setattr(quiescence, "RESTLESS_SECONDS", 0.5)
    with producer(cluster) as sender, consumer(cluster, lambda message: sender.send(Message("T", b"again"))):
        sender.send(Message("T", b"first"))
        with pytest.raises(TimeoutError, match="are still busy after"):
            cluster.advance(10)
