"""The Python client against rocketd's servers and against Apache's: the same tests for both."""

import os
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from zope.interface import implementer

from rocketd.client import ClientConfig, Message, Retry, Sql
from rocketd.client.errors import (
    BrokerError,
    GroupInUseError,
    IllegalGroupError,
    IllegalOptionError,
    IllegalTopicError,
    MessageTooLargeError,
    NoNameServerError,
    TopicNotFoundError,
)
from rocketd.remoting.interfaces import IRPCHook
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from tests.interop.python_client_basics import SCENARIOS, Listener
from tests.interop.python_client_faces import Got, SyncFace, eventually
from tests.interop.python_client_servers import LEVEL_2_SECONDS, ROCKETD, Servers
from tests.interop.python_client_twisted import played_on_twisted
from tests.interop.python_client_world import World, fresh, numbered

# ---------------------------------------------------------------- on every face


@pytest.fixture(scope="module")
def on_twisted(python_servers: Servers) -> dict[str, str]:
    """The error of each scenario on the Twisted face, by its name."""
    return played_on_twisted("python_client_basics", python_servers)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_aio(world: World, scenario: Any) -> None:
    scenario(world)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_sync(python_servers: Servers, scenario: Any) -> None:
    scenario(World(python_servers, SyncFace()))


@pytest.mark.parametrize("scenario", [*(scenario.__name__ for scenario in SCENARIOS), "reactor"])
def test_twisted(on_twisted: dict[str, str], scenario: str) -> None:
    assert on_twisted[scenario] == ""


# ---------------------------------------------------------------- messages


def test_tags_and_sql_select(world: World) -> None:
    topic, tagged, priced = world.topic(), Got(), Got()
    bodies = numbered("filtered", 12)
    with (
        world.consumer(world.group(), {topic: "TagA || TagC"}, tagged),
        world.consumer(world.group(), {topic: Sql("price > 5 AND region = 'žďár' OR TAGS = 'TagB'")}, priced),
        world.producer() as producer,
    ):
        for number, body in enumerate(bodies):
            properties = {"price": str(number), "region": "žďár" if number % 2 else "elsewhere"}
            producer.send(Message(topic, body, tags=f"Tag{'ABCD'[number % 4]}", properties=properties))
        tagged.wait_bodies(bodies[0::4] + bodies[2::4])
        priced.wait_bodies([bodies[number] for number in (1, 5, 7, 9, 11)])
    assert sorted(tagged.bodies) == sorted(bodies[0::4] + bodies[2::4])
    assert sorted(priced.bodies) == sorted(bodies[number] for number in (1, 5, 7, 9, 11))


def test_wrong_sql_expression_raises_at_once(world: World) -> None:
    consumer = world.consumer(world.group(), {world.topic(): Sql("price >")}, Got())
    with pytest.raises(BrokerError) as caught:
        consumer.open()
    assert caught.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_subscriptions_can_change_while_running(world: World) -> None:
    first, second, got = world.topic(), world.topic(), Got()
    with world.producer() as producer, world.consumer(world.group(), first, got) as consumer:
        consumer.subscribe(second, "Wanted")
        producer.send(Message(second, b"other", tags="Other"))
        producer.send(Message(second, b"wanted", tags="Wanted"))
        got.wait_bodies([b"wanted"])
        consumer.unsubscribe(second)
        eventually("the queues are given up", lambda: {queue.topic for queue in consumer.queues()} == {first})
        producer.send(Message(second, b"after", tags="Wanted"))
        producer.send(Message(first, b"last"))
        got.wait_bodies([b"last"])
    assert got.bodies == [b"wanted", b"last"]


def test_mqadmin_finds_a_message_by_its_key(world: World) -> None:
    topic = world.topic()
    with world.producer() as producer:
        sent = producer.send(Message(topic, b"to be found", tags="Lost", keys=["needle", "pin"]))

    def found() -> bool:
        return all(
            sent.msg_id in world.servers.mqadmin("queryMsgByKey", "-t", topic, "-k", key) for key in ("needle", "pin")
        )

    eventually("both keys are in the index", found)
    printed = world.servers.mqadmin("queryMsgByUniqueKey", "-t", topic, "-i", sent.msg_id)
    assert "Lost" in printed
    assert "[needle pin]" in printed


def test_a_delay_level_delays(world: World) -> None:
    topic, got = world.topic(), Got()
    with world.producer() as producer, world.consumer(world.group(), topic, got):
        producer.send(Message(topic, b"delayed", delay_level=2))
        producer.send(Message(topic, b"at once"))
        got.wait_bodies([b"delayed", b"at once"])
    (delayed,) = [message for message in got.messages if message.body == b"delayed"]
    assert delayed.topic == topic
    # Levels are looked through ten times a second.
    assert (delayed.stored_at - delayed.born_at).total_seconds() > LEVEL_2_SECONDS - 0.1


def test_delivery_time_delays_at_rocketd(world: World) -> None:
    topic, got = world.topic(), Got()
    with world.producer() as producer, world.consumer(world.group(), topic, got):
        # Apache's of this version knows no such properties.
        delay = timedelta(seconds=1) if world.kind == ROCKETD else timedelta(hours=1)
        moment = datetime.now(UTC) + 1.5 * delay
        producer.send(Message(topic, b"at a moment", deliver_at=moment))
        producer.send(Message(topic, b"after a while", deliver_after=delay))
        producer.send(Message(topic, b"at once"))
        got.wait_bodies([b"at a moment", b"after a while", b"at once"])
    arrived = {message.body: message for message in got.messages}
    after, at = arrived[b"after a while"], arrived[b"at a moment"]
    if world.kind == ROCKETD:
        assert after.stored_at - after.born_at >= 0.9 * delay
        assert at.stored_at >= moment - 0.1 * delay
    else:
        assert after.stored_at - after.born_at < 0.9 * delay
        assert at.stored_at < moment


def test_namespaces_keep_tenants_apart(world: World) -> None:
    topic, group = fresh("Topic"), world.group()
    tenants = {name: ClientConfig(namesrv=world.servers.namesrv, namespace=name) for name in ("one", "two")}
    got = {name: Got(lambda message: Retry(1) if not message.reconsume_times else None) for name in tenants}
    for name in tenants:
        world.servers.create_topic(f"{name}%{topic}")
    with ExitStack() as stack:
        consumers = {
            name: stack.enter_context(world.consumer(group, topic, got[name], config))
            for name, config in tenants.items()
        }
        for name, config in tenants.items():
            producer = stack.enter_context(world.producer("P", config))
            queues = producer.publish_queues(topic)
            assert {queue.topic for queue in queues} == {topic}
            for queue in queues:
                sent = producer.send(Message(topic, name.encode()), queue=queue)
                assert sent.queue == queue
        for name, consumer in consumers.items():
            got[name].wait("all come twice", lambda name=name: len(got[name].messages) >= 8)
            assert [queue.topic for queue in consumer.queues()] == [topic] * 4
    for name in tenants:
        assert {(message.topic, message.body) for message in got[name].messages} == {(topic, name.encode())}
        assert Counter(message.reconsume_times for message in got[name].messages) == {0: 4, 1: 4}


# ---------------------------------------------------------------- connections


@implementer(IRPCHook)
class Witness:
    """Records the address of each request."""

    def __init__(self) -> None:
        self.asked: set[tuple[str, int]] = set()

    def before_request(self, address: str, request: Any) -> None:
        self.asked.add((address, request.code))

    def after_response(self, address: str, request: Any, response: Any) -> None:
        pass


def test_second_port_takes_all_requests_except_pulls(world: World) -> None:
    topic, got, witness = world.topic(), Got(), Witness()
    config = ClientConfig(namesrv=world.servers.namesrv, vip_channel=True, hooks=[witness])
    with world.producer(cluster=config) as producer, world.consumer(world.group(), topic, got, config):
        producer.send(Message(topic, b"one"))
        got.wait_bodies([b"one"])
    first = world.servers.broker
    host, port = first.split(":")
    second = f"{host}:{int(port) - 2}"
    codes = {at: {RequestCode(code) for address, code in witness.asked if address == at} for at in (first, second)}
    assert RequestCode.PULL_MESSAGE in codes[first]
    assert codes[first] <= {RequestCode.PULL_MESSAGE, RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT}
    assert codes[second] >= {
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
    }


# ---------------------------------------------------------------- mistakes


class AddressPage:
    """An HTTP server of one page, with ``text`` on it."""

    def __init__(self, text: str) -> None:
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(page.text.encode())

            def log_message(self, *_: object) -> None:
                pass

        self.text = text
        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/rocketmq/nsaddr"
        self._thread = Thread(target=self._server.serve_forever)

    def __enter__(self) -> "AddressPage":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def test_no_name_server(world: World) -> None:
    for config, text in ((ClientConfig(namesrv="127.0.0.1:1"), "127.0.0.1:1"),):
        with world.producer(cluster=config) as producer, pytest.raises(NoNameServerError, match=text) as caught:
            producer.send(Message("Topic", b"x"))
        assert caught.value.retriable
        consumer = world.consumer(world.group(), "Topic", Got(), config, missing="raise")
        with pytest.raises(NoNameServerError, match=text):
            consumer.open()


def test_name_server_is_read_from_environment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", world.servers.namesrv)
    with world.producer(cluster=ClientConfig()) as producer:
        assert producer.send(Message(world.topic(), b"x")).status == 0


def test_name_servers_are_read_from_page(world: World) -> None:
    """And its list stays while the page is away."""
    topic, got = world.topic(), Got()
    with AddressPage("nonsense") as page:
        config = ClientConfig(name_server_url=page.url)
        with world.producer(cluster=config) as producer:
            with pytest.raises(NoNameServerError, match="list addresses of name servers: 'nonsense'"):
                producer.send(Message(topic, b"too early"))
            page.text = f"{world.servers.namesrv};\nmore"
            producer.send(Message(topic, b"one"))
            page.stop()
            with world.consumer(world.group(), topic, got, config):
                producer.send(Message(topic, b"two"))
                got.wait_bodies([b"one", b"two"])
    assert sorted(got.bodies) == [b"one", b"two"]


def test_illegal_names_are_refused(world: World) -> None:
    with pytest.raises(IllegalGroupError):
        world.producer("a b")
    with pytest.raises(IllegalTopicError):
        world.consumer("G", "a b", Got())
    with world.producer() as producer:
        for topic in ("", "a b", "SCHEDULE_TOPIC_XXXX", "x" * 256):
            with pytest.raises(IllegalTopicError):
                producer.send(Message(topic, b"x"))


def test_missing_topic_raises_for_consumer_and_is_created_by_send(world: World) -> None:
    consumer = world.consumer(world.group(), fresh("Nowhere"), Got(), missing="raise")
    with pytest.raises(TopicNotFoundError):
        consumer.open()
    with world.producer() as producer:  # which brokers make when the first message comes
        topic = fresh("Made")
        assert producer.send(Message(topic, b"x")).queue.topic == topic


def test_body_too_large_is_refused(world: World) -> None:
    topic = world.topic()
    body = os.urandom(5 << 20)
    with world.producer() as producer, pytest.raises(MessageTooLargeError):
        producer.send(Message(topic, body))
    with world.producer(max_message_size=8 << 20) as producer:
        with pytest.raises(BrokerError) as caught:
            producer.send(Message(topic, body))
        assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL
        assert not caught.value.retriable
        assert producer.send(Message(topic, b"a small one")).status == 0


def test_second_member_of_named_instance_is_refused(world: World) -> None:
    topic, group = world.topic(), world.group()
    config = ClientConfig(namesrv=world.servers.namesrv, instance_name=fresh("instance"))
    with world.producer(group, config) as producer, world.consumer(group, topic, Got(), config):
        with pytest.raises(GroupInUseError):
            world.producer(group, config).open()
        with pytest.raises(GroupInUseError):
            world.consumer(group, topic, Got(), config).open()
        with pytest.raises(IllegalOptionError):
            world.producer(group, replace(config, timeout=1.0)).open()
        assert producer.send(Message(topic, b"the first goes on")).status == 0
    with world.producer(group, config) as producer:
        assert producer.send(Message(topic, b"and then another may come")).status == 0


# ---------------------------------------------------------------- a process with nothing but a producer


def of_its_own(world: World) -> ClientConfig:
    """Return a config for an instance of which no other member makes itself known to brokers."""
    return ClientConfig(namesrv=world.servers.namesrv, instance_name=fresh("alone"))


def test_producer_with_earlier_sends_gets_replies(world: World) -> None:
    topic = world.topic()
    with world.producer() as answering, world.producer(cluster=of_its_own(world)) as producer:
        got = Got(lambda message: answering.reply(message, b"re: " + message.body) and None)
        with world.consumer(world.group(), {topic: "Request"}, got):
            producer.send(Message(topic, b"before", tags="Other"))
            assert producer.request(Message(topic, b"one", tags="Request")).body == b"re: one"
            assert producer.request(Message(topic, b"two", tags="Request")).body == b"re: two"


def test_a_producer_alone_is_asked_about_its_transactions(world: World) -> None:
    topic, got, listener = world.topic(), Got(), Listener()
    with (
        world.consumer(world.group(), topic, got),
        world.producer(cluster=of_its_own(world), transactions=listener) as producer,
    ):
        producer.send_in_transaction(Message(topic, b"unknown, committed"))
        listener.checked.wait_bodies([b"unknown, committed"])
        got.wait_bodies([b"unknown, committed"])
