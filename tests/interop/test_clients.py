"""Unmodified clients in four languages against the servers: each receives the messages of itself and of all others."""

import itertools
from collections import defaultdict

import pytest

COUNT = 1000
LANGUAGES = ["java", "go", "node", "cpp"]
TIMEOUT = 120  # seconds for a consumer to get everything

# Java looks for its share of new queues every 20 s; a retry topic's queue is such a one.
QUICK_REBALANCE = "-Drocketmq.client.rebalance.waitInterval=500"


def expected(index: int, sender: str) -> dict:
    """Return the expected output of a consumer for a message number, without its place and the number of its tries."""
    return {
        "index": index,
        "body": f"message {index}: žluťoučký kůň, 消息, 🚀",
        "tags": "TagB" if index % 2 else "TagA",
        "keys": f"key-{index}",
        "properties": {"index": str(index), "from": sender},
    }


def content(lines: list[dict]) -> list[dict]:
    """The part of deliveries that ``expected`` speaks of, by number."""
    fields = ("index", "body", "tags", "keys", "properties")
    return sorted(({field: line[field] for field in fields} for line in lines), key=lambda line: line["index"])


def place(line: dict) -> tuple[int, int]:
    return line["queueId"], line["queueOffset"]


def check_sent(lines: list[dict], count: int) -> None:
    """Check that every message was stored, each under a unique id."""
    assert [line["index"] for line in lines] == list(range(count))
    assert {line["status"] for line in lines} == {"SEND_OK"}
    assert len({line["msgId"] for line in lines}) == count


@pytest.fixture(scope="module")
def sent(clients):
    """``sent(language)``: the topic into which that client has sent its messages (once), and its output."""
    done = {}

    def send(language: str) -> tuple[str, list[dict]]:
        if language not in done:
            clients.require(language)
            topic = f"From-{language}"
            if language == "node":
                clients.create_topic(topic)  # that client never asks for a topic to be created
            run = clients.run(language, "send", topic, "--group", f"P-{language}", "--count", COUNT)
            done[language] = topic, run.lines
        return done[language]

    return send


_groups = itertools.count(1)


def consume(clients, language, topic, count, *arguments, jvm=()):
    group = f"C-{next(_groups)}"  # an older group would continue at its offset
    return clients.run(
        language, "consume", topic, "--group", group, "--count", count, "--timeout", TIMEOUT, *arguments, jvm=jvm
    )


@pytest.mark.parametrize("sender", LANGUAGES)
def test_send_fills_the_queues_evenly(sent, sender):
    _, lines = sent(sender)
    check_sent(lines, COUNT)
    if sender == "cpp":  # it does not tell the queue
        assert sorted(line["queueOffset"] for line in lines) == sorted(list(range(COUNT // 4)) * 4)
    else:
        queues = defaultdict(list)
        for line in lines:
            queues[line["queueId"]].append(line["queueOffset"])
        assert queues == {queue: list(range(COUNT // 4)) for queue in range(4)}


@pytest.mark.parametrize("receiver", LANGUAGES)
@pytest.mark.parametrize("sender", LANGUAGES)
def test_every_message_arrives_as_it_was_sent(sent, clients, sender, receiver):
    clients.require(receiver)
    topic, lines = sent(sender)
    received = consume(clients, receiver, topic, COUNT).lines
    assert content(received) == [expected(index, sender) for index in range(COUNT)]
    assert {line["reconsumeTimes"] for line in received} == {0}
    if sender != "cpp":
        assert {line["index"]: place(line) for line in received} == {line["index"]: place(line) for line in lines}


@pytest.mark.parametrize("receiver", LANGUAGES)
def test_tag_expression_selects_messages(sent, clients, receiver):
    clients.require(receiver)
    topic, _ = sent("java")
    received = consume(clients, receiver, topic, COUNT // 2, "--tag", "TagB").lines
    assert content(received) == [expected(index, "java") for index in range(1, COUNT, 2)]


def test_tags_joined_by_or_select_messages(sent, clients):
    topic, _ = sent("java")
    received = consume(clients, "java", topic, COUNT, "--tag", "TagA || TagB").lines
    assert content(received) == [expected(index, "java") for index in range(COUNT)]


def test_java_creates_a_topic(clients, fresh):
    topic = fresh("Created")
    assert clients.run("java", "create-topic", topic, "--queues", 3).lines == [{"topic": topic, "queues": 3}]
    lines = clients.run("java", "send", topic, "--group", fresh("P"), "--count", 30).lines
    assert {line["queueId"] for line in lines} == {0, 1, 2}


def test_java_gets_a_refused_message_again(clients, fresh):
    topic = fresh("Retried")
    clients.run("java", "send", topic, "--group", fresh("P"), "--count", 20)
    deliveries = consume(clients, "java", topic, 20, "--fail-first", jvm=(QUICK_REBALANCE,)).lines
    refused = [line for line in deliveries if not line["accepted"]]
    accepted = [line for line in deliveries if line["accepted"]]
    everything = [expected(index, "java") for index in range(20)]
    assert content(refused) == everything
    assert content(accepted) == everything
    assert {line["reconsumeTimes"] for line in refused} == {0}
    assert {line["reconsumeTimes"] for line in accepted} == {1}


def test_java_keeps_the_order_of_each_stream(clients, fresh):
    topic = fresh("Ordered")
    check_sent(clients.run("java", "send", topic, "--group", fresh("P"), "--count", 200, "--order").lines, 200)
    received = consume(clients, "java", topic, 200, "--order").lines
    assert content(received) == [expected(index, "java") for index in range(200)]
    for stream in range(4):
        indexes = [line["index"] for line in received if line["index"] % 4 == stream]
        assert indexes == sorted(indexes)


def test_java_retries_an_ordered_message_in_place(clients, fresh):
    topic = fresh("OrderedRetried")
    clients.run("java", "send", topic, "--group", fresh("P"), "--count", 8, "--order")
    deliveries = consume(clients, "java", topic, 8, "--order", "--fail-first").lines
    for stream in range(4):
        seen = [(line["index"], line["accepted"]) for line in deliveries if line["index"] % 4 == stream]
        assert seen == [(stream, False), (stream, True), (stream + 4, False), (stream + 4, True)]


@pytest.mark.parametrize("mode", [["--batch", 32], ["--async"], ["--oneway"]], ids=lambda mode: mode[0].strip("-"))
def test_java_sends_in_other_ways(clients, fresh, mode):
    topic = fresh("Mode")
    clients.create_topic(topic)  # a burst of one-way messages would lose those before the topic exists
    lines = clients.run("java", "send", topic, "--group", fresh("P"), "--count", COUNT, *mode).lines
    received = consume(clients, "java", topic, COUNT).lines
    assert content(received) == [expected(index, "java") for index in range(COUNT)]
    if mode != ["--oneway"]:
        check_sent(sorted(lines, key=lambda line: line["index"]), COUNT)
        assert {line["index"]: place(line) for line in received} == {line["index"]: place(line) for line in lines}


def test_java_with_binary_headers(clients, fresh):
    topic = fresh("Binary")
    binary = ("-Drocketmq.serialize.type=ROCKETMQ",)
    lines = clients.run("java", "send", topic, "--group", fresh("P"), "--count", COUNT, jvm=binary).lines
    check_sent(lines, COUNT)
    received = consume(clients, "java", topic, COUNT, jvm=binary).lines
    assert content(received) == [expected(index, "java") for index in range(COUNT)]


def test_java_over_tls(clients, fresh):
    topic = fresh("Tls")
    # The JVM's own account of its handshakes is how the test knows that they took place.
    tls = ("-Dtls.enable=true", "-Djavax.net.debug=ssl:handshake")
    run = clients.run("java", "send", topic, "--group", fresh("P"), "--count", COUNT, jvm=tls)
    check_sent(run.lines, COUNT)
    assert "Consuming ServerHello handshake message" in run.stderr
    received = consume(clients, "java", topic, COUNT, jvm=tls)
    assert content(received.lines) == [expected(index, "java") for index in range(COUNT)]
    assert "Consuming ServerHello handshake message" in received.stderr
