"""``rocketd produce`` and ``rocketd consume`` with rocketd's and with Apache's servers."""

import json
import subprocess
from time import sleep
from uuid import uuid4

import pytest

from rocketd.client import ClientConfig, Message
from rocketd.client.sync import Admin, Consumer, Producer
from tests.support.cli_processes import COMMAND, DEADLINE
from tests.support.command_runner import CommandRunner


@pytest.fixture
def rocketd(python_servers):
    """Return a function that runs a command at the servers and returns its lines."""

    def run(*words, stdin=""):
        done = subprocess.run(
            [*COMMAND, *words, "--namesrv", python_servers.namesrv],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout.splitlines()

    return run


def test_messages_are_read_without_a_group_and_counted_with_one(rocketd):
    topic = f"CommandLine{uuid4().hex}"
    rocketd("produce", topic, stdin="".join(f"{number}\n" for number in range(100)))
    rocketd("produce", topic, "last", "--tags", "A", "--keys", "k", "--property", "a=b", "--queue", "1")
    for _ in range(2):
        got = rocketd("consume", topic, "--count", "101", "--timeout", "30")
        assert sorted(got) == sorted([*map(str, range(100)), "last"])
    (line,) = rocketd("consume", topic, "--tags", "A", "--count", "1", "--timeout", "30", "--json")
    message = json.loads(line)
    assert (message["body"], message["keys"], message["properties"]) == ("last", ["k"], {"a": "b"})
    assert (message["queue"], message["topic"]) == (1, topic)
    assert len(rocketd("consume", topic, "--from", "-1h", "--count", "101", "--timeout", "30")) == 101
    assert rocketd("consume", topic, "--from", "latest", "--timeout", "2") == []
    group, seen = f"group{uuid4().hex}", set()
    for count in (7, 20):
        got = rocketd("consume", topic, "--group", group, "--count", str(count), "--timeout", "60")
        assert len(got) == count
        assert not seen & set(got)
        seen.update(got)


def test_topics_brokers_and_messages_are_shown_without_a_jvm(rocketd):
    topic = f"CommandLine{uuid4().hex}"
    rocketd("topic", "create", topic, "--queues", "2")
    assert topic in rocketd("topic", "list")
    sent = rocketd("produce", topic, "hello", "--keys", "k1")[0].split()[0]
    rows = [json.loads(line) for line in rocketd("topic", "show", topic, "--json")]
    assert (len(rows), sum(row["messages"] for row in rows)) == (2, 1)
    assert rocketd("message", "show", topic, sent)[-1] == "    hello"
    found = rocketd("message", "find", topic, "k1", "--json")
    assert [json.loads(line)["id"] for line in found] == [sent]
    (broker,) = [json.loads(line) for line in rocketd("broker", "list", "--json")]
    assert (broker["id"], broker["version"]) == ("0", "V4_9_7")
    state = dict(line.split("\t") for line in rocketd("broker", "show", broker["broker"]))
    assert state["msgPutTotalTodayNow"] >= "1"


@pytest.fixture
def here(python_servers):
    """Commands in this process, at the servers."""
    with Admin(cluster=python_servers.namesrv) as admin:
        yield CommandRunner(admin)


def json_of(lines):
    return [json.loads(line) for line in lines]


def test_groups_and_offsets_are_shown_and_changed(here, python_servers):
    group, copy, topic = (f"{word}{uuid4().hex}" for word in ("CommandGroup", "Copy", "CommandOffsets"))
    python_servers.create_topic(topic, 1)
    here.ok("group", "create", group, "--retries", "3")
    here.ok("group", "create", copy)
    assert [row["retries"] for row in json_of(here.ok("group", "list", "--json")) if row["group"] == group] == [3]
    often = ClientConfig(namesrv=python_servers.namesrv, heartbeat_interval=0.2)
    with Producer("CommandProducer", cluster=often) as producer:
        for number in range(3):
            producer.send(Message(topic, b"%d" % number))
        while (answer := here.run("client", "producers", "CommandProducer", "--json"))[0]:  # until a heartbeat
            sleep(0.2)
        (sender,) = json_of(answer[1])
        assert sender["language"] == "PYTHON"
    options = {"cluster": python_servers.namesrv, "topics": topic, "begin": "earliest"}
    with Consumer(group, **options) as consumer:
        for _ in range(3):
            next(consumer)
        (member,) = json_of(here.ok("group", "members", group, "--json"))
        assert member["language"] == "PYTHON"
        assert "stop them first" in here.refused("offset", "reset", group, topic, "--to", "1", "--yes")
    assert here.refused("group", "members", group) == f"consumer group {group} has no client online"
    shown = ("offset", "show", "--topic", topic, "--json")
    assert [row["consumed"] for row in json_of(here.ok(*shown, group))] == [3]
    for place, offset in (("1", 1), ("-1h", 0), ("latest", 3), ("earliest", 0), ("2", 2)):
        before = json_of(here.ok(*shown, group))[0]["consumed"]
        reset = ("offset", "reset", group, topic, "--to", place, "--json")
        for extra in ((), ("--yes",)):
            assert json_of(here.ok(*shown, group))[0]["consumed"] == before
            (row,) = json_of(here.told(*reset, *extra)[0])
            assert (row["before"], row["after"]) == (before, offset)
        assert json_of(here.ok(*shown, group))[0]["consumed"] == offset
    lines, _ = here.told("offset", "clone", group, copy, "--topic", topic, "--yes", "--json")
    assert [(row["before"], row["after"]) for row in json_of(lines)] == [("-", 2)]
    (facts,) = json_of(here.ok("group", "show", copy, "--json"))
    assert (facts["retryMaxTimes"], facts["behind"], topic in facts["topics"]) == (16, 1, True)
    here.told("group", "delete", copy, "--offsets", "--yes")
    assert here.refused("group", "show", copy) == f"no broker has the group {copy}"


def test_clusters_settings_and_keys_are_shown_and_changed(here, python_servers):
    (cluster,) = json_of(here.ok("cluster", "list", "--json"))
    assert (cluster["masters"], cluster["slaves"]) == (1, 0)
    (broker,) = json_of(here.ok("cluster", "show", cluster["cluster"], "--json"))
    assert (broker["address"], broker["version"]) == (python_servers.broker, "V4_9_7")
    assert isinstance(broker["in today"], int)
    name = broker["broker"]
    (before,) = json_of(here.ok("config", "show", name, "fileReservedTime", "--json"))
    before = before["value"]
    for wanted in ("71", before):
        (row,) = json_of(here.told("config", "set", name, f"fileReservedTime={wanted}", "--yes", "--json")[0])
        assert row["after"] == wanted
    assert "fileReservedTime" in here.refused("config", "set", name, "fileReservedTime=never", "--yes")
    assert "no setting Nonsense" in here.refused("config", "set", name, "Nonsense=1", "--yes")
    (server,) = json_of(here.ok("namesrv", "list", "--json"))
    assert (server["name server"], server["brokers"]) == (python_servers.namesrv, 1)
    for wanted in ("true", "false"):
        (row,) = json_of(here.told("namesrv", "config", f"clusterTest={wanted}", "--yes", "--json")[0])
        assert row["after"] == wanted
    if python_servers.kind == "apache":
        status, _, err = here.run("lag", "TOOLS_CONSUMER")
        assert (status, err[0].endswith("request GET_CONSUMER_LAG (30002); servers of rocketd do")) == (3, True), err
        status, _, err = here.run("audit")
        assert (status, err[-1].endswith("request GET_ADMIN_CHANGES (30004); servers of rocketd do")) == (3, True), err
    space = f"Space{uuid4().hex}"
    assert here.refused("kv", "list", space) == f"namespace {space} has no key"
    here.told("kv", "put", space, "k", "a:4")
    assert here.ok("kv", "get", space, "k") == ["a:4"]
    here.told("kv", "delete", space, "k", "--yes")
    assert here.refused("kv", "get", space, "k") == f"namespace {space} has no key k"


def test_routes_and_permissions_are_shown_and_changed(here, python_servers):
    topic = f"CommandRoute{uuid4().hex}"
    python_servers.create_topic(topic, 3)
    (row,) = json_of(here.ok("topic", "route", topic, "--json"))
    assert (row["address"], row["read queues"], row["permission"]) == (python_servers.broker, 3, "rw")
    for permission in ("r", "rw"):
        here.told("topic", "permission", topic, permission, "--yes")
        while json_of(here.ok("topic", "route", topic, "--json"))[0]["permission"] != permission:  # until registered
            sleep(0.1)
    assert here.refused("topic", "groups", topic) == f"topic {topic} has no consumer group"
    broker = row["broker"]
    closed = f"CommandClosed{uuid4().hex}"
    python_servers.create_topic(closed, 1)
    here.told("topic", "permission", closed, "r", "--yes")
    for word, permission in (("drain", "r"), ("undrain", "rw")):
        assert here.run("broker", word, broker)[0] == 0
        while json_of(here.ok("topic", "route", closed, "--json"))[0]["permission"] != "r":  # until registered
            sleep(0.1)
        assert json_of(here.ok("topic", "route", topic, "--json"))[0]["permission"] == permission
    here.told("broker", "clean", "--topics", "--queues", "--yes")


def test_story_of_message_is_told(here, python_servers):
    topic, group, other = (f"{word}{uuid4().hex}" for word in ("CommandWhy", "Why", "Other"))
    python_servers.create_topic(topic, 1)
    options = {"cluster": python_servers.namesrv, "topics": topic, "begin": "earliest"}
    with Producer("WhyProducer", cluster=python_servers.namesrv) as producer:
        sent = producer.send(Message(topic, b"x", tags="A"))
        delayed = producer.send(Message(topic, b"later", delay_level=18))
    with Consumer(group, **options) as consumer:
        next(consumer)
    with Consumer(other, **{**options, "topics": {topic: "B"}}):

        def states():
            (line,) = here.ok("why", sent.msg_id, "--topic", topic, "--json")
            return {each["group"]: each["state"] for each in json.loads(line)["groups"]}

        while states().get(other) != "filtered":  # until the offset of this group is stored
            sleep(0.2)
        assert states() == {group: "consumed", other: "filtered"}
    assert json_of(here.ok("why", sent.offset_msg_id, "--json"))[0]["id"] == sent.msg_id
    assert "no group can read it yet" in json_of(here.ok("why", delayed.msg_id, "-t", topic, "--json"))[0]["waits"]
