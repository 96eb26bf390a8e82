"""The guide for people from other clients, and programs for the wheel of the C++ client."""

import ctypes
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from queue import Queue
from unittest.mock import MagicMock

import pytest
from twisted.logger import capturedLogs, formatEvent

from rocketd.client import MessageQueue, Retry
from rocketd.compat.rocketmq import client, exceptions
from rocketd.compat.rocketmq.client import ConsumeStatus, Message, SendStatus, TransactionStatus
from rocketd.compat.rocketmq.consts import MessageProperty
from rocketd.compat.rocketmq.ffi import MessageModel
from rocketd.testing import Cluster
from tests.support.places import ROOT
from tests.support.server_processes import SOURCES
from tests.support.shell_sessions import printed_programs
from tests.support.store_wire import await_condition

GUIDE = ROOT / "docs" / "howto" / "from-other-clients.md"
PRINTED = printed_programs(GUIDE)
PROGRAM = ROOT / "tests" / "interop" / "cpp_python" / "client.py"
SECONDS = 120.0
INSTALL = "import rocketd.compat.rocketmq as shim, runpy, sys; shim.install(); sys.argv = sys.argv[1:]; "
_names = count(1)


@pytest.fixture(scope="module")
def cluster():
    # A decided end comes within seconds, on a busy machine too; the broker must not ask before.
    settings = {"transactionTimeOut": "3000", "transactionCheckInterval": "300"}
    with Cluster(topics=["Wheel", "WheelProgram", "FromWheel"], broker=settings) as cluster:
        cluster.address = cluster.listen()
        yield cluster


@pytest.fixture
def address(cluster):
    return cluster.address


@pytest.fixture
def name():
    return f"wheel{next(_names)}"


def run(address, *arguments):
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        env={**os.environ, "PYTHONPATH": SOURCES, "NAMESRV_ADDR": address},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.fixture(scope="module")
def runs(cluster):
    """All programs of the guide, two at once."""
    with ThreadPoolExecutor(2) as pool:
        yield [pool.submit(run, cluster.address, "-c", program) for program, _ in PRINTED]


@pytest.mark.parametrize("number", range(len(PRINTED)))
def test_program_of_the_guide_prints_its_output(runs, number):
    ended = runs[number].result()
    assert (ended.stdout, ended.stderr) == (PRINTED[number][1], "")


def test_every_program_of_the_guide_is_run():
    assert GUIDE.read_text().count("```python") == len(PRINTED) == 4


# ------------------------------------------------------------ the wheel


def has_member(cluster, group):
    found = cluster.broker.consumers.find(group)
    return found is not None and bool(found.clients())


def test_program_for_the_wheel_runs_unchanged(cluster, address, name):
    arguments = ("--namesrv", address, "--topic", "WheelProgram", "--group", name, "--count", "4")
    with ThreadPoolExecutor() as pool:
        command = f"{INSTALL}runpy.run_path(sys.argv[0], run_name='__main__')"
        consuming = pool.submit(run, address, "-c", command, str(PROGRAM), "consume", *arguments)
        await_condition("the consumer is a member of its group", lambda: has_member(cluster, name))
        sent = run(address, "-c", command, str(PROGRAM), "send", *arguments)
        assert (sent.returncode, sent.stderr) == (0, "")
        consumed = consuming.result()
    assert consumed.returncode == 0, consumed.stderr
    lines = sorted((json.loads(line) for line in consumed.stdout.splitlines()), key=lambda line: line["index"])
    assert [(line["index"], line["tags"], line["keys"], line["properties"]["from"]) for line in lines] == [
        (index, "TagB" if index % 2 else "TagA", f"key-{index}", "cpp") for index in range(4)
    ]
    assert lines[3]["body"] == "message 3: žluťoučký kůň, 消息, 🚀"
    assert {json.loads(line)["status"] for line in sent.stdout.splitlines()} == {"SEND_OK"}


def test_installed_package_is_not_shadowed(tmp_path):
    (tmp_path / "rocketmq").mkdir()
    (tmp_path / "rocketmq" / "__init__.py").write_text("mine = True\n")
    (tmp_path / "program.py").write_text(
        "import rocketd.compat.rocketmq as shim\ntry:\n    shim.install()\nexcept ImportError as error:\n    print(error)\n"
        "import rocketmq\nprint(rocketmq.mine)\n"
    )
    ended = run("", str(tmp_path / "program.py"))
    assert "pip uninstall rocketmq rocketmq-client-python" in ended.stdout, ended.stderr
    assert ended.stdout.endswith("True\n")


def started(made, address):
    made.set_name_server_address(address)
    made.start()
    return made


def message_of(body, topic="Wheel"):
    message = Message(topic)
    message.set_body(body)
    return message


def consuming(address, group, callback, *topics, **options):
    consumer = client.PushConsumer(group, **options)
    for topic in topics or ("Wheel",):
        consumer.subscribe(topic, callback)
    return started(consumer, address)


def test_sends_of_each_kind_arrive(address, name):
    got, results = Queue(), Queue()
    consumer = consuming(address, name, got.put, message_model=MessageModel.CLUSTERING)
    with started(client.Producer(name, timeout=60_000), address) as producer:
        assert producer.send_sync(message_of(b"sync")).status is SendStatus.OK
        producer.send_oneway(message_of("oneway"))
        producer.send_async(message_of("async"), results.put, results.put)
        assert results.get(timeout=SECONDS).status is SendStatus.OK
        batch = producer.send_batch([message_of("batch 1"), message_of("batch 2")])
        assert len(batch.msg_id.split(",")) == 2
        producer.send_oneway_orderly(message_of("oneway orderly"), 3)
        producer.send_orderly_with_sharding_key(message_of("sharded"), "A17")
        producer.send_orderly(message_of("orderly"), 6)
        producer.send_orderly(message_of("selected"), 1, queue_selector=by_pointer)
        received = {str(message): message for message in (got.get(timeout=SECONDS) for _ in range(9))}
    consumer.shutdown()
    assert len(received) == 9
    assert [received[body].queue_id for body in ("oneway orderly", "orderly", "selected")] == [3, 2, 1]
    one = received["sync"]
    assert (one.topic, one.tags, one.keys, one.delay_time_level, bytes(one)) == ("Wheel", b"", b"", 0, b"sync")
    assert one.get_property(MessageProperty.UNIQ_CLIENT_MESSAGE_ID_KEYIDX).decode() == one.id
    assert one["no such"] == b""


def by_pointer(size, message, arg):
    """A selector written for the wheel, which gets the address of a C int."""
    assert str(message) == "selected"
    return ctypes.cast(arg, ctypes.POINTER(ctypes.c_int))[0] % size


def test_callback_can_ask_for_the_message_again(address, name):
    tries = Queue()

    def handle(message):
        tries.put(message.reconsume_times)
        return ConsumeStatus.RECONSUME_LATER if message.reconsume_times == 0 else ConsumeStatus.CONSUME_SUCCESS

    consumer = consuming(address, name, handle, name, orderly=True)
    with started(client.Producer(name), address) as producer:
        producer.send_sync(message_of("again", name))
        # In order, the queue waits for a second and the message keeps its count.
        assert [tries.get(timeout=SECONDS) for _ in range(2)] == [0, 1]
    consumer.shutdown()


@pytest.mark.parametrize(
    ("result", "again", "logged"),
    [
        *((result, False, False) for result in (None, 0, False, ConsumeStatus.CONSUME_SUCCESS)),
        *((result, True, False) for result in (1, ConsumeStatus.RECONSUME_LATER)),
        *((result, True, True) for result in (2, "later")),
    ],
)
def test_callback_result_decides_whether_the_message_comes_again(result, again, logged):
    consumer = client.PushConsumer("group")
    consumer.subscribe("T", lambda message: result)
    with capturedLogs() as events:
        assert isinstance(consumer._handle(MagicMock(topic="T")), Retry) == again
    assert any("not a ConsumeStatus" in formatEvent(event) for event in events) == logged


def test_pull_offsets_of_other_groups_and_brokers_are_kept_apart():
    first, second = client.PullConsumer("first"), client.PullConsumer("second")
    queue = MessageQueue("T", "broker-a", 0)
    first.set_message_queue_offset(queue, 500)
    try:
        assert first.get_message_queue_offset(MessageQueue("T", "broker-a", 0)) == 500
        assert client.PullConsumer("first").get_message_queue_offset(queue) == 500
        assert second.get_message_queue_offset(queue) == 0
        assert first.get_message_queue_offset(MessageQueue("T", "broker-b", 0)) == 0
    finally:
        client.PullConsumer.offset_table.clear()


def test_transactions_commit_roll_back_and_are_checked(address, name):
    got, checked = Queue(), Queue()

    def check(message):
        checked.put(str(message))
        return TransactionStatus.COMMIT

    def execute(message, state):
        if state is None:
            raise ValueError("no state")
        return state

    consumer = consuming(address, name, lambda message: got.put(str(message)), name)
    with started(client.TransactionMQProducer(name, check), address) as producer:
        producer.send_message_in_transaction(message_of("rolled back", name), execute, TransactionStatus.ROLLBACK)
        producer.send_message_in_transaction(message_of("committed", name), execute, TransactionStatus.COMMIT)
        producer.send_message_in_transaction(message_of("failed", name), execute)
        assert checked.get(timeout=SECONDS) == "failed"
        assert sorted(got.get(timeout=SECONDS) for _ in range(2)) == ["committed", "failed"]
    consumer.shutdown()


def pull_some(consumer, topic):
    """Pull until there are messages: a message is in its queue soon after it was acknowledged."""
    found = []

    def pull():
        found.extend(str(message) for message in consumer.pull(topic))
        return found

    await_condition("there are messages", pull)
    return found


def test_pull_consumer_yields_new_messages(address, name):
    with started(client.Producer(name), address) as producer:
        producer.send_sync(message_of("1", name))
        with started(client.PullConsumer(name), address) as consumer:
            assert pull_some(consumer, name) == ["1"]
            producer.send_sync(message_of("2", name))
            assert pull_some(consumer, name) == ["2"]
            with pytest.raises(exceptions.PullConsumerFetchMQFailed, match="no such"):
                list(consumer.pull("no such"))


def test_errors_are_those_of_the_wheel():
    producer = client.Producer("errors", timeout=100)
    with pytest.raises(exceptions.ProducerException, match="not started"):
        producer.send_sync(message_of("x"))
    failures = Queue()
    with started(producer, "127.0.0.1:1"):
        with pytest.raises(exceptions.ProducerSendSyncFailed) as failed:
            producer.send_sync(message_of("x"))
        assert failed.value.__cause__ is not None
        producer.send_async(message_of("x"), None, failures.put)
        assert isinstance(failures.get(timeout=SECONDS), exceptions.ProducerSendAsyncFailed)
    with pytest.raises(exceptions.ProducerStartFailed):
        started(client.Producer("two words"), "127.0.0.1:1")
