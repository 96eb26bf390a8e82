"""TestRocketBroker: FastStream applications under test, on a cluster in the process."""

import asyncio
from datetime import timedelta

import pytest
from faststream import AckPolicy, FastStream, TestApp
from faststream.asgi import AsgiFastStream, make_ping_asgi
from faststream.asgi.factories.asyncapi.try_it_out import TryItOutProcessor
from faststream.exceptions import NackMessage, SetupError, SubscriberNotFound
from faststream.security import SASLPlaintext
from pydantic import BaseModel, ValidationError

from rocketd.client import ClientConfig, aio
from rocketd.client.errors import BrokerError
from rocketd.faststream import RocketBroker, RocketMessage, RocketResponse, TestRocketBroker
from rocketd.testing import AccountConfig, Cluster
from tests.servers.faststream_brokers import started
from tests.support.server_processes import ServerProcesses

SECONDS = 60.0


class Order(BaseModel):
    number: int


@pytest.fixture
def broker():
    return RocketBroker("name.of.no.machine.example:9876", group="testing", logger=None)


@pytest.fixture(scope="module")
def cluster():
    with Cluster(broker={"enablePropertyFilter": True}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    servers = ServerProcesses(tmp_path_factory.mktemp("servers"))
    try:
        servers.start_namesrv()
        servers.start_broker()
        yield servers
    finally:
        servers.kill_all()


def run(main):
    asyncio.run(asyncio.wait_for(main(), SECONDS))


def test_publish_waits_for_handlers_and_their_messages(broker):
    @broker.subscriber("orders")
    @broker.publisher("bills", tags="t")
    async def bill(order: Order):
        await asyncio.sleep(0.05)
        return order.number * 2

    @broker.subscriber("bills")
    async def send(total: int):
        await broker.publish({"total": total}, "post", headers={"h": 1})

    post = broker.publisher("post")

    async def main():
        async with TestRocketBroker(broker) as test:
            assert test is broker
            await test.publish(Order(number=3), "orders", correlation_id="c")
            bill.mock.assert_called_once_with({"number": 3})
            send.mock.assert_called_once_with(6)
            post.mock.assert_called_once_with({"total": 6})
            await bill.assert_called_once_with(Order(number=3), correlation_id="c")
            await post.assert_called_once_with({"total": 6}, headers={"h": "1"})
            await test.publish_batch(Order(number=1), Order(number=2), topic="orders")
            assert sorted(call.args[0] for call in send.mock.call_args_list) == [2, 4, 6]
            assert await test.ping()
        with pytest.raises(SetupError):
            bill.mock.assert_not_called()
        assert not await broker.ping(0.1)

    run(main)


def test_errors_of_handlers_are_raised_by_publish(broker, cluster):
    @broker.subscriber("checked", ack_policy=AckPolicy.ACK)
    async def check(order: Order):
        if order.number < 0:
            raise ArithmeticError(order.number)
        if order.number == 0:
            await broker.publish(Order(number=-1), "checked")

    @broker.subscriber("asked", ack_policy=AckPolicy.ACK)
    async def answer(order: Order):
        return order.number + 1

    async def main():
        async with TestRocketBroker(broker, cluster=cluster):
            for number in (-5, 0):
                with pytest.raises(ArithmeticError):
                    await broker.publish({"number": number}, "checked")
            with pytest.raises(ValidationError):
                await broker.publish("no order", "checked")
            await broker.publish({"number": 1}, "checked")
            assert await (await broker.request({"number": 1}, "asked", timeout=20)).decode() == 2
            with pytest.raises(ValidationError):
                await broker.request("no order", "asked", timeout=20)
            with pytest.raises(SubscriberNotFound):
                await broker.request("is there anybody", "nowhere")

    run(main)


def test_retries_and_delays_pass_at_once(broker, cluster):
    seen = []

    @broker.subscriber("retried", max_reconsume_times=3)
    async def fail(text: str, message: RocketMessage):
        seen.append((text, message.reconsume_times, message.raw_message.store_timestamp))
        if text == "nacked" and message.reconsume_times == 0:
            raise NackMessage(delay=timedelta(minutes=5))
        if text == "failing":
            raise ArithmeticError

    @broker.subscriber("ordered", order="queue", group="testing_ordered")
    async def ordered(text: str, message: RocketMessage):
        if message.reconsume_times < 2:
            raise NackMessage(delay=100)

    @broker.subscriber("keyed", order="key", group="testing_keyed")
    async def keyed(text: str, message: RocketMessage):
        if message.reconsume_times < 3:
            raise NackMessage

    async def main():
        test = TestRocketBroker(broker, cluster=cluster)
        with pytest.raises(SetupError):
            test.cluster.now()
        async with test:
            began = test.cluster.now()
            await broker.publish("in two minutes", "retried", deliver_after=120)
            await broker.publish("at level 5", "retried", delay_level=5)
            await broker.publish("at a moment", "retried", deliver_at=began + timedelta(minutes=4))
            await broker.publish("nacked", "retried")
            assert [text for text, *_ in seen] == ["nacked"]
            await test.advance(minutes=1.5)
            assert [text for text, *_ in seen] == ["nacked", "at level 5"]
            await test.advance(timedelta(minutes=1))
            assert [text for text, *_ in seen][2:] == ["in two minutes"]
            await test.advance(180)
            assert [text for text, *_ in seen][3:] == ["at a moment", "nacked"]
            assert 300 <= (seen[4][2] - seen[0][2]) / 1000 < 330
            with pytest.raises(ArithmeticError):
                await broker.publish("failing", "retried")
            with pytest.raises(ArithmeticError):
                await test.advance(minutes=2)
            assert [times for text, times, _ in seen if text == "failing"] == [0, 1, 2, 3]
            dead = cluster.messages("%DLQ%testing")
            assert [message.body for message in dead] == [b"failing"]
            await broker.publish("x", "ordered")
            await test.advance(minutes=4)
            assert ordered.mock.call_count == 3
            await broker.publish("x", "keyed", keys=["A17"])
            await test.advance(seconds=8)  # its pauses are 1, 2 and 4 s
            assert keyed.mock.call_count == 4

    run(main)


def test_publish_waits_only_for_matching_subscribers(broker, cluster):
    @broker.subscriber("filtered", tags="a", group="testing_tags")
    async def tagged(n: int):
        pass

    @broker.subscriber("filtered", sql="weight > 3", group="testing_sql")
    async def selected(n: int):
        pass

    without_handler = broker.subscriber("filtered", group="testing_none")

    async def main():
        async with TestRocketBroker(broker, cluster=cluster):
            await broker.publish(1, "filtered", tags="a", headers={"weight": 1})
            await broker.publish(2, "filtered", tags="b", headers={"weight": 4})
            await broker.publish(3, "filtered")
            tagged.mock.assert_called_once_with(1)
            selected.mock.assert_called_once_with(2)
            assert {await (await without_handler.get_one()).decode() for _ in range(3)} == {1, 2, 3}

    run(main)


def test_endless_handler_is_named(broker, cluster):
    @broker.subscriber("endless")
    async def endless(n: int):
        await asyncio.sleep(1)

    async def main():
        async with TestRocketBroker(broker, cluster=cluster, patience=0.2):
            with pytest.raises(
                AssertionError, match=r"not handled within 0.2 s: \w+ of topic endless by group testing"
            ):
                await broker.publish(1, "endless")

    run(main)


def test_unacknowledged_message_is_named_without_further_wait(broker, cluster):
    @broker.subscriber("words", ack_policy=AckPolicy.MANUAL)
    async def handle(word: str, message: RocketMessage):
        if word == "ack":
            await message.ack()

    async def main():
        async with TestRocketBroker(broker, cluster=cluster, patience=3) as test:
            await test.publish("ack", "words")
            with pytest.raises(AssertionError, match=r"^not acknowledged within 3 s.*MANUAL: \w+ of topic words by"):
                await test.publish("nothing", "words")
            left = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - left < 10  # stopping waits 15 s for handlers

    run(main)


def test_handler_with_cancelled_work_has_failed(broker, cluster):
    @broker.subscriber("cancelled", ack_policy=AckPolicy.NACK_ON_ERROR)
    async def handle(word: str, message: RocketMessage):
        if not message.raw_message.reconsume_times:
            work = asyncio.create_task(asyncio.sleep(SECONDS))
            work.cancel()
            await work

    async def main():
        testing = TestRocketBroker(broker, cluster=cluster)
        async with testing:
            with pytest.raises(asyncio.CancelledError):
                await broker.publish("once", "cancelled")
            await testing.advance(minutes=1)
            assert handle.mock.call_count == 2

    run(main)


def test_several_brokers_in_namespaces_and_an_application(cluster):
    one, two = (
        RocketBroker(ClientConfig(namesrv="h:1", namespace=namespace), group="testing", logger=None)
        for namespace in ("", "tenant")
    )
    got = []

    @one.subscriber("shared")
    async def first(text: str):
        got.append(text)

    @two.subscriber("shared")
    @two.publisher("more", batch=True)
    async def second(text: str):
        got.append(text)
        return [RocketResponse(letter, keys=letter) for letter in text]

    more = two.publisher("more", batch=True)

    app = FastStream(two)

    async def main():
        async with TestRocketBroker(one, cluster=cluster) as br:
            await br.publish("to one", "shared")
        async with TestRocketBroker(two, cluster=cluster) as br, TestApp(app):
            await br.publish("two", "shared")
            [call] = more.mock.call_args_list
            assert call.args[0] == ["t", "w", "o"]
        async with TestRocketBroker(one, two, cluster=cluster) as (first_of_two, _):
            assert first_of_two is one

    run(main)
    assert got == ["to one", "two"]


def test_on_the_real_cluster(servers):
    broker = RocketBroker(servers.namesrv_address, group="really", create_topics=True, logger=None)
    out = broker.publisher("really_out")

    @broker.subscriber("really")
    @out
    async def handle(n: int):
        return n + 1

    async def main():
        async with TestRocketBroker(broker, with_real=True) as br:
            await br.publish(1, "really")
            await handle.wait_call(SECONDS)
            handle.mock.assert_called_once_with(1)
            while not out.mock.called:
                await asyncio.sleep(0.02)
            out.mock.assert_called_once_with(2)
        async with aio.Consumer("reader", servers.namesrv_address, topics="really_out", begin="earliest") as consumer:
            assert (await anext(consumer)).body == b"2"

    run(main)


def test_running_broker_is_left_alone(servers):
    """The page of an AsyncAPI document offers to try handlers out on a test broker."""
    broker = RocketBroker(servers.namesrv_address, group="running", create_topics=True, logger=None)
    handled = asyncio.Event()

    @broker.subscriber("running")
    async def handle(n: int):
        handled.set()

    def form(real):
        return {"channelName": "running:Handle", "message": {"message": 1}, "options": {"sendToRealBroker": real}}

    async def main():
        app = AsgiFastStream(
            broker, asyncapi_path="/docs", asgi_routes=[("/health", make_ping_asgi(broker, timeout=5))]
        )
        assert {path for path, _ in app.routes} >= {"/docs", "/docs/try", "/health"}
        processor = TryItOutProcessor(broker)
        await broker.start()
        try:
            refused = await processor.process(form(real=False))
            assert (refused.status_code, b"runs already" in refused.body) == (500, True)
            assert (await processor.process(form(real=True))).status_code == 200
            await handled.wait()
        finally:
            await broker.stop()

    run(main)


def test_cluster_with_brokers_tls_and_accounts():
    account = AccountConfig("shopkeeper", "shopSecret", topic_perms=["guarded=PUB|SUB"], group_perms=["testing=SUB"])
    security = SASLPlaintext(account.access_key, account.secret_key)
    broker = RocketBroker("name.of.no.machine.example:9876", group="testing", logger=None, security=security)

    @broker.subscriber("guarded")
    async def handle(n: int):
        pass

    async def main():
        with Cluster(topics=["guarded", "closed"], brokers=2, tls=True, accounts=[account]) as cluster:
            async with TestRocketBroker(broker, cluster=cluster):
                for number in range(4):
                    await broker.publish(number, "guarded")
                assert handle.mock.call_count == 4
                with pytest.raises(BrokerError, match="topic:closed"):
                    await broker.publish(1, "closed")

    run(main)


def test_missing_topic_is_created_while_a_broker_has_no_master():
    async def main():
        with Cluster(brokers=2, slaves=1) as cluster:
            cluster.brokers["broker-b"].kill()
            cluster.settle()
            config = cluster.client_options()["cluster"]
            broker = RocketBroker(config, group="lone", create_topics=True, logger=None)
            got = asyncio.Queue()
            broker.subscriber("lone")(got.put)
            async with started(broker):
                await broker.publish("hello", "lone")
                assert await got.get() == "hello"

    run(main)
