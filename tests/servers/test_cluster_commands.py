"""The commands of ``rocketd`` for administration, with the servers of rocketd.testing, in this process."""

import json

import pytest

from rocketd.client import Message
from rocketd.client.admin import AdminEngine
from rocketd.client.sync import Admin, Consumer, Producer
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.wire.codes import RequestCode
from rocketd.testing import Cluster
from tests.support.command_runner import CommandRunner

BROKER = "broker-a"


@pytest.fixture(scope="module")
def cluster():
    # These topics are closed, and the broker refuses changes of them.
    closed = {"brokerTopicEnable": False, "clusterTopicEnable": False}
    with Cluster(topics=["T"], broker=closed) as cluster:
        with Producer("PG", **cluster.client_options()) as producer:
            for number in range(3):
                producer.send(Message("T", b"%d" % number), queue=MessageQueue("T", BROKER, 0))
        with Consumer("CG", topics="T", handler=lambda message: None, **cluster.client_options()):
            cluster.advance(seconds=10)
        with Producer("PG", **cluster.client_options()) as producer:
            producer.send(Message("T", b"3"), queue=MessageQueue("T", BROKER, 0))
        cluster.advance(seconds=10)
        yield cluster


@pytest.fixture(scope="module")
def rocketd(cluster):
    with Admin(**cluster.client_options()) as admin:
        yield CommandRunner(admin)


def rows_of(lines):
    return [line.split("\t") for line in lines]


def facts_of(lines):
    return dict(rows_of(lines))


def json_of(lines):
    return [json.loads(line) for line in lines]


# ------------------------------------------------------------ groups and clients


def test_group_create_show_and_delete(rocketd):
    assert rocketd.ok("group", "create", "Made", "--retries", "3", "--no-broadcast") == []
    assert ["Made", "yes", "no", "3", "1"] in rows_of(rocketd.ok("group", "list"))
    assert facts_of(rocketd.ok("group", "show", "Made"))["retryMaxTimes"] == "3"
    rocketd.ok("group", "create", "Made", "--broadcast")
    assert ["Made", "yes", "yes", "3", "1"] in rows_of(rocketd.ok("group", "list"))
    rocketd.ok("group", "create", "Made", "--no-broadcast")
    _, text = rocketd.told("group", "delete", "Made")
    assert text == "would delete Made: 0 members online, 0 messages behind; with --yes it is deleted"
    assert facts_of(rocketd.ok("group", "show", "Made"))["consumeBroadcastEnable"] == "false"
    assert rocketd.told("group", "delete", "Made", "--offsets", "--yes")[1].startswith("deleted Made and its offsets: ")
    assert rocketd.refused("group", "show", "Made") == "no broker has the group Made"
    assert rocketd.refused("group", "delete", "Made", "--yes") == "no broker has the group Made"


def test_group_list_has_groups_of_system_only_with_all(rocketd):
    names = [row["group"] for row in json_of(rocketd.ok("group", "list", "--json"))]
    assert "CG" in names
    assert "TOOLS_CONSUMER" not in names
    assert "TOOLS_CONSUMER" in [row[0] for row in rows_of(rocketd.ok("group", "list", "--all"))]


def test_group_show_counts_messages_behind_and_members(rocketd):
    (facts,) = json_of(rocketd.ok("group", "show", "CG", "--json"))
    assert (facts["topics"], facts["members"], facts["behind"]) == (["%RETRY%CG", "T"], 0, 1)


def test_members_and_clients_are_those_online(rocketd, cluster):
    assert rocketd.refused("group", "members", "CG") == "consumer group CG has no client online"
    assert rocketd.refused("client", "producers", "PG") == "producer group PG has no client online"
    options = cluster.client_options()
    with Consumer("Online", topics="T", **options) as consumer, Producer("PG", **options) as producer:
        cluster.advance(seconds=40)
        first, member = rows_of(rocketd.ok("group", "members", "Online"))
        assert first == ["client", "address", "language", "version"]
        assert (member[0], member[2:]) == (consumer._engine.instance.client_id, ["PYTHON", "V4_9_7"])
        assert rows_of(rocketd.ok("client", "consumers", "Online"))[1] == member
        (sender,) = json_of(rocketd.ok("client", "producers", "PG", "--json"))
        assert sender["client"] == producer._engine.instance.client_id
        assert rocketd.told("group", "delete", "Online")[1].startswith("would delete Online: 1 member online")


# ------------------------------------------------------------ offsets


def test_offset_show_prints_each_queue(rocketd):
    first, row, *_ = rows_of(rocketd.ok("offset", "show", "CG", "--topic", "T"))
    assert first == ["topic", "broker", "queue", "consumed", "end", "behind", "last consumed"]
    assert row[:6] == ["T", BROKER, "0", "3", "4", "1"]
    assert row[6].endswith("Z")
    assert rocketd.refused("offset", "show", "Missing") == "no broker has the group Missing"
    rocketd.ok("group", "create", "Idle")
    assert rocketd.refused("offset", "show", "Idle", "--topic", "T") == "group Idle has no offset in topic T"


@pytest.mark.parametrize(("place", "offset"), [("latest", 4), ("2", 2), ("99", 4), ("-30d", 0), ("earliest", 0)])
def test_offset_reset_changes_offsets_only_with_yes(rocketd, place, offset):
    group = f"Reset{place}"
    rocketd.ok("group", "create", group)
    rocketd.told("offset", "clone", "CG", group, "--yes")
    for extra in ((), ("--dry-run",)):
        lines, text = rocketd.told("offset", "reset", group, "T", "--to", place, *extra)
        assert rows_of(lines)[:2] == [
            ["topic", "broker", "queue", "before", "after"],
            ["T", BROKER, "0", "3", str(offset)],
        ]
        assert text == f"would reset 4 queues of T for group {group}; with --yes they are reset"
    assert json_of(rocketd.ok("offset", "show", group, "-t", "T", "--json"))[0]["consumed"] == 3
    lines, text = rocketd.told("offset", "reset", group, "T", "--to", place, "--yes", "--json")
    assert json_of(lines)[0] == {"topic": "T", "broker": BROKER, "queue": 0, "before": 3, "after": offset}
    assert text == f"reset 4 queues of T for group {group}"
    assert json_of(rocketd.ok("offset", "show", group, "-t", "T", "--json"))[0]["consumed"] == offset


def test_offset_reset_with_wrong_arguments_is_refused(rocketd):
    assert rocketd.refused("offset", "reset", "Missing", "T", "--to", "latest") == "no broker has the group Missing"
    assert "no route for topic U" in rocketd.refused("offset", "reset", "CG", "U", "--to", "latest")
    both = ("offset", "reset", "CG", "T", "--to", "latest", "--yes", "--dry-run")
    assert "cannot be given together" in rocketd.refused(*both, status=2)
    assert "--to is missing" in rocketd.refused("offset", "reset", "CG", "T", status=2)


def test_offset_reset_of_running_group_moves_it_to_time_and_not_to_offset(rocketd, cluster):
    with Consumer("Running", topics="T", handler=lambda message: None, **cluster.client_options()):
        cluster.advance(seconds=40)
        refusal = rocketd.refused("offset", "reset", "Running", "T", "--to", "2", "--yes")
        assert "stop them first" in refusal
        lines, _ = rocketd.told("offset", "reset", "Running", "T", "--to", "earliest", "--yes")
        assert rows_of(lines)[1][4] == "0"
        assert "stop them first" in rocketd.refused("offset", "clone", "CG", "Running", "--yes")


def test_offset_clone_copies_only_with_yes(rocketd):
    rocketd.ok("group", "create", "Copy")
    lines, text = rocketd.told("offset", "clone", "CG", "Copy", "--topic", "T")
    assert rows_of(lines)[1] == ["T", BROKER, "0", "-", "3"]
    assert text == "would copy 4 offsets of group CG to group Copy; with --yes they are copied"
    rocketd.refused("offset", "show", "Copy")
    lines, text = rocketd.told("offset", "clone", "CG", "Copy", "--topic", "T", "--yes")
    assert rows_of(lines)[1] == ["T", BROKER, "0", "-", "3"]
    assert text == "copied 4 offsets of group CG to group Copy"
    assert rows_of(rocketd.ok("offset", "show", "Copy", "--topic", "T"))[1][3] == "3"
    assert rocketd.refused("offset", "clone", "Idle2", "Copy") == "no broker has the group Idle2"


def test_offset_clone_of_group_without_retry_topic_copies_all_topics(rocketd):
    rocketd.ok("group", "create", "Reader")
    rocketd.ok("group", "create", "Heir")
    rocketd.told("offset", "reset", "Reader", "T", "--to", "2", "--yes")
    _, text = rocketd.told("offset", "clone", "Reader", "Heir", "--yes")
    assert text == "copied 4 offsets of group Reader to group Heir"
    assert rows_of(rocketd.ok("offset", "show", "Heir"))[1][3] == "2"


# ------------------------------------------------------------ clusters, settings and keys


def test_clusters_and_their_brokers_are_shown_with_numbers_of_messages(rocketd):
    assert rows_of(rocketd.ok("cluster", "list")) == [
        ["cluster", "brokers", "masters", "slaves"],
        ["DefaultCluster", "1", "1", "0"],
    ]
    (row,) = json_of(rocketd.ok("cluster", "show", "DefaultCluster", "--json"))
    assert (row["broker"], row["id"], row["version"], row["in today"]) == (BROKER, 0, "V4_9_7", 4)
    expected = "no broker of cluster Moon is registered; known are DefaultCluster"
    assert rocketd.refused("cluster", "show", "Moon") == expected


def test_config_show_prints_all_settings_or_the_named_ones(rocketd):
    assert facts_of(rocketd.ok("config", "show", BROKER))["brokerName"] == BROKER
    lines = rocketd.ok("config", "show", BROKER, "brokerName", "fileReservedTime", "--json")
    assert [row["setting"] for row in json_of(lines)] == ["brokerName", "fileReservedTime"]
    expected = f"broker {BROKER} has no setting fileReservedTme; did you mean fileReservedTime?"
    assert rocketd.refused("config", "show", BROKER, "fileReservedTme") == expected
    assert f"registered are {BROKER}" in rocketd.refused("config", "show", "Moon")


def test_config_set_changes_settings_only_with_yes(rocketd):
    command = ("config", "set", BROKER, "fileReservedTime=47", "deleteWhen=05")
    for extra, text, now in (
        ((), f"would change 2 settings of broker {BROKER}; with --yes they are changed", "72"),
        (("--yes",), f"changed 2 settings of broker {BROKER}", "47"),
    ):
        lines, told = rocketd.told(*command, *extra)
        assert rows_of(lines) == [
            ["setting", "before", "after"],
            ["fileReservedTime", "72", "47"],
            ["deleteWhen", "04", "05"],
        ]
        assert told == text
        assert facts_of(rocketd.ok("config", "show", BROKER))["fileReservedTime"] == now


def test_config_set_tells_settings_of_next_start(rocketd):
    lines, told = rocketd.told("config", "set", BROKER, "haTransferBatchSize=40000", "--yes")
    assert rows_of(lines)[1][2] == "40000"
    assert told == f"changed 1 setting of broker {BROKER}; from its next start on: haTransferBatchSize"
    lines, _ = rocketd.told("config", "set", BROKER, "haTransferBatchSize=50000")
    assert rows_of(lines)[1][1:] == ["32768", "50000"]


def test_config_set_of_same_value_in_other_spelling_is_not_ignored(rocketd):
    lines, told = rocketd.told(
        "config", "set", BROKER, "autoCreateTopicEnable=TRUE", "osPageCacheBusyTimeOutMills=01000", "--yes"
    )
    assert rows_of(lines)[1:] == [
        ["autoCreateTopicEnable", "true", "true"],
        ["osPageCacheBusyTimeOutMills", "1000", "1000"],
    ]
    assert told == f"changed 2 settings of broker {BROKER}"


def test_config_set_of_setting_without_value_is_accepted(rocketd):
    lines, _ = rocketd.told("config", "set", BROKER, "haMasterAddress=10.0.0.1:10912")
    assert rows_of(lines)[1] == ["haMasterAddress", "-", "10.0.0.1:10912"]
    assert facts_of(rocketd.ok("config", "show", BROKER, "haMasterAddress"))["haMasterAddress"] == "-"


def test_config_set_of_wrong_setting_changes_nothing(rocketd):
    refusal = rocketd.refused("config", "set", BROKER, "deleteWhen=06", "Nonsense=1", "--yes")
    assert refusal == f"broker {BROKER} has no setting Nonsense"
    assert facts_of(rocketd.ok("config", "show", BROKER))["deleteWhen"] != "06"
    assert "fileReservedTime" in rocketd.refused("config", "set", BROKER, "fileReservedTime=never", "--yes")
    assert "accepted is KEY=VALUE" in rocketd.refused("config", "set", BROKER, "fileReservedTime", status=2)


def test_name_servers_are_listed_and_their_settings_changed_only_with_yes(rocketd):
    ((address, brokers, topics),) = rows_of(rocketd.ok("namesrv", "list"))[1:]
    assert (brokers, int(topics) > 5) == ("1", True)
    shown = {tuple(row[:2]): row[2] for row in rows_of(rocketd.ok("namesrv", "config"))}
    assert shown[address, "orderMessageEnable"] == "false"
    for extra, now in (((), "false"), (("--yes",), "true")):
        lines, told = rocketd.told("namesrv", "config", "orderMessageEnable=true", *extra)
        assert rows_of(lines)[1] == [address, "orderMessageEnable", "false", "true"]
        assert f"1 setting of name server {address}" in told
        assert f"{address}\torderMessageEnable\t{now}" in rocketd.ok("namesrv", "config")
    rocketd.told("namesrv", "config", "orderMessageEnable=false", "--yes")
    assert "no setting Nonsense" in rocketd.refused("namesrv", "config", "Nonsense=1", "--yes")
    assert "--yes needs a setting" in rocketd.refused("namesrv", "config", "--yes", status=2)


def test_namesrv_config_changes_name_servers_that_answer_and_names_others(rocketd, cluster):
    live = "127.0.0.1:9876"
    with Admin(**cluster.client_options(namesrv=f"127.0.0.1:1;{live}")) as admin:
        for extra in ((), ("--yes",)):
            words = ("namesrv", "config", "orderMessageEnable=true", *extra)
            status, lines, err = CommandRunner(admin).run(*words)
            assert (status, rows_of(lines)[1:]) == (3, [[live, "orderMessageEnable", "false", "true"]])
            assert "nothing from 127.0.0.1:1:" in err[-1]
    rocketd.told("namesrv", "config", "orderMessageEnable=false", "--yes")


def test_keys_are_put_read_and_deleted_only_with_yes(rocketd):
    assert rocketd.refused("kv", "list", "Space") == "namespace Space has no key"
    assert rocketd.told("kv", "put", "Space", "k", "one")[1] == "set Space/k to one; before: no value"
    assert rocketd.told("kv", "put", "Space", "k", "two")[1] == "set Space/k to two; before: one"
    assert rocketd.ok("kv", "get", "Space", "k") == ["two"]
    would = "would delete Space/k with the value two; with --yes it is deleted"
    assert rocketd.told("kv", "delete", "Space", "k")[1] == would
    assert rows_of(rocketd.ok("kv", "list", "Space")) == [["key", "value"], ["k", "two"]]
    assert rocketd.told("kv", "delete", "Space", "k", "--yes")[1] == "deleted Space/k with the value two"
    assert rocketd.refused("kv", "get", "Space", "k") == "namespace Space has no key k"
    assert "value=''" in rocketd.refused("kv", "put", "Space", "k", "")
    rocketd.told("kv", "put", "Space", "k", "a\tb\nc")
    assert rows_of(rocketd.ok("kv", "list", "Space"))[1:] == [["k", r"a\x09b\x0ac"]]
    assert rocketd.ok("kv", "get", "Space", "k") == ["a\tb", "c"]  # as it is, for scripts
    rocketd.told("kv", "delete", "Space", "k", "--yes")


# ------------------------------------------------------------ topics and brokers


def test_route_and_groups_of_topic_are_shown(rocketd):
    first, row = rows_of(rocketd.ok("topic", "route", "T"))
    assert first == ["broker", "cluster", "address", "read queues", "write queues", "permission"]
    assert (row[:2], row[3:]) == ([BROKER, "DefaultCluster"], ["4", "4", "rw"])
    assert "CG" in rocketd.ok("topic", "groups", "T")
    assert {"group": "CG"} in [json.loads(line) for line in rocketd.ok("topic", "groups", "T", "--json")]
    rocketd.ok("topic", "create", "Unread")
    assert rocketd.refused("topic", "groups", "Unread") == "topic Unread has no consumer group"
    assert "no route for topic U" in rocketd.refused("topic", "route", "U")


def test_permission_of_topic_is_changed_only_with_yes(rocketd):
    rocketd.ok("topic", "create", "Closed", "--queues", "3")
    for extra, told, now in (
        ((), "would change topic Closed; with --yes it is changed", "rw"),
        (("--yes",), "changed topic Closed", "r"),
    ):
        lines, text = rocketd.told("topic", "permission", "Closed", "r", *extra)
        assert (rows_of(lines)[1], text) == ([BROKER, "rw", "r"], told)
        assert rows_of(rocketd.ok("topic", "route", "Closed"))[1][3:] == ["3", "3", now]
    assert "accepted is rw or r or w" in rocketd.refused("topic", "permission", "Closed", "x", status=2)


def test_broker_is_drained_and_undrained(rocketd):
    rocketd.ok("topic", "create", "ClosedBefore")
    rocketd.told("topic", "permission", "ClosedBefore", "r", "--yes")
    assert f"topics of broker {BROKER} are closed for producers" in rocketd.told("broker", "drain", BROKER)[1]
    assert rows_of(rocketd.ok("topic", "route", "T"))[1][5] == "r"
    status, _, (closed, opened) = rocketd.run("broker", "undrain", BROKER)
    assert (status, "ClosedBefore" in closed) == (0, True)
    assert f"topics of broker {BROKER} are open to producers" in opened
    assert rows_of(rocketd.ok("topic", "route", "T"))[1][5] == "rw"
    assert rows_of(rocketd.ok("topic", "route", "ClosedBefore"))[1][5] == "r"
    expected = f"no broker Moon is registered; known are {BROKER}"
    assert rocketd.refused("broker", "drain", "Moon") == expected


def test_cleaning_is_done_only_with_yes(rocketd, monkeypatch):
    told = []
    real = AdminEngine._tell_masters

    def tell(admin, cluster, code, *rest):
        told.append(code)
        return real(admin, cluster, code, *rest)

    monkeypatch.setattr(AdminEngine, "_tell_masters", tell)
    held = f"the queues of former topics and of expired messages at {BROKER}"
    command = ("broker", "clean", "--topics", "--queues", "--cluster", "DefaultCluster")
    assert rocketd.told(*command)[1] == f"would delete {held}; with --yes they are deleted"
    assert told == []
    assert rocketd.told(*command, "--yes")[1] == f"deleted {held}"
    assert told == [RequestCode.CLEAN_UNUSED_TOPIC, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE]
    assert "no broker of cluster Moon" in rocketd.refused("broker", "clean", "--topics", "--cluster", "Moon")
    assert "are needed" in rocketd.refused("broker", "clean", status=2)
