"""Socket options from settings, on connections accepted by a daemon and made by a broker."""

import socket
import sys

import pytest
import pytest_twisted

from tests.servers.brokers import make_a_broker, make_name_server
from tests.servers.wire_client import connect, eventually, running

SIZES_OF_SERVER = {"serverSocketSndBufSize": "50000", "serverSocketRcvBufSize": "60000"}
SIZES = {
    **SIZES_OF_SERVER,
    "clientSocketSndBufSize": "70000",
    "clientSocketRcvBufSize": "80000",
}


def sizes_of(connection):
    opened = connection.transport.socket
    return [opened.getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)]


@pytest.mark.parametrize("tls", ["disabled", "enforcing"])
@pytest_twisted.ensureDeferred
async def test_sockets_have_the_sizes_of_the_settings(tmp_path, tls):
    factor = 2 if sys.platform == "linux" else 1  # Linux doubles them, for its own bookkeeping
    async with running(make_name_server(tmp_path, **{"tls.server.mode": tls}, **SIZES_OF_SERVER)) as name_server:
        address = f"127.0.0.1:{name_server.port}"
        options = {"namesrvAddr": address, "useTLS": "true" if tls == "enforcing" else "false", **SIZES}
        async with running(make_a_broker(tmp_path, **options)) as broker:
            client = await connect(broker.port)
            await eventually(lambda: broker.server.connections)
            (accepted,) = broker.server.connections
            assert sizes_of(accepted) == [50000 * factor, 60000 * factor]
            await eventually(lambda: broker.client.channels.get(address) is not None)
            (registered,) = name_server.server.connections
            assert sizes_of(registered) == [50000 * factor, 60000 * factor]
            assert sizes_of(broker.client.channels.get(address)) == [70000 * factor, 80000 * factor]
            client.transport.loseConnection()


@pytest_twisted.ensureDeferred
async def test_socket_sizes_are_the_systems_by_default(tmp_path):
    async with running(make_a_broker(tmp_path)) as broker:
        client = await connect(broker.port)
        await eventually(lambda: broker.server.connections)
        (accepted,) = broker.server.connections
        # The other side of this connection has a socket with default options.
        assert sizes_of(accepted)[0] >= sizes_of(client)[0]
        client.transport.loseConnection()


@pytest.mark.parametrize("tls", ["disabled", "enforcing"])
@pytest_twisted.ensureDeferred
async def test_sockets_of_both_sides_delay_no_small_frame_and_send_no_keepalive(tmp_path, tls):
    async with running(make_name_server(tmp_path, **{"tls.server.mode": tls})) as name_server:
        address = f"127.0.0.1:{name_server.port}"
        options = {"namesrvAddr": address, "useTLS": "true" if tls == "enforcing" else "false"}
        async with running(make_a_broker(tmp_path, **options)) as broker:
            await eventually(lambda: broker.client.channels.get(address) is not None)
            (accepted,) = name_server.server.connections
            # A server takes a connection up if its first byte, plain or TLS, has come.
            await eventually(lambda: accepted.has_asked)
            for connection in (accepted, broker.client.channels.get(address)):
                opened = connection.transport.socket
                assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                assert not opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
