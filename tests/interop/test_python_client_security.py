"""The Python client's credentials and TLS, against brokers of rocketd's and of Apache's that ask for them."""

from collections.abc import Iterator
from typing import Any

import pytest
from lacking import end_test_lacking
from python_client_faces import LIMIT, Got
from python_client_servers import ROCKETD, RunningServers, Servers
from python_client_world import QUEUES, World, fresh, numbered, send_all

from benchmarks.peers.jars import PeerUnavailableError
from rocketd.client import ClientConfig, Credentials, Message
from rocketd.client.errors import BrokerError, ConnectionLostError, RocketMQError, TopicNotFoundError
from rocketd.remoting.settings import TlsConfig

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
    return ClientConfig(
        namesrv=world.servers.namesrv, credentials=credentials, **{"tls": world.kind == ROCKETD, **options}
    )


@pytest.fixture
def topic(inside: World) -> str:
    """A topic that the administrator has made."""
    name = fresh("Guarded")
    with inside.admin(config(inside, ADMIN)) as admin:
        admin.create_topic(name, QUEUES)
    inside.await_topic(name)
    return name


def test_credentials_let_in(inside: World, topic: str) -> None:
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
def test_who_may_not_send(inside: World, topic: str, credentials: Credentials | None) -> None:
    with (
        inside.producer(cluster=config(inside, credentials)) as producer,
        pytest.raises(BrokerError, match=r"AclException") as caught,
    ):
        producer.send(Message(topic, b"x"))
    assert caught.value.code == 1
    assert caught.value.attempts


def test_a_topic_that_no_broker_makes(inside: World) -> None:
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
def test_a_broker_that_asks_for_tls_refuses_plain_connections(inside: World, topic: str) -> None:
    with (
        inside.producer(cluster=config(inside, ADMIN, tls=False)) as producer,
        pytest.raises(ConnectionLostError),
    ):
        producer.send(Message(topic, b"x"))


@only_rocketd
def test_a_certificate_that_nobody_vouches_for(inside: World, topic: str) -> None:
    strict = TlsConfig(test_mode_enable=False, client_auth_server=True)
    with (
        inside.producer(cluster=config(inside, ADMIN, tls=strict), send_timeout=LIMIT) as producer,
        pytest.raises(RocketMQError, match="certificate"),
    ):
        producer.send(Message(topic, b"x"))


def test_tls_to_servers_that_take_both(world: World) -> None:
    """All goes through TLS: also pulls, long ones included."""
    name, got, bodies = world.topic(), Got(), numbered("encrypted", 8)
    both = ClientConfig(namesrv=world.servers.namesrv, tls=True)
    with world.producer(cluster=both) as producer, world.consumer(world.group(), name, got, both):
        send_all(producer, name, bodies)
        got.wait_bodies(bodies)
        producer.send(Message(name, b"big" * 100_000))
        got.wait_bodies([b"big" * 100_000])
