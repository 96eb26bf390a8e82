"""Unmodified clients set properties for delivery times; Apache's 4.9.7 broker does not touch waiting messages."""

import time

import pytest

from tests.interop.toolchain import run_client
from tests.support.store_brokers import APACHE, ROCKETD, StoreBrokers
from tests.support.store_wire import await_condition, pull_records

COUNT = 20
AHEAD_MS = 5_000
CANCELLED_MS = (6_000, 20_000, 60_000)
"""Delays of messages, one of which is cancelled in time: a longer one after each try on a machine that is too slow."""
TIMER_TOPIC = "rmq_sys_wheel_timer"


def in_ms(milliseconds):
    return int(time.time() * 1000) + milliseconds


def send(clients, language, topic, count, group, **properties):
    text = ",".join(f"{name}={value}" for name, value in properties.items())
    lines = clients.run(language, "send", topic, "--group", group, "--count", count, "--properties", text).lines
    assert {line["status"] for line in lines} == {"SEND_OK"}
    return lines


def consume(clients, language, topic, group, count):
    return clients.run(language, "consume", topic, "--group", group, "--count", count, "--timeout", 90).lines


@pytest.mark.parametrize(
    ("language", "name"),
    [("java", "TIMER_DELIVER_MS"), ("go", "TIMER_DELAY_MS"), ("java", "TIMER_DELAY_SEC")],
)
def test_message_is_delivered_at_its_time(clients, fresh, language, name):
    clients.require(language)
    topic = fresh("Timer")
    clients.create_topic(topic)
    due = in_ms(AHEAD_MS)
    value = {"TIMER_DELIVER_MS": due, "TIMER_DELAY_MS": AHEAD_MS, "TIMER_DELAY_SEC": AHEAD_MS // 1_000}[name]
    sent = send(clients, language, topic, COUNT, fresh("P"), **{name: value})
    received = consume(clients, language, topic, fresh("C"), COUNT)
    assert sorted(line["index"] for line in received) == list(range(COUNT))
    assert {line["index"]: line["queueId"] for line in received} == {line["index"]: line["queueId"] for line in sent}
    assert {line["properties"]["from"] for line in received} == {language}
    assert min(line["storeTimestamp"] for line in received) >= due


@pytest.mark.parametrize(("language", "form"), [("java", "{key}"), ("go", "{topic}+{key}")])
def test_timed_message_can_be_cancelled(clients, fresh, language, form):
    """By Go's program, which starts at once."""
    clients.require(language, "go")
    for ahead_ms in CANCELLED_MS:
        topic = fresh("TimerCancelled")
        clients.create_topic(topic)
        due = in_ms(ahead_ms)
        sent = send(clients, language, topic, 4, fresh("P"), TIMER_DELIVER_MS=due)
        key = form.format(topic=topic, key=sent[2]["msgId"])
        send(clients, "go", topic, 1, fresh("P"), TIMER_DELIVER_MS=due, TIMER_DEL_UNIQKEY=key)
        if in_ms(0) < due:
            break
    else:
        pytest.fail("the machine is so slow that the messages were due before one was cancelled")
    received = consume(clients, language, topic, fresh("C"), 3)
    assert sorted(line["index"] for line in received) == [0, 1, 3]
    assert min(line["storeTimestamp"] for line in received) >= due


def test_apaches_broker_keeps_waiting_timed_messages(namesrv, tmp_path_factory):
    brokers = StoreBrokers(tmp_path_factory.mktemp("brokers"), namesrv)
    home = tmp_path_factory.mktemp("home")

    def run(command, *arguments):
        return run_client("java", command, "--namesrv", namesrv, "--topic", "Kept", *arguments, home=home).lines

    def all_that_wait(whose):
        """Wait until the queue has an entry for each: sends are answered before, and a broker that starts serves before."""
        records = []

        def complete():
            records[:] = pull_records(brokers.address, TIMER_TOPIC, 0)
            return len(records) == COUNT

        await_condition(f"{COUNT} messages wait in {whose}", complete)
        return records

    try:
        brokers.start(ROCKETD)
        due = in_ms(30_000)
        run("send", "--group", "P", "--count", COUNT, "--properties", f"TIMER_DELIVER_MS={due}")
        run("send", "--group", "P", "--count", 3)
        waiting = all_that_wait("rocketd's broker")
        brokers.stop()

        brokers.start(APACHE)
        assert all_that_wait("Apache's broker") == waiting
        run("send", "--group", "P", "--count", 3, "--properties", f"TIMER_DELIVER_MS={due}")
        assert pull_records(brokers.address, TIMER_TOPIC, 0) == waiting
        brokers.stop()

        brokers.start(ROCKETD)
        everything = COUNT + 3 + 3

        def stored():
            return sum(len(pull_records(brokers.address, "Kept", queue)) for queue in range(4))

        await_condition("all are delivered", lambda: stored() == everything)
        brokers.stop()
    finally:
        brokers.close()
