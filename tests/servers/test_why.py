"""``rocketd why`` with the servers of rocketd.testing, in this process."""

import json

import pytest

from rocketd.client import Message, TransactionState
from rocketd.client.sync import Admin, Consumer, Producer
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.testing import Cluster
from rocketd.tools.story import why as why_command
from tests.support.command_runner import CommandRunner

BROKER = "broker-a"
QUEUE = MessageQueue("T", BROKER, 0)


def fail(message):
    raise TimeoutError("bank is away")


class Undecided:
    def execute(self, message, arg, transaction_id):
        return TransactionState.UNKNOWN

    def check(self, message):
        return TransactionState.UNKNOWN


class World:
    """Sends messages of which each has another story."""

    def __init__(self, cluster):
        options = cluster.client_options()
        self.cluster = cluster
        with Consumer("Reader", topics={"T": "A"}, handler=lambda message: None, **options):
            with Producer("PG", **options) as producer:
                self.read = producer.send(Message("T", b"1", tags="A", keys=["k"]), queue=QUEUE)
                self.filtered = producer.send(Message("T", b"2", tags="B"), queue=QUEUE).msg_id
                self.failing = producer.send(Message("Failing", b"3")).msg_id
                self.dying = producer.send(Message("Dying", b"4")).msg_id
                self.delayed = producer.send(Message("T", b"5", delay_level=18)).msg_id
            cluster.advance(seconds=30)
        with Consumer("Trying", topics="Failing", begin="earliest", handler=fail, **options):
            cluster.advance(seconds=12)
        with Consumer("Dead", topics="Dying", begin="earliest", handler=fail, max_reconsume_times=1, **options):
            cluster.advance(seconds=60)
        with Producer("TG", transactions=Undecided(), **options) as producer:
            self.half = producer.send_in_transaction(Message("T", b"6")).msg_id
        with Producer("Traced", trace=True, **options) as producer:
            self.traced = producer.send(Message("T", b"8"), queue=MessageQueue("T", BROKER, 1)).msg_id
        with Producer("PG", **options) as producer:
            self.late = producer.send(Message("T", b"7", tags="A"), queue=QUEUE).msg_id
        cluster.advance(seconds=5)


@pytest.fixture(scope="module")
def world():
    with Cluster(topics=["T", "Failing", "Dying"]) as cluster:
        yield World(cluster)


@pytest.fixture(scope="module")
def rocketd(world):
    with Admin(**world.cluster.client_options()) as admin:
        yield CommandRunner(admin)


def why(rocketd, *words):
    return json.loads(rocketd.ok("why", *words, "--json")[0])


def state_of(rocketd, group, *words):
    (story,) = [each for each in why(rocketd, *words)["groups"] if each["group"] == group]
    return story["state"], story["detail"]


def test_consumed_message_has_place_and_time(rocketd, world):
    lines = rocketd.ok("why", world.read.msg_id)
    assert lines[:2] == [f"id: {world.read.msg_id}", "topic: T"]
    assert f"place: {BROKER} queue 0 offset 0" in lines
    assert {"tags: A", "keys: k"} <= set(lines)
    (group,) = [line for line in lines if line.startswith("group ")]
    assert group.startswith("group Reader: consumed: the group is at offset 2 of the queue")


def test_tab_and_newline_in_fact_are_escaped(rocketd, world, monkeypatch):
    monkeypatch.setattr(why_command, "_facts", lambda *_: {"keys": "k\n\tgroup G: consumed"})
    assert rocketd.ok("why", world.read.msg_id)[0] == r"keys: k\x0a\x09group G: consumed"


def test_id_of_place_finds_the_same_message(rocketd, world):
    assert why(rocketd, world.read.offset_msg_id) == why(rocketd, world.read.msg_id, "--topic", "T")


def test_message_behind_offset_waits_for_offline_group(rocketd, world):
    expected = ("waiting", "no member is online; 0 messages of the queue are before it")
    assert state_of(rocketd, "Reader", world.late) == expected


def test_message_with_other_tag_is_filtered_for_online_group(rocketd, world):
    with Consumer("Reader", topics={"T": "A"}, handler=lambda message: None, **world.cluster.client_options()):
        world.cluster.advance(seconds=1)
        expected = ("filtered", "its tag is B, and the group wants A")
        assert state_of(rocketd, "Reader", world.filtered) == expected
        assert state_of(rocketd, "Reader", world.read.msg_id)[0] == "consumed"


def test_failed_message_is_tried_again(rocketd, world):
    state, detail = state_of(rocketd, "Trying", world.failing)
    assert (state, detail.split(";")[0]) == ("retry", "failed 2 times")


def test_dead_letter_has_its_reason(rocketd, world):
    state, detail = state_of(rocketd, "Dead", world.dying)
    assert state == "dead letter"
    assert detail.endswith(", after 2 attempts; TimeoutError: bank is away")


def test_delayed_and_half_messages_are_found(rocketd, world):
    delayed = why(rocketd, world.delayed)
    assert (delayed["topic"], delayed["waits"]) == ("T", "delayed at level 18: no group can read it yet")
    assert why(rocketd, world.half)["waits"].startswith("half message of a transaction: it is not committed")
    assert "groups" not in delayed


def test_trace_of_message_follows(rocketd, world):
    (event,) = why(rocketd, world.traced)["trace"]
    assert "producer group Traced sent it in " in event
    assert rocketd.ok("why", world.traced)[-1] == f"trace: {event}"


def test_unknown_message_is_refused(rocketd):
    assert rocketd.run("why", "0" * 32)[::2] == (1, [f"rocketd why: no broker has a message {'0' * 32}"])
    assert "of topic T" in rocketd.run("why", "0" * 32, "--topic", "T")[2][0]


def test_group_option_asks_for_one_group(rocketd, world):
    assert [each["group"] for each in why(rocketd, world.read.msg_id, "--group", "Dead")["groups"]] == ["Dead"]
