"""Metrics and health of both servers over HTTP."""

import errno
import socket
from http.client import HTTPConnection
from unittest import mock

import pytest
import pytest_twisted
from prometheus_client.parser import text_string_to_metric_families
from twisted.internet.threads import deferToThread

from rocketd.broker.metrics import groups
from rocketd.metrics import endpoint
from rocketd.metrics.endpoint import MAX_CONNECTIONS
from rocketd.remoting.serving.server import ListenError
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from tests.servers.in_process import broker_in, namesrv_in
from tests.servers.wire_client import connect, eventually, running
from tests.support.ports import free_port

NOWHERE = "127.0.0.1:1"
"""An address without a name server."""


def get(port, path, method="GET", body=None):
    """Return status and text of a page. Blocks."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def page(port, path, **request):
    return deferToThread(get, port, path, **request)


async def figures(port):
    """Return the values of the page by name and labels."""
    status, text = await page(port, "/metrics")
    assert status == 200
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def figure(found, name, **labels):
    """Return the only value with a name and some labels."""
    (value,) = [
        value for (own, *pairs), value in found.items() if own == name and labels.items() <= dict(pairs).items()
    ]
    return value


def send(number):
    fields = {
        "a": "P", "b": "T", "c": "TBW102", "d": "2", "e": "0", "f": "0", "g": "1700000000000", "h": "0", "i": "",
        "m": "false",
    }  # fmt: skip
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, b"body %d" % number)


def pull(offset):
    fields = {
        "consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32", "sysFlag": "5",
        "commitOffset": "3", "suspendTimeoutMillis": "0", "subVersion": "1", "subscription": "*",
    }  # fmt: skip
    return RemotingCommand(RequestCode.PULL_MESSAGE, fields)


@pytest_twisted.ensureDeferred
async def test_metrics_of_a_known_load_are_right_to_the_message(tmp_path):
    port = free_port()
    async with running(broker_in(tmp_path, "", metricsPort=str(port))) as broker:
        client = await connect(broker.port)
        for number in range(5):
            assert (await client.ask(send(number))).code == ResponseCode.SUCCESS
        await eventually(lambda: broker.store.get_max_offset("T", 0) == 5)
        # The pull also commits the offset 3.
        await client.ask(pull(0))
        found = await figures(port)
        client.transport.loseConnection()
        names = {
            "rocketd_messages_stored_total": {},
            "rocketd_messages_read_total": {},
            "rocketd_get_seconds_count": {},
            "rocketmq_producer_offset": {"topic": "T"},
            "rocketmq_consumer_offset": {"topic": "T", "group": "G"},
            "rocketmq_group_diff": {"topic": "T", "group": "G", "countOfOnlineConsumers": "0", "msgModel": "1"},
            "rocketmq_brokeruntime_msg_put_total_today_now": {"brokerHost": "broker-a"},
            "rocketd_append_seconds_count": {},
            "rocketd_connections": {},
        }
        assert {name: figure(found, name, **labels) for name, labels in names.items()} == {
            "rocketd_messages_stored_total": 5,
            "rocketd_messages_read_total": 5,
            "rocketd_get_seconds_count": 1,
            "rocketmq_producer_offset": 5,
            "rocketmq_consumer_offset": 3,
            "rocketmq_group_diff": 2,
            "rocketmq_brokeruntime_msg_put_total_today_now": 5,
            "rocketd_append_seconds_count": 5,
            "rocketd_connections": 1,
        }
        assert figure(found, "rocketd_requests_total", pool="send") == 5
        assert figure(found, "rocketd_requests_total", pool="pull") == 1
        assert figure(found, "rocketmq_group_get_latency_by_storetime", topic="T", group="G") > 0


@pytest_twisted.ensureDeferred
async def test_ages_are_looked_up_a_few_at_a_time(tmp_path):
    port = free_port()
    with mock.patch.object(groups, "LOOKUPS", 1), mock.patch.object(endpoint, "FRESH_SECONDS", 0.0):
        async with running(broker_in(tmp_path, "", metricsPort=str(port))) as broker:
            client = await connect(broker.port)
            await client.ask(send(0))
            await eventually(lambda: broker.store.get_max_offset("T", 0) == 1)
            for group in ("G", "H"):
                broker.offsets.commit("h:1", group, "T", 0, 0)
                broker.offsets.commit("h:1", group, "Other", 0, 0)
            lookups = mock.Mock(wraps=broker.store.get_store_time)
            with mock.patch.object(broker.store, "get_store_time", lookups):
                for _ in range(2):
                    found = await figures(port)
                    for group in ("G", "H"):
                        assert figure(found, "rocketmq_group_get_latency_by_storetime", topic="T", group=group) > 0
            # One message waits for both groups, and stays where it is.
            assert lookups.call_count == 1
            client.transport.loseConnection()


@pytest_twisted.ensureDeferred
async def test_broker_without_trouble_is_alive_and_ready(tmp_path):
    port = free_port()
    async with running(broker_in(tmp_path, "", metricsPort=str(port))):
        assert await page(port, "/healthz") == (200, "ok\n")
        assert await page(port, "/readyz") == (200, "ok\n")


@pytest.mark.long
@pytest_twisted.ensureDeferred
async def test_broker_that_cannot_flush_is_neither_alive_nor_ready(tmp_path):
    port = free_port()
    broker = broker_in(tmp_path, "", metricsPort=str(port))
    async with running(broker):
        client = await connect(broker.port)
        fault = mock.patch.object(broker.file_system, "fdatasync", side_effect=OSError(errno.EIO, "I/O error"))
        with fault:
            await client.ask(send(0))
            await eventually(lambda: broker.store.flush_failed)
        status, text = await page(port, "/healthz")
        assert (status, text.count("\n")) == (503, 1)
        assert "a flush has failed" in text
        status, text = await page(port, "/readyz")
        assert status == 503
        assert "messages are refused" in text
        client.transport.loseConnection()


@pytest_twisted.ensureDeferred
async def test_broker_without_a_reachable_name_server_is_alive_but_not_ready(tmp_path):
    port = free_port()
    broker = broker_in(tmp_path, NOWHERE, metricsPort=str(port))
    async with running(broker):
        await broker.when_serving()
        await eventually(lambda: broker.registration.reaches_nobody)
        assert (await page(port, "/healthz"))[0] == 200
        status, text = await page(port, "/readyz")
        assert status == 503
        assert "no name server can be reached" in text


@pytest_twisted.ensureDeferred
async def test_name_server_counts_registered_brokers(tmp_path):
    port = free_port()
    async with running(namesrv_in(tmp_path, metricsPort=str(port))) as name_server:
        (tmp_path / "b").mkdir()
        async with running(broker_in(tmp_path / "b", f"127.0.0.1:{name_server.port}")) as broker:
            await broker.when_serving()
            await eventually(lambda: name_server.routes.cluster_info().broker_addr_table)
            found = await figures(port)
            assert figure(found, "rocketd_registered_brokers", broker="broker-a") == 1
            assert await page(port, "/readyz") == (200, "ok\n")


@pytest_twisted.ensureDeferred
async def test_other_pages_are_missing_and_bodies_are_refused(tmp_path):
    port = free_port()
    async with running(broker_in(tmp_path, "", metricsPort=str(port))):
        assert (await page(port, "/"))[0] == 404
        assert (await page(port, "/metrics", method="DELETE"))[0] in (200, 405)
        with pytest.raises(ConnectionError):
            await page(port, "/metrics", method="POST", body=b"x" * 10)


@pytest_twisted.ensureDeferred
async def test_connections_beyond_the_limit_are_closed(tmp_path):
    port = free_port()

    def connect_too_many():
        connections = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(MAX_CONNECTIONS + 1)]
        try:
            # Connections are accepted in order, so the last one is beyond the limit.
            assert connections[-1].recv(1) == b""
            # The others are open. If they were closed for their silence, this would return at once.
            connections[0].setblocking(False)
            with pytest.raises(BlockingIOError):
                connections[0].recv(1)
        finally:
            for connection in connections:
                connection.close()

    async with running(broker_in(tmp_path, "", metricsPort=str(port))):
        await deferToThread(connect_too_many)
        await eventually(lambda: _is_ready(port))


async def _is_ready(port):
    try:
        return (await page(port, "/readyz"))[0] == 200
    except OSError:
        return False


@pytest_twisted.ensureDeferred
async def test_port_in_use_ends_the_start_and_names_the_setting(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = broker_in(tmp_path, "", metricsPort=str(taken.getsockname()[1]))
        with pytest.raises(ListenError, match="set another metricsPort"):
            broker.startService()
        # Nothing stays open.
        assert not broker.running
