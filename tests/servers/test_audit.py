"""Changes by administrators are noted, with who made them, and read back, with the servers of rocketd.testing."""

import json

import pytest

from rocketd.acl.accounts import AccountConfig
from rocketd.client import BrokerAccount, Credentials, Message
from rocketd.client.errors import BrokerError
from rocketd.client.sync import Admin, Consumer, Producer
from rocketd.remoting.wire.codes import RequestCode
from rocketd.testing import Cluster

BROKER = "broker-a"
OPS = AccountConfig("operations", "secretOfOps", admin=True)
SHOP = AccountConfig("theShop", "secretOfShop", default_topic_perm="PUB|SUB", default_group_perm="SUB")


def credentials(account):
    return Credentials(account.access_key, account.secret_key)


def changes_at(admin, server, count=1000):
    """Return (account, action, subject, before, after) of the last changes at a server."""
    answer = admin.ask(server, RequestCode.GET_ADMIN_CHANGES, {"count": str(count)})
    changes = json.loads(answer.body)["changes"]
    return [
        tuple(change.get(name) for name in ("account", "action", "subject", "before", "after")) for change in changes
    ]


def test_each_change_at_a_broker_is_noted_with_account_and_values():
    with Cluster(topics=["T"], accounts=[OPS, SHOP]) as cluster:
        shop = cluster.client_options(credentials=credentials(SHOP))
        with Admin(**cluster.client_options(credentials=credentials(OPS))) as admin:
            before = len(changes_at(admin, BROKER))
            admin.create_topic("Orders", queues=2)
            admin.create_topic("Orders", queues=8)
            admin.create_group("billing")
            with Producer("PG", **shop) as producer:
                producer.send_batch([Message("Orders", b"x")] * 3)
            with Consumer("billing", topics="Orders", handler=lambda _: None, begin="earliest", **shop):
                cluster.advance(seconds=10)
                admin.reset_offsets("billing", "Orders", "earliest")
                cluster.advance(seconds=10)
            admin.reset_offsets("billing", "Orders", "latest")
            admin.clone_offsets("billing", "audit", "Orders")
            admin.set_broker_config(BROKER, {"fileReservedTime": "48", "flushDiskType": "SYNC_FLUSH"})
            admin.set_account(BrokerAccount("newcomer", default_topic_perm="SUB"), secret_key="secretOfNewcomer")
            admin.delete_account("newcomer")
            admin.set_white_addresses(["10.9.8.7"])
            admin.clean_unused_topics()
            admin.delete_group("billing", remove_offsets=True)
            admin.delete_topic("Orders")
            found = changes_at(admin, BROKER)[before:]
    assert {account for account, *_ in found} == {"operations"}
    assert "secretOf" not in str(found)
    noted = {(action, subject): (old, new) for _, action, subject, old, new in found}
    (no_topic, first), (old, second) = [row[3:] for row in found if row[1:3] == ("set topic", "Orders")]
    assert (no_topic, first["writeQueueNums"], second["writeQueueNums"], old) == (None, 2, 8, first)
    assert noted["set consumer group", "billing"][0] is None
    old, new = noted["reset offsets of consumers", "Orders@billing"]
    assert (sum(old.values()), sum(new.values())) == (3, 0)
    assert sum(noted["copy offsets of group billing", "Orders@audit"][1].values()) == 3
    assert [noted["reset offset", f"Orders@billing queue {number}"] for number in range(8)].count((3, 3)) == 1
    assert noted["set setting", "fileReservedTime"] == ("72", "48")
    assert noted["set setting from the next start on", "flushDiskType"] == ("ASYNC_FLUSH", "SYNC_FLUSH")
    assert noted["set account", "newcomer"][1]["default_topic_perm"] == "SUB"
    assert noted["delete account", "newcomer"][0]["default_topic_perm"] == "SUB"
    assert noted["set global white addresses", ""][1] == ["10.9.8.7"]
    assert ("delete", "queues of unknown topics") in noted
    assert noted["delete consumer group with its offsets", "billing"][0]["groupName"] == "billing"
    assert noted["delete topic", "Orders"][0]["writeQueueNums"] == 8


def test_each_change_at_a_name_server_is_noted_with_values():
    with Cluster(topics=["T"]) as cluster, Admin(**cluster.client_options()) as admin:
        (server,) = cluster.client_options()["cluster"].name_servers()
        admin.put_kv("SPACE", "k", "1")
        admin.put_kv("SPACE", "k", "2")
        admin.delete_kv("SPACE", "k")
        topics = admin.wipe_write_permission(BROKER)
        admin.add_write_permission(BROKER)
        admin.set_namesrv_config({"clusterTest": "true"})
        admin.delete_topic("T")
        found = changes_at(admin, server)
    assert found == [
        (None, "set key-value entry", "SPACE/k", None, "1"),
        (None, "set key-value entry", "SPACE/k", "1", "2"),
        (None, "delete key-value entry", "SPACE/k", "2", None),
        (None, "forbid writing to a broker", BROKER, None, {"topics": topics}),
        (None, "permit writing to a broker", BROKER, None, {"topics": topics}),
        (None, "set setting that has no effect", "clusterTest", "false", "true"),
        (None, "delete topic", "T", None, None),
    ]


def test_changes_survive_the_end_of_the_process():
    with Cluster(topics=["T"]) as cluster, Admin(**cluster.client_options()) as admin:
        admin.create_topic("Orders", queues=2)
        cluster.kill()
        cluster.restart()
        assert [subject for _, _, subject, _, _ in changes_at(admin, BROKER)][-1] == "Orders"


def test_audit_is_for_admins_alone():
    with (
        Cluster(topics=["T"], accounts=[OPS, SHOP]) as cluster,
        Admin(**cluster.client_options(credentials=credentials(SHOP))) as client,
        pytest.raises(BrokerError, match="Need admin permission"),
    ):
        changes_at(client, BROKER)


def test_refused_change_is_not_noted():
    with Cluster(topics=["T"]) as cluster, Admin(**cluster.client_options()) as admin:
        before = changes_at(admin, BROKER)
        with pytest.raises(BrokerError):
            admin.set_broker_config(BROKER, {"flushDiskType": "SOMETIMES"})
        with pytest.raises(BrokerError):
            admin.ask(BROKER, RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "no blank", "defaultTopic": "TBW102"})
        assert changes_at(admin, BROKER) == before
