"""Unmodified clients with credentials against a broker that requires them: accepted requests, and refusals with causes."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.interop.clients import Clients, Cluster
from tests.interop.toolchain import ClientError
from tests.support import wire
from tests.support.apache import ApacheCluster
from tests.support.jars import PeerUnavailableError
from tests.support.lacking import end_test_lacking

COUNT = 20
BROKER_RUNTIME_INFO = 28
RELOAD_LIMIT = 60.0  # seconds; files are looked at every five
APACHES = os.environ.get("ROCKETD_INTEROP_SERVERS") == "apache"

ACCOUNTS = """\
accounts:
- accessKey: senderKey
  secretKey: 12345678
  topicPerms: [Open=PUB, Secret=SUB]
- accessKey: readerKey
  secretKey: reader-secret
  defaultGroupPerm: DENY
  topicPerms: [Open=SUB]
  groupPerms: [Readers-java=SUB, Readers-go=SUB]
- accessKey: whiteKey
  secretKey: white-secret
  whiteRemoteAddress: 127.0.0.1
"""
SENDER = ("--access-key", "senderKey", "--secret-key", "12345678")
READER = ("--access-key", "readerKey", "--secret-key", "reader-secret")
LANGUAGES = ["java", "go"]


@dataclass
class Guarded:
    """A cluster with a broker that checks its clients."""

    clients: Clients
    broker: str
    accounts: Path
    log: Path | None

    def send(self, language: str, topic: str, *arguments: str, count: int = COUNT) -> list[dict[str, Any]]:
        return self.clients.run(language, "send", topic, "--group", "P", "--count", count, *arguments).lines

    def refused(self, language: str, topic: str, *arguments: str) -> str:
        with pytest.raises(ClientError) as caught:
            self.send(language, topic, *arguments, count=1)
        return str(caught.value)

    def write(self, text: str) -> None:
        """Change the file of accounts, as an operator does."""
        new = self.accounts.with_suffix(".new")
        new.write_text(text)
        new.chmod(0o600)
        new.rename(self.accounts)

    def asks_for_a_key(self) -> bool:
        """Whether a request without any is refused."""
        answer = wire.call(self.broker, BROKER_RUNTIME_INFO)
        assert answer.code in (0, 1), answer
        return answer.code == 1

    def logged(self, text: str) -> int:
        """Return the number of occurrences of a text in the log; 1 without a log, as if it were there."""
        return 1 if self.log is None else self.log.read_text(errors="replace").count(text)


def eventually(condition: Any) -> None:
    deadline = time.monotonic() + RELOAD_LIMIT
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("guarded")
    # Where Apache's servers are started with their home, and rocketd's are told that theirs is.
    home = directory / "home"
    (home / "conf").mkdir(parents=True)
    accounts = home / "conf" / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    accounts.chmod(0o600)
    properties = {"aclEnable": "true", "rocketmqHome": str(home)}
    if APACHES:
        servers = ApacheCluster(directory, properties=properties)
        try:
            servers.start()
        except PeerUnavailableError as error:
            end_test_lacking(str(error))
        log = None
    else:
        from tests.support.twistd_servers import RocketdCluster

        servers = RocketdCluster(directory, properties)
        servers.start()
        log = servers.processes[1].log
    clients = Clients(Cluster(servers.namesrv_address, servers.broker_address), tmp_path_factory.mktemp)
    yield Guarded(clients, servers.broker_address, accounts, log)
    servers.stop()


@pytest.mark.parametrize("language", LANGUAGES)
def test_account_sends_and_reads_with_permission(guarded, language):
    sent = guarded.send(language, "Open", *SENDER)
    assert {line["status"] for line in sent} == {"SEND_OK"}
    group = f"Readers-{language}"
    received = guarded.clients.run(
        language, "consume", "Open", "--group", group, "--count", COUNT, "--timeout", 120, *READER
    ).lines
    assert {line["index"] for line in received} == set(range(COUNT))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("topic", "arguments", "why"),
    [
        ("Closed", SENDER, "No default permission for topic:Closed"),
        ("Secret", SENDER, "No default permission for topic:Secret"),
        ("Open", READER, "No default permission for topic:Open"),
        ("Open", (*SENDER[:3], "12345679"), "Check signature failed for accessKey=senderKey"),
        ("Open", ("--access-key", "nobodyKey", *SENDER[2:]), "No acl config for nobodyKey"),
        ("Open", (), "No accessKey is configured"),
    ],
    ids=["default", "entry", "reader", "secret", "unknown", "unsigned"],
)
def test_sends_without_permission_are_refused(guarded, language, topic, arguments, why):
    assert f"org.apache.rocketmq.acl.common.AclException: {why}" in guarded.refused(language, topic, *arguments)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("group", "credentials", "why"),
    [
        ("Others", READER, "No default permission for group:Others"),
        ("Readers-java", SENDER, "No default permission for "),
    ],
    ids=["group", "topic"],
)
def test_consumers_without_permission_are_refused(guarded, language, group, credentials, why):
    guarded.send(language, "Open", *SENDER)
    for seconds in (4, 20):  # in which a slow machine may not get to asking
        with pytest.raises(ClientError, match="exit status 1 after 0 lines"):
            guarded.clients.run(
                language, "consume", "Open", "--group", group, "--count", 1, "--timeout", seconds, *credentials
            )
        if guarded.logged(why):
            break
    assert guarded.logged(why)


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_account_with_a_white_address_needs_no_secret(guarded, language):
    sent = guarded.send(language, "White", "--access-key", "whiteKey", "--secret-key", "no matter")
    assert {line["status"] for line in sent} == {"SEND_OK"}


def test_changed_account_file_is_read_again(guarded):
    assert guarded.asks_for_a_key()
    guarded.write("globalWhiteRemoteAddresses: ['127.0.0.*']\n" + ACCOUNTS)
    eventually(lambda: not guarded.asks_for_a_key())
    guarded.send("go", "Closed", count=1)


@pytest.mark.skipif(APACHES, reason="Apache's broker forgets no white address of a file that began without any")
def test_entries_removed_from_account_file_are_forgotten(guarded):
    guarded.write("globalWhiteRemoteAddresses: ['10.0.0.1']\n" + ACCOUNTS.replace("Open=PUB", "Closed=PUB"))
    eventually(guarded.asks_for_a_key)
    guarded.send("go", "Closed", *SENDER, count=1)
    assert "No default permission for topic:Open" in guarded.refused("go", "Open", *SENDER)


@pytest.mark.skipif(APACHES, reason="Apache's broker goes on as well, and says less")
def test_broken_account_file_keeps_the_last_good_one(guarded):
    guarded.write(ACCOUNTS + " broken: [\n")
    eventually(lambda: guarded.logged("its previous content stays in force"))
    assert guarded.asks_for_a_key()
    taken_over = guarded.logged("access control: read")
    guarded.write(ACCOUNTS)
    eventually(lambda: guarded.logged("access control: read") > taken_over)
    guarded.send("go", "Open", *SENDER, count=1)


def test_log_has_no_secrets(guarded):
    for secret in ("12345678", "reader-secret", "white-secret"):
        assert guarded.log is None or secret not in guarded.log.read_text(errors="replace")
