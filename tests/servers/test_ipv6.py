"""A cluster that is reached over IPv6: name server, broker and client, and both families side by side."""

import socket

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from rocketd.client.consumer.options.kind_options import ConsumerOptions
from rocketd.client.consumer.push_consumer import PushConsumerEngine
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.message import Message
from rocketd.client.producer.producer import ProducerEngine
from rocketd.client.settings.config import ClientConfig
from tests.servers.in_process import broker_in, namesrv_in
from tests.servers.wire_client import eventually, running


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this machine")


@pytest.mark.parametrize("host", ["[::1]", "127.0.0.1"])
@pytest_twisted.ensureDeferred
async def test_messages_are_exchanged_over_ipv4_and_ipv6(host, tmp_path):
    async with running(namesrv_in(tmp_path)) as namesrv:
        address = f"{host}:{namesrv.port}"
        options = {"brokerIP1": host.strip("[]"), "brokerIP2": host.strip("[]")}
        async with (
            running(broker_in(tmp_path, address, **options)) as broker,
            running(ClientInstance(reactor, ClientConfig(namesrv=address))) as client,
        ):
            assert broker.address == f"{host}:{broker.port}"
            await eventually(lambda: namesrv.routes.pick_topic_route("TBW102"))
            producer = ProducerEngine(client, "P")
            await producer.start()
            sent = await producer.send(Message("T", b"hello"))
            got = Deferred()

            async def listener(message):
                got.callback(message)

            consumer = PushConsumerEngine(client, "G", listener, options=ConsumerOptions(begin="earliest"))
            consumer.subscribe("T")
            await consumer.start()
            message = await got.addTimeout(60, reactor)
            assert (message.body, message.msg_id) == (b"hello", sent.msg_id)
            assert message.born_host.startswith(f"{host}:")
            store_host = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host.strip("[]"))
            assert bytes.fromhex(sent.offset_msg_id) == store_host + broker.port.to_bytes(4, "big") + bytes(8)
            (known,) = broker.consumers.find("G").clients()
            assert known.connection.address.startswith(f"{host}:")
            await consumer.stop()
            await producer.stop()
