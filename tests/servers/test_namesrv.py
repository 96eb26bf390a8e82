"""A name server on a real port: recorded requests of unmodified brokers, clients and tools get Apache's answers."""

import json
import select
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock, deferLater

from rocketd.common.settings import properties_file
from rocketd.namesrv.route_info import BROKER_EXPIRY_MS
from rocketd.namesrv.service import FIRST_SCAN_SECONDS, SCAN_SECONDS, NameServer, make_namesrv
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.remoting.bodies.tables import (
    ClusterInfo,
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
)
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.remoting.serving.server import ListenError
from rocketd.remoting.wire.codes import LanguageCode, RequestCode, ResponseCode, SerializeType
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from rocketd.store.base.filesystem import RealFileSystem
from twisted.plugins import rocketd_namesrv_processors

FRAMES = Path(__file__).resolve().parent.parent / "golden" / "frames"


class Client(Protocol):
    """Sends frames and hands out the answers in the order they come."""

    def __init__(self):
        self.closed = Deferred()
        self._decoder = FrameDecoder()
        self._answers = []
        self._waiting = []

    def dataReceived(self, data):
        for frame in self._decoder.feed(data):
            if self._waiting:
                self._waiting.pop(0).callback(frame)
            else:
                self._answers.append(frame)

    def connectionLost(self, reason=None):
        self.closed.callback(None)

    async def answer(self):
        if self._answers:
            return RemotingCommand.decode(self._answers.pop(0))
        waiting = Deferred()
        waiting.addTimeout(60, reactor)
        self._waiting.append(waiting)
        return RemotingCommand.decode(await waiting)

    async def ask(self, request):
        self.transport.write(request if isinstance(request, bytes) else request.encode())
        return await self.answer()


def load_in(directory, **options):
    overrides = {
        "listenPort": "0",
        "kvConfigPath": f"{directory}/kvConfig.json",
        "configStorePath": f"{directory}/namesrv.properties",
        "tls.server.mode": "disabled",
        **options,
    }
    return NamesrvSettings.load(overrides=overrides.items())


def settings_in(directory, **options):
    settings, warnings = load_in(directory, **options)
    assert warnings == []
    return settings


@asynccontextmanager
async def running(name_server):
    name_server.startService()
    try:
        yield name_server
    finally:
        await name_server.stopService()


async def connect(name_server, own=None):
    """Connect a client, from an address of its own if there is one."""
    endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", name_server.port, bindAddress=own)
    return await connectProtocol(endpoint, Client())


def register_command(name="a", address="10.0.0.1:10911", broker_id=0, topics=(), counter=1):
    body = RegisterBrokerBody(
        TopicConfigSerializeWrapper({topic.topic_name: topic for topic in topics}, DataVersion(1, counter))
    ).encode()
    fields = {"brokerName": name, "brokerAddr": address, "clusterName": "c", "haServerAddr": "10.0.0.1:10912"}
    return RemotingCommand(RequestCode.REGISTER_BROKER, {**fields, "brokerId": str(broker_id)}, body)


def route_query(topic):
    return RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})


async def eventually(condition):
    """Wait until a coroutine gives something true, asking every 10 ms for a minute."""
    for _ in range(6000):
        if await condition():
            return
        await deferLater(reactor, 0.01)
    pytest.fail("did not happen within a minute")


# ---------------------------------------------------------------- unread answers

UNSENT, QUERIES = 1 << 20, 1_000


async def test_queries_of_client_that_reads_nothing_wait_and_others_are_answered(tmp_path):
    settings = settings_in(tmp_path, serverUnsentMaxBytesPerConnection=str(UNSENT))
    async with running(make_namesrv(settings, reactor)) as name_server:
        other = await connect(name_server)
        for number in range(400):
            broker = register_command(f"b{number}", f"10.0.0.1:{number + 1}", topics=[TopicConfig("T", 4, 4, 6)])
            assert (await other.ask(broker)).code == ResponseCode.SUCCESS
        size = len((await other.ask(route_query("T"))).body)
        assert QUERIES * size > 20 * UNSENT
        silent = await connect(name_server)
        silent.transport.stopReading()
        silent.transport.write(route_query("T").encode() * QUERIES)

        async def is_parked():
            return any("parked" in name for name in name_server.dispatcher.limits.counts)

        await eventually(is_parked)
        limit = name_server.server.unsent.total
        for _ in range(20):
            assert (await other.ask(route_query("T"))).code == ResponseCode.SUCCESS
            limit = max(limit, name_server.server.unsent.total)
        assert limit < 3 * UNSENT
        silent.transport.startReading()
        for _ in range(QUERIES):
            assert (await silent.answer()).code == ResponseCode.SUCCESS
        silent.transport.loseConnection()
        other.transport.loseConnection()


# ---------------------------------------------------------------- addresses by network


@pytest_twisted.ensureDeferred
async def test_askers_get_the_addresses_of_their_network(tmp_path):
    settings = settings_in(
        tmp_path, addressesByNetwork="127.0.0.2 10.0.0.1:10911=broker.example:30911 10.0.0.1:10912=broker.example:30912"
    )
    async with running(make_namesrv(settings, reactor)) as name_server:
        broker, outside = await connect(name_server), await connect(name_server, ("127.0.0.2", 0))
        await broker.ask(register_command(topics=[TopicConfig("T", 4, 4, 6)]))
        found = []
        for client in (broker, outside):
            route = TopicRouteData.decode((await client.ask(route_query("T"))).body)
            cluster = await client.ask(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO))
            slave = await client.ask(register_command(address="10.0.0.2:10911", broker_id=1))
            found.append(
                (
                    route.broker_datas[0].broker_addrs[0],
                    ClusterInfo.decode(cluster.body).broker_addr_table["a"].broker_addrs[0],
                    slave.ext_fields["masterAddr"],
                    slave.ext_fields["haServerAddr"],
                )
            )
        assert found == [
            (*["10.0.0.1:10911"] * 3, "10.0.0.1:10912"),
            (*["broker.example:30911"] * 3, "broker.example:30912"),
        ]
        for client in (broker, outside):
            client.transport.loseConnection()


# ---------------------------------------------------------------- recorded traffic


def decoded(record):
    (frame,) = FrameDecoder().feed(bytes.fromhex(record["hex"]))
    return RemotingCommand.decode(frame)


def recorded_pairs(path):
    """Yield (request as bytes, decoded request, Apache's decoded answer or None) of a file, as they were sent."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    answers = {
        (record["connection"], record["opaque"]): decoded(record) for record in records if record["sender"] == "namesrv"
    }
    for record in records:
        if record["receiver"] == "namesrv":
            yield (
                bytes.fromhex(record["hex"]),
                decoded(record),
                answers.get((record["connection"], record["opaque"])) if record["kind"] == "request" else None,
            )


def files_with_namesrv_traffic():
    return [path for path in sorted(FRAMES.glob("*.jsonl")) if '"receiver": "namesrv"' in path.read_text()]


def shape(value):
    """Reduce JSON to its member names and types; a list to the shapes that occur in it."""
    if isinstance(value, dict):
        return {key: shape(member) for key, member in value.items()}
    if isinstance(value, list):
        return {json.dumps(shape(item), default=repr, sort_keys=True) for item in value}
    return type(value).__name__


def leading_to(answer, topic, counter):
    """Make the requests after which a name server would answer a route query like this: examples come in no order."""
    if answer.code != ResponseCode.SUCCESS:
        yield RemotingCommand(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})
        return
    route = TopicRouteData.decode(answer.body)
    for broker in route.broker_datas:
        configs = [
            TopicConfig(topic, q.read_queue_nums, q.write_queue_nums, q.perm, topic_sys_flag=q.topic_sys_flag)
            for q in route.queue_datas
            if q.broker_name == broker.broker_name
        ]
        for broker_id, address in broker.broker_addrs.items():
            command = register_command(broker.broker_name, address, broker_id, configs, counter)
            command.ext_fields["clusterName"] = broker.cluster
            yield command


def assert_same_answer(ours, apaches, request):
    assert ours.code == apaches.code, request
    if request.code != RequestCode.UPDATE_NAMESRV_CONFIG:  # rocketd's remark names settings for the next start
        assert ours.remark == apaches.remark, request
    assert ours.serialize_type == apaches.serialize_type, request
    assert (ours.opaque, ours.flag, ours.version) == (apaches.opaque, apaches.flag, apaches.version), request
    assert ours.language == LanguageCode.PYTHON
    assert set(ours.ext_fields or {}) == set(apaches.ext_fields or {}), request
    if request.code == RequestCode.GET_NAMESRV_CONFIG:
        keys, apaches_keys = (
            {entry.key for entry in properties_file.parse(answer.body.decode())} for answer in (ours, apaches)
        )
        assert apaches_keys - keys <= {"rocketmqHome"}
    elif request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
        assert ours.body == apaches.body, request
    elif apaches.body is None:
        assert ours.body is None, request
    else:
        assert shape(fastjson.loads(ours.body)) == shape(fastjson.loads(apaches.body)), request


@pytest.mark.parametrize("path", files_with_namesrv_traffic(), ids=lambda path: path.stem)
@pytest_twisted.ensureDeferred
async def test_recorded_requests_get_apaches_answers(path, tmp_path):
    compared = 0
    async with running(make_namesrv(settings_in(tmp_path), reactor)) as name_server:
        tools, broker = await connect(name_server), await connect(name_server)
        # The broker whose traffic was recorded; its own registration is not in every file.
        registrations = [raw for raw, request, _ in recorded_pairs(FRAMES / "java4.jsonl") if request.code == 103]
        assert (await broker.ask(registrations[0])).code == ResponseCode.SUCCESS
        for raw, request, apaches in recorded_pairs(path):
            if apaches is None:
                tools.transport.write(raw)
                if not request.is_oneway:
                    assert (await tools.answer()).code == ResponseCode.SUCCESS
                continue
            if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                for command in leading_to(apaches, request.ext_fields["topic"], counter=1000 + compared):
                    assert (await broker.ask(command)).code == ResponseCode.SUCCESS
            assert_same_answer(await tools.ask(raw), apaches, request)
            compared += 1
    assert compared


# ---------------------------------------------------------------- a broker's life


@pytest_twisted.ensureDeferred
async def test_closed_connection_removes_routes_of_the_broker(tmp_path):
    async with running(make_namesrv(settings_in(tmp_path), reactor)) as name_server:
        broker, other, client = [await connect(name_server) for _ in range(3)]
        await broker.ask(register_command(topics=[TopicConfig("T")]))
        await other.ask(register_command("b", "10.0.0.3:10911", topics=[TopicConfig("T")]))
        route = TopicRouteData.decode((await client.ask(route_query("T"))).body)
        assert {data.broker_name for data in route.broker_datas} == {"a", "b"}

        broker.transport.abortConnection()

        async def one_is_left():
            route = TopicRouteData.decode((await client.ask(route_query("T"))).body)
            return [data.broker_name for data in route.broker_datas] == ["b"]

        await eventually(one_is_left)


@pytest_twisted.ensureDeferred
async def test_registration_right_before_close_is_removed(tmp_path):
    async with running(make_namesrv(settings_in(tmp_path), reactor)) as name_server:
        client = await connect(name_server)
        for counter in range(20):
            broker = await connect(name_server)
            broker.transport.write(register_command(topics=[TopicConfig("T")], counter=counter).encode())
            broker.transport.loseConnection()
            await broker.closed

        async def is_gone():
            return (await client.ask(route_query("T"))).code == ResponseCode.TOPIC_NOT_EXIST

        await eventually(is_gone)


class HybridReactor:
    """The real reactor's network with a clock of the test's own."""

    def __init__(self):
        self.clock = Clock()
        self.callLater = self.clock.callLater
        self.seconds = self.clock.seconds

    def __getattr__(self, name):
        return getattr(reactor, name)


async def end_of_scan(client):
    """Wait for a request of the scan's pool, whose thread handles it after the scan."""
    fields = {"clusterName": "C", "brokerAddr": "10.0.0.9:1", "brokerName": "unknown", "brokerId": "0"}
    await client.ask(RemotingCommand(RequestCode.UNREGISTER_BROKER, fields))


@pytest_twisted.ensureDeferred
async def test_silent_broker_is_removed_by_scan_and_disconnected(tmp_path):
    hybrid = HybridReactor()
    now = [0.0]
    name_server = NameServer(settings_in(tmp_path), hybrid, RealFileSystem(), lambda: now[0])
    async with running(name_server):
        broker, client = await connect(name_server), await connect(name_server)
        await broker.ask(register_command(topics=[TopicConfig("T")]))
        now[0] = BROKER_EXPIRY_MS / 1000 - 1
        hybrid.clock.advance(FIRST_SCAN_SECONDS)
        await end_of_scan(client)
        assert (await client.ask(route_query("T"))).code == ResponseCode.SUCCESS
        now[0] += 2
        hybrid.clock.advance(SCAN_SECONDS - 0.01)
        await end_of_scan(client)
        assert (await client.ask(route_query("T"))).code == ResponseCode.SUCCESS
        hybrid.clock.advance(0.01)
        await end_of_scan(client)
        assert (await client.ask(route_query("T"))).code == ResponseCode.TOPIC_NOT_EXIST
        await broker.closed


# ---------------------------------------------------------------- the service


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="this system has no epoll, so it has no lanes")
@pytest_twisted.ensureDeferred
async def test_connection_with_route_queries_is_read_by_the_thread_that_answers_them(tmp_path):
    """Brokers stay at the reactor; other requests of a connection that has moved are answered as before."""
    async with running(make_namesrv(settings_in(tmp_path))) as name_server:
        broker, client = await connect(name_server), await connect(name_server)
        await broker.ask(register_command(topics=[TopicConfig("T")]))

        async def has_moved():
            assert (await client.ask(route_query("T"))).code == ResponseCode.SUCCESS
            lanes = [each.lane and each.lane.name for each in name_server.server.connections]
            return sorted(map(str, lanes)) == ["None", "routes"]

        await eventually(has_moved)
        await client.ask(register_command(name="b", address="10.0.0.2:10911", topics=[TopicConfig("T")]))
        route = TopicRouteData.decode((await broker.ask(route_query("T"))).body)
        assert {each.broker_name for each in route.broker_datas} == {"a", "b"}
        client.transport.loseConnection()

        async def is_forgotten():
            route = TopicRouteData.decode((await broker.ask(route_query("T"))).body)
            return {each.broker_name for each in route.broker_datas} == {"a"}

        await eventually(is_forgotten)


@pytest_twisted.ensureDeferred
async def test_unknown_code_is_answered(tmp_path):
    async with running(make_namesrv(settings_in(tmp_path), reactor)) as name_server:
        client = await connect(name_server)
        answer = await client.ask(RemotingCommand(351))
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert "351" in answer.remark


BAD_FIELDS = (
    {},
    dict.fromkeys(
        ("brokerName", "brokerAddr", "clusterName", "haServerAddr", "topic", "cluster", "namespace", "key"), ""
    ),
    {
        "brokerName": "a",
        "brokerAddr": "x",
        "clusterName": "c",
        "haServerAddr": "x",
        "brokerId": "9" * 30,
        "topic": "%s",
    },
    {
        "brokerName": "a",
        "brokerAddr": "x",
        "clusterName": "c",
        "haServerAddr": "x",
        "brokerId": "0",
        "compressed": "true",
    },
    {"brokerName": "a", "brokerAddr": "x", "clusterName": "c", "haServerAddr": "x", "brokerId": "one"},
)
BAD_BODIES = (
    None,
    b"\0\xff not JSON",
    b"[]",
    b'{"topicConfigSerializeWrapper":null,"filterServerList":null}',
    b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":null,"U":{"topicName":null}}}}',
)


@pytest.mark.parametrize("plugin_name", ["namesrv_plugin", "route_plugin"])
@pytest_twisted.ensureDeferred
async def test_bad_requests_are_answered_without_harm(plugin_name, tmp_path):
    plugin = getattr(rocketd_namesrv_processors, plugin_name)
    async with running(make_namesrv(settings_in(tmp_path), reactor)) as name_server:
        broker, client = await connect(name_server), await connect(name_server)
        await broker.ask(register_command("good", "10.0.0.7:10911", topics=[TopicConfig("Good")]))
        for code, fields, body in product(plugin.codes, BAD_FIELDS, BAD_BODIES):
            for serialize_type in SerializeType:
                request = RemotingCommand(code, fields, body, serialize_type=serialize_type)
                assert (await client.ask(request)).opaque == request.opaque
        assert (await client.ask(route_query("Good"))).code == ResponseCode.SUCCESS
        assert not broker.closed.called


@pytest_twisted.ensureDeferred
async def test_restart_keeps_kv_and_settings(tmp_path):
    stored = tmp_path / "namesrv.properties"
    async with running(make_namesrv(settings_in(tmp_path), reactor)) as name_server:
        client = await connect(name_server)
        key = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}
        await client.ask(RemotingCommand(RequestCode.PUT_KV_CONFIG, {**key, "value": "a:4"}))
        update = RemotingCommand(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true\n")
        assert (await client.ask(update)).code == ResponseCode.SUCCESS
    assert stored.read_text().splitlines()[1:] == ["orderMessageEnable=true"]

    settings, (said,) = load_in(tmp_path)
    assert said == f"{stored}: settings changed by request are in effect: orderMessageEnable"
    async with running(make_namesrv(settings, reactor)) as name_server:
        client = await connect(name_server)
        assert (await client.ask(RemotingCommand(RequestCode.GET_KV_CONFIG, key))).ext_fields == {"value": "a:4"}
        registered = await client.ask(register_command(topics=[TopicConfig("T")]))
        assert registered.body == b'{"table":{"T":"a:4"}}'
        assert TopicRouteData.decode((await client.ask(route_query("T"))).body).order_topic_conf == "a:4"


@pytest_twisted.ensureDeferred
async def test_stop_closes_port_and_connections(tmp_path):
    async with running(make_namesrv(settings_in(tmp_path), reactor)) as name_server:
        client = await connect(name_server)
        assert (await client.ask(route_query("T"))).code == ResponseCode.TOPIC_NOT_EXIST
        port = name_server.port
    await client.closed
    async with running(make_namesrv(settings_in(tmp_path, listenPort=str(port)), reactor)) as name_server:
        assert name_server.port == port


@pytest_twisted.ensureDeferred
async def test_a_port_in_use_is_one_clear_error(tmp_path):
    async with running(make_namesrv(settings_in(tmp_path), reactor)) as name_server:
        second = make_namesrv(settings_in(tmp_path, listenPort=str(name_server.port)), reactor)
        with pytest.raises(ListenError, match=f"port {name_server.port}: it is in use"):
            second.startService()
