"""The Python client's credentials and TLS, against rocketd's and Apache's brokers, which require them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketd.client import ClientConfig, Credentials, Message
from rocketd.client.errors import BrokerError, ConnectionLostError, RocketMQError, TopicNotFoundError
from rocketd.client.sync import Admin
from rocketd.remoting.settings import TlsConfig
from tests.interop.python_client_faces import LIMIT, Got
from tests.interop.python_client_servers import ROCKETD, RunningServers, Servers
from tests.interop.python_client_world import QUEUES, World, fresh, numbered, send_all
from tests.support.command_runner import CommandRunner
from tests.support.jars import PeerUnavailableError
from tests.support.lacking import end_test_lacking

ADMIN = Credentials("adminKey", "admin-secret")
READER = Credentials("readerKey", "reader-secret")


@pytest.fixture(scope="module")
def guarded(python_servers: RunningServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """A broker that asks for credentials, and makes no topics by itself; one of rocketd's also asks for TLS."""
    kind = python_servers.kind
    try:
        servers = Servers(kind, tmp_path_factory.mktemp("guarded"), guarded=True)
    except PeerUnavailableError as error:
        end_test_lacking(str(error))
    yield servers
    servers.stop()


@pytest.fixture
def inside(guarded: Servers, world: World) -> World:
    return World(guarded, world.face)


def config(world: World, credentials: Credentials | None, **options: Any) -> ClientConfig:
    tls: Any = "unverified" if world.kind == ROCKETD else False
    return ClientConfig(namesrv=world.servers.namesrv, credentials=credentials, **{"tls": tls, **options})


@pytest.fixture
def topic(inside: World) -> str:
    """A topic created by the administrator."""
    name = fresh("Guarded")
    with inside.admin(config(inside, ADMIN)) as admin:
        admin.create_topic(name, queues=QUEUES)
    inside.await_topic(name)
    return name


def test_account_with_permission_sends_and_reads(inside: World, topic: str) -> None:
    got, bodies = Got(), numbered("let in", 8)
    with (
        inside.producer(cluster=config(inside, ADMIN)) as producer,
        inside.consumer(inside.group(), topic, got, config(inside, READER)),
    ):
        send_all(producer, topic, bodies)
        got.wait_bodies(bodies)
    assert sorted(got.bodies) == sorted(bodies)


@pytest.mark.parametrize(
    "credentials",
    [None, Credentials("nobody", "12345678"), Credentials("adminKey", "another-secret"), READER],
    ids=["none", "unknown", "wrong", "reader"],
)
def test_account_without_permission_cannot_send(inside: World, topic: str, credentials: Credentials | None) -> None:
    with (
        inside.producer(cluster=config(inside, credentials)) as producer,
        pytest.raises(BrokerError, match=r"AclException") as caught,
    ):
        producer.send(Message(topic, b"x"))
    assert caught.value.code == 1
    assert caught.value.attempts


def test_missing_topic_without_auto_creation_raises(inside: World) -> None:
    name = fresh("Nowhere")
    with (
        inside.producer(cluster=config(inside, ADMIN)) as producer,
        pytest.raises(TopicNotFoundError, match="autoCreateTopicEnable is off") as caught,
    ):
        producer.send(Message(name, b"x"))
    assert name in str(caught.value)
    assert not caught.value.retriable


# ---------------------------------------------------------------- TLS


only_rocketd = pytest.mark.parametrize("python_servers", [ROCKETD], indirect=True)


@only_rocketd
def test_broker_requiring_tls_refuses_plain_connections(inside: World, topic: str) -> None:
    with (
        inside.producer(cluster=config(inside, ADMIN, tls=False)) as producer,
        pytest.raises(ConnectionLostError),
    ):
        producer.send(Message(topic, b"x"))


@only_rocketd
def test_unverified_certificate_is_refused(inside: World, topic: str) -> None:
    strict = TlsConfig(test_mode_enable=False, client_auth_server=True)
    with (
        inside.producer(cluster=config(inside, ADMIN, tls=strict), send_timeout=LIMIT) as producer,
        pytest.raises(RocketMQError, match="certificate"),
    ):
        producer.send(Message(topic, b"x"))


def test_permissive_servers_take_tls(world: World) -> None:
    """All goes through TLS: also pulls, long ones included."""
    name, got, bodies = world.topic(), Got(), numbered("encrypted", 8)
    both = ClientConfig(namesrv=world.servers.namesrv, tls="unverified")
    with world.producer(cluster=both) as producer, world.consumer(world.group(), name, got, both):
        send_all(producer, name, bodies)
        got.wait_bodies(bodies)
        producer.send(Message(name, b"big" * 100_000))
        got.wait_bodies([b"big" * 100_000])


def test_accounts_are_put_listed_and_deleted_by_commands(inside: World, tmp_path: Path) -> None:
    secret, name = tmp_path / "secret", "shopkeeper"
    secret.write_text("shop-secret\n")
    with Admin(cluster=config(inside, ADMIN)) as admin:
        here = CommandRunner(admin)
        here.ok("acl", "put", name, "--secret-file", str(secret), "--topic", "Orders=PUB|SUB", "--group", "shop=SUB")
        here.ok("acl", "put", name, "--default-topic", "DENY")
        rows = {row["account"]: row for row in map(json.loads, here.ok("acl", "list", "--json"))}
        row = rows[name]
        assert (row["topics"], row["groups"], row["default topic"]) == ("Orders=PUB|SUB", "shop=SUB", "DENY")
        assert (row["admin"], rows["adminKey"]["admin"]) == ("no", "yes")
        here.ok("acl", "put", name, "--admin")
        # The secret has stayed, and the rights are those of an admin.
        with Admin(cluster=config(inside, Credentials(name, "shop-secret"))) as own:
            CommandRunner(own).ok("acl", "list")
        here.told("acl", "delete", name, "--yes")
        assert f"no broker has the account {name}" in here.refused("acl", "delete", name)
        here.told("acl", "whitelist", "10.10.103.*", "--yes")
        assert here.ok("acl", "whitelist")[1].endswith("\t10.10.103.*")
