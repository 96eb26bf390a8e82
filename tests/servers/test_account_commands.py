"""``rocketd acl`` with a broker of rocketd.testing that has access control, in this process."""

import json

import pytest

from rocketd.client import Credentials
from rocketd.client.sync import Admin
from rocketd.testing import AccountConfig, Cluster
from tests.support.command_runner import CommandRunner

BROKER = "broker-a"
ACCOUNTS = "accounts:\n- {accessKey: adminKey, secretKey: adminSecret1, admin: true}\n"


@pytest.fixture(scope="module")
def accounts(tmp_path_factory):
    file = tmp_path_factory.mktemp("home") / "conf" / "plain_acl.yml"
    file.parent.mkdir()
    file.write_text(ACCOUNTS)
    file.chmod(0o600)
    return file


@pytest.fixture(scope="module")
def rocketd(accounts):
    settings = {"aclEnable": True, "rocketmqHome": str(accounts.parent.parent)}
    with Cluster(broker=settings) as cluster:
        options = cluster.client_options(credentials=Credentials("adminKey", "adminSecret1"))
        with Admin(**options) as admin:
            yield CommandRunner(admin)


@pytest.fixture
def secret_file(tmp_path):
    file = tmp_path / "secret"
    file.write_text("shopSecret\n")
    return str(file)


def listed(rocketd):
    rows = [json.loads(line) for line in rocketd.ok("acl", "list", "--json")]
    return {row["account"]: row for row in rows}


def test_account_is_put_changed_and_deleted_only_with_yes(rocketd, accounts, secret_file):
    assert "needs a secret" in rocketd.refused("acl", "put", "shopkeeper", "--topic", "Orders=PUB")
    rights = ("--topic", "Orders=pub|sub", "--topic", "News=SUB", "--group", "shop=SUB")
    lines = rocketd.ok("acl", "put", "shopkeeper", "--secret-file", secret_file, *rights)
    assert [line.split("\t") for line in lines] == [
        ["broker", "field", "before", "after"],
        [BROKER, "secret", "-", "hidden"],
        [BROKER, "admin", "-", "no"],
        [BROKER, "topics", "-", "Orders=PUB|SUB News=SUB"],
        [BROKER, "groups", "-", "shop=SUB"],
    ]
    assert "secretKey: shopSecret" in accounts.read_text()
    # What is not given stays: the secret, the topics, and whether it is an admin.
    rocketd.ok("acl", "put", "shopkeeper", "--admin")
    lines = rocketd.ok("acl", "put", "shopkeeper", "--default-topic", "DENY", "--json")
    assert [json.loads(line) for line in lines] == [
        {"broker": BROKER, "field": "default topic", "before": "-", "after": "DENY"}
    ]
    row = listed(rocketd)["shopkeeper"]
    assert (row["admin"], row["topics"], row["default topic"]) == ("yes", "Orders=PUB|SUB News=SUB", "DENY")
    assert "secretKey: shopSecret" in accounts.read_text()
    would = f"would delete account shopkeeper at {BROKER}; with --yes it is deleted"
    assert rocketd.told("acl", "delete", "shopkeeper")[1] == would
    assert "shopkeeper" in listed(rocketd)
    rocketd.told("acl", "delete", "shopkeeper", "--yes")
    assert "shopkeeper" not in listed(rocketd)
    assert rocketd.refused("acl", "delete", "shopkeeper") == "no broker has the account shopkeeper"


def test_secrets_are_printed_by_no_command(rocketd, secret_file, tmp_path):
    short = tmp_path / "short"
    short.write_text("Secret\n")
    shown = []
    for words in (
        ("put", "clerk00", "--secret-file", str(short)),
        ("put", "clerk", "--secret-file", secret_file),
        ("put", "clerk00", "--secret-file", secret_file),
        ("put", "clerk00", "--secret-file", secret_file, "--json"),
        ("list",),
        ("list", "--json"),
        ("delete", "clerk00"),
        ("delete", "clerk00", "--yes"),
    ):
        shown += rocketd.run("acl", *words)[1:]
    assert "adminKey" in str(shown)
    assert str(shown).count("needs more than 6 characters") == 2
    assert "Secret" not in str(shown)


def test_white_addresses_are_set_only_with_yes(rocketd):
    assert rocketd.ok("acl", "whitelist")[1] == f"{BROKER}\t-"
    lines, told = rocketd.told("acl", "whitelist", "10.0.0.*", "192.168.7.1")
    assert lines[1] == f"{BROKER}\t-\t10.0.0.* 192.168.7.1"
    assert told == f"would set the white addresses of {BROKER}; with --yes they are set"
    assert rocketd.ok("acl", "whitelist")[1] == f"{BROKER}\t-"
    rocketd.told("acl", "whitelist", "10.0.0.*", "192.168.7.1", "--yes")
    assert rocketd.ok("acl", "whitelist")[1] == f"{BROKER}\t10.0.0.* 192.168.7.1"


def test_wrong_arguments_are_refused(rocketd, tmp_path):
    missing = str(tmp_path / "missing")
    assert "No such file" in rocketd.refused("acl", "put", "shopkeeper", "--secret-file", missing)
    empty = tmp_path / "empty"
    empty.write_bytes(b"\n")
    assert "accepted is a line" in rocketd.refused("acl", "put", "shopkeeper", "--secret-file", str(empty))
    assert "accepted is DENY" in rocketd.refused("acl", "put", "shopkeeper", "--topic", "T=ALL", status=2)
    assert "accepted is DENY" in rocketd.refused("acl", "put", "shopkeeper", "--default-topic", "ANY", status=2)
    assert "accepted is KEY=VALUE" in rocketd.refused("acl", "put", "shopkeeper", "--topic", "T", status=2)
    assert "no broker of cluster Moon" in rocketd.refused("acl", "list", "--cluster", "Moon")
    assert "--yes needs an address" in rocketd.refused("acl", "whitelist", "--yes", status=2)


def test_broker_without_master_is_told_by_each_change(secret_file):
    lost = "no master of broker-b is registered at the name servers, only slaves are; start the master"
    admin_account = AccountConfig("adminKey", "adminSecret1", admin=True)
    with Cluster(brokers=2, slaves=1, accounts=[admin_account, AccountConfig("shopkeeper", "shopSecret")]) as cluster:
        options = cluster.client_options(credentials=Credentials("adminKey", "adminSecret1"))
        with Admin(**options) as admin:
            rocketd = CommandRunner(admin)
            cluster.brokers["broker-b"].kill()
            cluster.settle()
            assert rocketd.refused("acl", "delete", "shopkeeper", "--yes") == f"not changed at broker-b: {lost}"
            assert rocketd.refused("topic", "create", "Orders") == lost
            assert rocketd.refused("group", "create", "shop") == lost
            cluster.brokers["broker-b"].restart()
            cluster.settle()
            rows = [json.loads(line) for line in rocketd.ok("acl", "list", "--json")]
            assert [row["broker"] for row in rows if row["account"] == "shopkeeper"] == ["broker-b"]
