"""Connections to name servers: a broker keeps one to each of them, a client one to one of them."""

from collections import Counter

import pytest_twisted

from rocketd.client import ClientConfig, Message, Producer
from rocketd.remoting.serving.dispatch import Dispatcher
from tests.servers.brokers import make_a_broker, make_name_server
from tests.servers.wire_client import eventually, running

OFTEN = 5
"""Requests after which a connection counts as one that is kept."""


@pytest_twisted.ensureDeferred
async def test_broker_connects_to_all_name_servers_and_client_to_one(tmp_path, monkeypatch):
    requests = Counter()
    dispatch = Dispatcher.dispatch

    def counting(self, connection, frames):
        requests[connection] += len(frames)
        dispatch(self, connection, frames)

    monkeypatch.setattr(Dispatcher, "dispatch", counting)
    async with (
        running(make_name_server(tmp_path / "one")) as first,
        running(make_name_server(tmp_path / "two")) as second,
        running(make_name_server(tmp_path / "three")) as third,
    ):
        name_servers = (first, second, third)
        address = ";".join(f"127.0.0.1:{each.port}" for each in name_servers)

        def connections():
            return [list(each.server.connections) for each in name_servers]

        async with running(make_a_broker(tmp_path / "broker", namesrvAddr=address)) as broker:
            await broker.when_serving()

            async def registered():
                before = Counter(requests)
                for _ in range(OFTEN):
                    await broker.registration.register(force=True)
                return requests - before

            asked = await registered()
            of_broker = connections()
            assert [len(each) for each in of_broker] == [1, 1, 1]
            assert all(asked[connection] >= OFTEN for (connection,) in of_broker)

            config = ClientConfig(namesrv=address, route_interval=0.05)
            producer = Producer("P", cluster=config)
            await producer.open()
            try:
                await producer.send(Message("T", b"hello"))
                added = [
                    connection
                    for now, before in zip(connections(), of_broker, strict=True)
                    for connection in now
                    if connection not in before
                ]
                assert len(added) == 1
                (of_client,) = added
                asked_before = requests[of_client]
                await eventually(lambda: requests[of_client] >= asked_before + OFTEN)
                await registered()
                together = {connection for each in connections() for connection in each}
                assert together == {connection for (connection,) in of_broker} | {of_client}
            finally:
                await producer.close()
            await eventually(lambda: connections() == of_broker)
