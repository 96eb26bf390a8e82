"""The brokers' files after mqadmin's commands about accounts, and refused accounts, as at Apache's broker.

The output of those commands is compared in test_mqadmin_acl.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.interop.mqadmin_sides import CLUSTER, Accounts, Both, Side
from tests.support.jars import PeerUnavailableError

ADMIN = ("adminKey", "adminSecret1")
USER = ("userKey1", "12345678")
ACCOUNTS = """\
# Accounts of this test.
globalWhiteRemoteAddresses:
  - 10.10.103.*
accounts:
  - accessKey: adminKey
    secretKey: adminSecret1
    admin: true
  - accessKey: userKey1
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
    groupPerms:
      - groupA=DENY
dataVersion:
  - counter: 3
    timestamp: 1795254904344
"""


def tools(account: tuple[str, str]) -> str:
    return f"accessKey: {account[0]}\nsecretKey: {account[1]}\n"


def sign_as(side: Side, account: tuple[str, str] | None) -> None:
    """Let mqadmin sign as an account, or not at all."""
    file = side.directory / "mqadmin" / "conf" / "tools.yml"
    if account is None:
        file.unlink()
    else:
        file.write_text(tools(account))


def accounts_file(side: Side) -> Path:
    return side.directory / "home" / "conf" / "plain_acl.yml"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, lacking: Any) -> Iterator[Both]:
    """Both sides with these accounts, and mqadmin with the admin's."""
    try:
        sides = Both(tmp_path_factory.mktemp("acl"), Accounts(ACCOUNTS, tools(ADMIN)))
    except PeerUnavailableError as error:
        lacking(str(error))
    yield sides
    sides.stop()


@pytest.fixture
def signing(guarded: Both) -> Iterator[Both]:
    """Both, with the admin's credentials again afterwards."""
    yield guarded
    guarded.each(lambda side: sign_as(side, ADMIN))


def shown(printed: str) -> str:
    """Hide the text behind Apache's: Apache names a line of its source; rocketd, the cause and the remedy.

    One command prints the identity of a Java object.
    """
    printed = re.sub(r"PlainAccessConfig@[0-9a-f]+", "PlainAccessConfig", printed)
    printed = re.sub(r", org\.apache\.rocketmq\.acl\.plain\.\S+\(\S+\.java:\d+\)", "", printed)
    return re.sub(r"; cause: .*? \[acl-[a-z-]+\]", "", printed)


def documents(guarded: Both) -> dict[str, Any]:
    """Return the content of the files; AssertionError unless it is the same in both, except for times."""
    of_apache, of_rocketd = guarded.each(lambda side: yaml.safe_load(accounts_file(side).read_text()))
    for document in (of_apache, of_rocketd):
        for version in document["dataVersion"]:
            assert version.pop("timestamp") > 1_700_000_000_000
        for account in document["accounts"]:  # YAML has it as a number until the file is written
            account["secretKey"] = str(account["secretKey"])
    assert of_apache == of_rocketd
    return of_rocketd


def test_an_account_is_created_changed_and_deleted(guarded):
    counter = documents(guarded)["dataVersion"][0]["counter"]
    new = ("-a", "newKey11", "-s", "newSecret")
    where = ("-w", "192.168.0.*", "-i", "DENY", "-u", "SUB")
    guarded.same("updateAclConfig", "-b", "BROKER", *new, "-m", "true", *where, change=shown)
    perms = ("-t", "topicA=DENY,topicD=SUB", "-g", "groupD=PUB|SUB")
    guarded.same("updateAclConfig", "-b", "BROKER", *new, *perms, change=shown)
    document = documents(guarded)
    assert document["accounts"][-1] == {
        "accessKey": "newKey11",
        "secretKey": "newSecret",
        "whiteRemoteAddress": "192.168.0.*",
        "admin": False,
        "defaultTopicPerm": "DENY",
        "defaultGroupPerm": "SUB",
        "topicPerms": ["topicA=DENY", "topicD=SUB"],
        "groupPerms": ["groupD=PUB|SUB"],
    }
    assert document["dataVersion"] == [{"counter": counter + 2}]
    guarded.same("deleteAclConfig", "-b", "BROKER", "-a", "newKey11")
    document = documents(guarded)
    assert [account["accessKey"] for account in document["accounts"]] == ["adminKey", "userKey1"]
    assert document["dataVersion"] == [{"counter": counter + 3}]
    guarded.same("clusterAclConfigVersion", "-b", "BROKER")


def test_fields_left_out_of_a_change_stay(guarded):
    words = ("-a", "userKey1", "-s", "12345678", "-t", "topicC=PUB")
    guarded.same("updateAclConfig", "-c", CLUSTER, *words, change=shown)
    changed = documents(guarded)["accounts"][-1]
    assert changed["accessKey"] == "userKey1"
    assert (changed["topicPerms"], changed["groupPerms"]) == (["topicC=PUB"], ["groupA=DENY"])
    assert (changed["defaultTopicPerm"], changed["defaultGroupPerm"]) == ("DENY", "SUB")


def test_white_addresses(guarded):
    guarded.same("updateGlobalWhiteAddr", "-b", "BROKER", "-g", "10.10.154.1,10.10.154.*")
    assert documents(guarded)["globalWhiteRemoteAddresses"] == ["10.10.154.1", "10.10.154.*"]
    path = ("-p", "DIRECTORY/home/conf/plain_acl.yml")
    guarded.same("updateGlobalWhiteAddr", "-c", CLUSTER, "-g", "10.10.155.*", *path)
    assert documents(guarded)["globalWhiteRemoteAddresses"] == ["10.10.155.*"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (209, ("updateAclConfig", "-b", "BROKER", "-a", "short", "-s", "newSecret")),
        (209, ("updateAclConfig", "-b", "BROKER", "-a", "newKey11", "-s", "newSecret", "-t", "topicA")),
        (209, ("updateAclConfig", "-b", "BROKER", "-a", "newKey11", "-s", "newSecret", "-g", "groupA=ANY")),
        (210, ("deleteAclConfig", "-b", "BROKER", "-a", "nobodyKey")),
        (211, ("updateGlobalWhiteAddr", "-b", "BROKER", "-g", "10.0.0.1", "-p", "/nowhere/plain_acl.yml")),
    ],
    ids=["key", "format", "permission", "delete", "file"],
)
def test_a_refused_change_leaves_the_file_alone(guarded, code, words):
    before = guarded.each(lambda side: accounts_file(side).read_bytes())
    guarded.same(*words, err=f"CODE: {code}")
    assert guarded.each(lambda side: accounts_file(side).read_bytes()) == before


@pytest.mark.parametrize(
    ("account", "why"),
    [
        (USER, "Need admin permission for request code=17, but accessKey=userKey1 is not"),
        (("adminKey", "adminSecret2"), "Check signature failed for accessKey=adminKey"),
        (("nobodyKey", "adminSecret1"), "No acl config for nobodyKey"),
        (None, "No accessKey is configured"),
    ],
    ids=["user", "secret", "unknown", "unsigned"],
)
def test_account_without_admin_cannot_create_topic(signing, account, why):
    signing.each(lambda side: sign_as(side, account))
    why = f"org.apache.rocketmq.acl.common.AclException: {why}"
    signing.same("updateTopic", "-b", "BROKER", "-t", "Refused", change=shown, err=why)


@pytest.mark.parametrize(
    "words",
    [
        ("updateTopic", "-b", "BROKER", "-t", "Created"),
        ("updateSubGroup", "-b", "BROKER", "-g", "Created"),
        ("updateBrokerConfig", "-b", "BROKER", "-k", "flushDelayOffsetInterval", "-v", "9000"),
        ("deleteSubGroup", "-b", "BROKER", "-g", "Created"),
        ("deleteTopic", "-c", CLUSTER, "-t", "Created"),
    ],
    ids=lambda words: words[0],
)
def test_admin_commands_need_an_admin(signing, words):
    assert "success" in signing.same(*words)
    signing.each(lambda side: sign_as(side, USER))
    signing.same(*words, change=shown, err="Need admin permission for request code=")
