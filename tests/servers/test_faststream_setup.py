"""FastStream's broker before it runs: its options, mistakes, document and log; and the programs of its guide."""

import asyncio
import logging
import os
import re
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import pytest
from faststream import FastStream
from faststream.exceptions import IncorrectState, SetupError
from faststream.security import BaseSecurity, SASLPlaintext, SASLScram256
from faststream.specification import AsyncAPI
from pydantic import BaseModel

from rocketd.client.consumer.options.kind_options import ConsumerOptions
from rocketd.client.errors import IllegalGroupError, IllegalOptionError, IllegalTopicError, TopicNotFoundError
from rocketd.client.producer.options import ProducerOptions
from rocketd.faststream import (
    RocketBroker,
    RocketResponse,
    RocketRouter,
    annotations,
)
from rocketd.faststream.base.message import RocketMessage as PlainRocketMessage
from rocketd.faststream.base.options import ConsumeOptions, ProduceOptions
from tests.servers.faststream_brokers import SECONDS, started
from tests.support.complaints import complaints
from tests.support.places import ROOT
from tests.support.server_processes import SOURCES, ServerProcesses

GUIDE = ROOT / "docs" / "howto" / "faststream.md"


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    servers = ServerProcesses(tmp_path_factory.mktemp("servers"))
    try:
        servers.start_namesrv()
        servers.start_broker()
        yield servers
    finally:
        servers.kill_all()


@pytest.fixture
def name():
    """A word for topics and groups that no other test has."""
    return f"fs{uuid.uuid4().hex[:10]}"


@pytest.fixture
def broker(servers, name):
    return RocketBroker(servers.namesrv_address, group=name, create_topics=True, logger=None)


class Order(BaseModel):
    number: int


def test_annotations(broker, name):
    got = asyncio.Queue()

    @broker.subscriber(name)
    async def handle(n: int, its_broker: annotations.RocketBroker, producer: annotations.RocketProducer):
        await got.put((its_broker is broker, producer.producer is await broker.connect()))

    async def main():
        async with started(broker):
            await broker.publish(1, name)
            assert await got.get() == (True, True)
            # The class itself is not one of FastStream's: its error names the class to use instead.
            wrong = broker.subscriber(f"{name}b")

            @wrong
            async def mistaken(n: int, message: PlainRocketMessage):
                pass

            with pytest.raises(SetupError, match=r"rocketd\.faststream"):
                await wrong.start()

    asyncio.run(main())


# ------------------------------------------------------------ the document, mistakes


def test_document(name):
    broker = RocketBroker(
        "one.example:9876;two.example:9876", group="docs", security=SASLPlaintext("access", "secret", use_ssl=True)
    )
    router = RocketRouter(prefix="shop_")

    @router.subscriber("orders", "returns")
    @router.publisher("bills", title="Bills")
    async def bill(order: Order) -> Order:
        """Write a bill."""
        return order

    broker.include_router(router)
    document = FastStream(broker, specification=AsyncAPI(title="shop")).schema.to_specification().to_jsonable()
    assert {server["host"] for server in document["servers"].values()} == {"one.example:9876", "two.example:9876"}
    assert {server["protocol"] for server in document["servers"].values()} == {"rocketmq-secure"}
    assert document["components"]["securitySchemes"]["account"]["type"] == "userPassword"
    assert {channel["address"] for channel in document["channels"].values()} == {
        "shop_orders",
        "shop_returns",
        "shop_bills",
    }
    assert "Write a bill." in {channel.get("description") for channel in document["channels"].values()}
    assert document["components"]["schemas"]["Order"]["required"] == ["number"]
    assert "secret" not in str(document).replace("secret key", "")


def test_mistakes(name):
    broker = RocketBroker("127.0.0.1:1", logger=None)
    for error, call in (
        (IllegalGroupError, lambda: RocketBroker(group="two words")),
        (IllegalOptionError, lambda: RocketBroker(send_timeout=-1)),
        (TypeError, lambda: RocketBroker(sent_timeout=1)),
        (SetupError, lambda: RocketBroker(security=SASLScram256("user", "password"))),
        (SetupError, lambda: broker.subscriber()),
        (SetupError, lambda: broker.subscriber("t", tags="a", sql="b = 1")),
        (SetupError, lambda: broker.subscriber("t", max_records=5)),
        (TypeError, lambda: broker.subscriber("t", grup="g")),
        (TypeError, lambda: broker.publisher("t", tagz="a")),
        (TypeError, lambda: RocketResponse("body", tagz="a")),
        (TypeError, lambda: asyncio.run(broker.publish("body", "t", tagz="a"))),
        (IncorrectState, lambda: asyncio.run(broker.publish("body", "t"))),
        (IllegalOptionError, lambda: broker.subscriber("t", begin="first")),
        (IllegalTopicError, lambda: broker.subscriber("two words")),
        (IllegalTopicError, lambda: broker.publisher("two words")),
        (IllegalGroupError, lambda: broker.subscriber("t", group="two words")),
    ):
        with pytest.raises(error):
            call()
    assert broker.subscribers == []


def test_other_words_are_answered_with_the_one_of_the_option(name):
    broker = RocketBroker("127.0.0.1:1", logger=None)
    for word, call in (
        ("begin=", lambda: broker.subscriber("t", start="earliest")),
        ("begin=, group=", lambda: broker.subscriber("t", auto_offset_reset="earliest", group_id="g")),
        ("tags=", lambda: broker.subscriber("t", tag="a")),
        ("tags=", lambda: broker.publisher("t", tag="a")),
        ("headers=", lambda: broker.publisher("t", properties={"a": "b"})),
        ("headers=", lambda: RocketResponse("body", properties={"a": "b"})),
        ("headers=", lambda: asyncio.run(broker.publish("body", "t", properties={"a": "b"}))),
        ("concurrency=", lambda: broker.subscriber("t", workers=4)),
        ("broadcast=", lambda: broker.subscriber("t", message_model="BROADCASTING")),
        ("deliver_after=", lambda: RocketResponse("body", delay=3)),
        ("deliver_after=, tags=", lambda: asyncio.run(broker.publish("body", "t", tag="a", delay=3))),
    ):
        with pytest.raises(TypeError, match=f"; use {word}$"):
            call()
    with pytest.raises(TypeError, match=r"; did you mean group\?$"):
        broker.subscriber("t", grup="g")


def test_options_of_other_brokers_are_answered_with_the_right_one():
    for option, answer in (
        ("bootstrap_servers", "use cluster="),
        ("namesrv", "use cluster="),
        ("group_id", "use group="),
        ("secret_key", r"use ClientConfig\(credentials="),
        ("max_retries", "use retries="),
        ("linger_ms", "use linger="),
    ):
        with pytest.raises(TypeError, match=f"^RocketBroker has no option '{option}': {answer}"):
            RocketBroker(logger=None, **{option: "x"})
    with pytest.raises(TypeError, match=r"^RocketBroker has no option 'gruop'; did you mean group\?$"):
        RocketBroker(logger=None, gruop="g")
    with pytest.raises(TypeError, match=r"^RocketBroker has no option 'foo'$"):
        RocketBroker(logger=None, foo=1)


def test_mistakes_found_at_the_start_raise(broker, servers, name):
    async def fails(error, text, *brokers):
        with pytest.raises(error, match=text):
            async with started(*brokers):
                pass

    def another(group=None):
        return RocketBroker(servers.namesrv_address, group=group, logger=None)

    async def main():
        missing = another(name)
        missing.subscriber(name, missing="raise")
        await fails(TopicNotFoundError, name, missing)
        await missing.stop()

        without_group = another()
        without_group.subscriber(name)
        await fails(SetupError, "group=", without_group)
        await without_group.stop()

        differing = another(name)
        differing.subscriber(f"{name}a", order="queue")
        differing.subscriber(f"{name}b")
        await fails(SetupError, "order", differing)
        await differing.stop()

        twice = another(name)
        twice.subscriber(name)
        twice.subscriber(name)
        await fails(SetupError, "two subscribers", twice)
        await twice.stop()

    asyncio.run(main())


def test_ping(broker):
    async def main():
        unreachable = RocketBroker("127.0.0.1:1", logger=None)
        assert not await unreachable.ping(0.1)
        async with unreachable:
            assert not await unreachable.ping(0.3)
        async with broker:
            assert await broker.ping(SECONDS)
            assert await broker.ping()

    asyncio.run(main())


def test_options_are_the_clients():
    def names(options):
        return {field.name for field in fields(options)}

    assert set(ProduceOptions.__annotations__) == names(ProducerOptions) - {"transaction_threads", "direct"}
    assert set(ConsumeOptions.__annotations__) == names(ConsumerOptions) - {"batch", "grace", "on_error"}


def test_security_objects():
    config = RocketBroker("h:1", security=BaseSecurity(use_ssl=True)).config.client_options["cluster"]
    assert (config.tls, config.credentials) == (True, None)
    config = RocketBroker("h:1", security=SASLPlaintext("access", "secret")).config.client_options["cluster"]
    assert (config.tls, config.credentials.access_key) == (False, "access")


def test_access_log(servers, name, caplog):
    logger = logging.getLogger(name)
    broker = RocketBroker(servers.namesrv_address, group=name, create_topics=True, logger=logger)
    done = asyncio.Event()

    @broker.subscriber(name)
    async def handle(n: int):
        done.set()
        raise ValueError("no such order")

    async def main():
        async with started(broker):
            await broker.publish(1, name, keys=["A7", "B"])
            await done.wait()

    with caplog.at_level(logging.INFO, logger=name):
        asyncio.run(main())
    [received] = [record for record in caplog.records if record.message == "Received"]
    assert (received.topic, received.group, len(received.message_id)) == (name, name, 32)
    [failed] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert (failed.message, failed.message_id) == ("ValueError: no such order", received.message_id)
    assert (failed.keys, failed.attempt) == ("A7 B", "1")


def test_without_faststream():
    program = "import sys; sys.modules['faststream'] = None; import rocketd.faststream"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ended.stderr.splitlines()[-1] == (
        "ImportError: rocketd.faststream needs FastStream: pip install 'rocketd[faststream]'"
    )


# ------------------------------------------------------------ the guide


def guide_programs():
    """Return the programs of the guide, each with its output, by their headings."""
    parts = r"^## (?P<heading>[^\n]*)$|^```python\n(?P<program>.*?)^```\n\n```text\n(?P<output>.*?)^```$"
    found, heading = {}, ""
    for match in re.finditer(parts, GUIDE.read_text(), re.MULTILINE | re.DOTALL):
        heading = match["heading"] or heading
        if match["program"]:
            assert heading not in found, "two programs below one heading"
            found[heading] = match["program"], match["output"]
    return found


@pytest.fixture(scope="module")
def runs(servers, tmp_path_factory):
    """All programs of the guide, two at once."""

    def run(program):
        path = tmp_path_factory.mktemp("program") / "shop.py"  # FastStream reads the source of tests
        path.write_text(program)
        return subprocess.run(
            [sys.executable, "-W", "error", str(path)],
            env={**os.environ, "PYTHONPATH": SOURCES, "NAMESRV_ADDR": servers.namesrv_address},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * SECONDS,
            check=False,
        )

    with ThreadPoolExecutor(2) as pool:
        yield {heading: pool.submit(run, program) for heading, (program, _) in guide_programs().items()}


@pytest.mark.parametrize("heading", guide_programs())
def test_program_of_the_guide(runs, heading):
    _, output = guide_programs()[heading]
    ended = runs[heading].result()
    assert (ended.stdout, ended.returncode, complaints(ended.stderr)) == (output, 0, [])


def test_every_program_of_guide_is_run():
    assert GUIDE.read_text().count("```python") == len(guide_programs())
