"""Bad input closes its connection or gets an error response, with one log line, and no other connection notices."""

import json
import struct
import zlib

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.task import deferLater

from rocketd.remoting.serving import server as server_module
from rocketd.remoting.wire.codes import RequestCode, ResponseCode, SerializeType
from rocketd.remoting.wire.command import ONEWAY_FLAG, RemotingCommand
from rocketd.remoting.wire.frame import MAX_FRAME_LENGTH
from tests.servers.in_process import LogLines, both_servers
from tests.servers.wire_client import connect, eventually

BINARY = SerializeType.ROCKETMQ
OPAQUE = 1_000_000
"""Of every bad request."""

SEND_FIELDS = {
    "producerGroup": "g",
    "topic": "BadInput",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "0",
    "sysFlag": "0",
    "bornTimestamp": "1700000000000",
    "flag": "0",
}
PULL_FIELDS = {
    "consumerGroup": "g",
    "topic": "BadInput",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "0",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subVersion": "0",
}
REGISTER_FIELDS = {
    "brokerName": "bad",
    "brokerAddr": "10.0.0.1:10911",
    "clusterName": "c",
    "haServerAddr": "10.0.0.1:10912",
    "brokerId": "0",
}
DEEP = b"[" * 200_000
LONG = "name\x01" + "字" * 32_000


def command(code, fields=None, body=None, *, oneway=False, serialize_type=SerializeType.JSON, **changes):
    """Encode a request; ``changes`` replace fields, None removes one."""
    fields = {name: value for name, value in {**(fields or {}), **changes}.items() if value is not None}
    return RemotingCommand(
        code, fields, body, flag=ONEWAY_FLAG if oneway else 0, opaque=OPAQUE, serialize_type=serialize_type
    ).encode()


def frame(header, body=b"", serialize_type=SerializeType.JSON, header_length=None, length=None):
    """Build a frame from its parts, lies included."""
    header_length = len(header) if header_length is None else header_length
    length = 4 + len(header) + len(body) if length is None else length
    return struct.pack(">iI", length, serialize_type << 24 | header_length) + header + body


def not_utf8(code, field):
    fields = b'"%b":"\xff"' % field.encode()
    return frame(
        b'{"code":%d,"extFields":{%b},"flag":0,"language":"JAVA","opaque":%d,"version":399}' % (code, fields, OPAQUE)
    )


def binary_header(code, remark_length=0, fields_length=0, rest=b""):
    return struct.pack(">hBhiii", code, 0, 395, OPAQUE, 0, remark_length) + struct.pack(">i", fields_length) + rest


def batch(*messages):
    return b"".join(messages)


def batch_message(body=b"x", total=None, body_length=None, properties_length=0):
    total = 22 + len(body) if total is None else total
    body_length = len(body) if body_length is None else body_length
    return struct.pack(">iiiii", total, 0, 0, 0, body_length) + body + struct.pack(">H", properties_length)


def compressed_registration(topic_count=0, text=b"", version=b"{}"):
    return (
        struct.pack(">i", len(version)) + version + struct.pack(">i", topic_count) + struct.pack(">i", len(text)) + text
    )


SEND, PULL, ROUTE = RequestCode.SEND_MESSAGE, RequestCode.PULL_MESSAGE, RequestCode.GET_ROUTEINFO_BY_TOPIC
HEARTBEAT, REGISTER = RequestCode.HEART_BEAT, RequestCode.REGISTER_BROKER
HUGE = "1" + "0" * 30

CLOSING = {
    "garbage": b"\x00\x01\x02\x03" * 8,
    "text": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "oversized": struct.pack(">iI", MAX_FRAME_LENGTH, 2) + b"{}",
    "negative length": b"\xff\xff\xff\xf0\0\0\0\2{}",
    "length 0": bytes(8),
    "header longer than the frame": frame(b"{}", header_length=3),
    "header length 16 MB": frame(b"{}", header_length=0xFFFFFF),
    "header of 1.1 MB": command(SEND, SEND_FIELDS, b"x", properties=LONG * 12),
    "unknown serialize type": frame(b"{}", serialize_type=9),
    "not JSON": frame(b"this is not JSON"),
    "not JSON behind a known code": frame(b'{"code":105,"opaque":'),
    "a list": frame(b"[1,2]"),
    "empty header": frame(b""),
    "code is text": frame(b'{"code":"ten","opaque":1}'),
    "fields are a list": frame(b'{"code":10,"opaque":1,"flag":0,"version":0,"language":"JAVA","extFields":[1]}'),
    "deeply nested header": frame(b'{"x":' + DEEP),
    "deeply nested behind code 10": frame(b'{"code":10,"x":' + DEEP),
    "deeply nested behind code 310": frame(b'{"code":310,"x":' + DEEP),
    "deeply nested behind code 11": frame(b'{"code":11,"x":' + DEEP),
    "deeply nested behind code 105": frame(b'{"code":105,"x":' + DEEP),
    "binary too short": frame(b"\0\x0a\0", serialize_type=BINARY),
    "binary remark too long": frame(binary_header(SEND, remark_length=1000), serialize_type=BINARY),
    "binary remark negative": frame(binary_header(SEND, remark_length=-1), serialize_type=BINARY),
    "binary fields too long": frame(binary_header(SEND, fields_length=99), serialize_type=BINARY),
    "binary fields negative": frame(binary_header(SEND, fields_length=-5), serialize_type=BINARY),
    "binary name too long": frame(binary_header(SEND, 0, 4, b"\xff\xff\0\0"), serialize_type=BINARY),
    "binary value negative": frame(binary_header(SEND, 0, 7, b"\0\1a\xff\xff\xff\xff"), serialize_type=BINARY),
    "binary value too long": frame(binary_header(SEND, 0, 7, b"\0\1a\x7f\xff\xff\xff"), serialize_type=BINARY),
    "binary name is not UTF-8": frame(binary_header(SEND, 0, 8, b"\0\1\xff\0\0\0\1a"), serialize_type=BINARY),
}

LOGGED = (1,)
"""How many lines a request that cannot be understood may be worth."""
REFUSED = (0, 1)
"""The same for one that is understood and refused: whether that is logged is the processor's business."""

ERROR, ILLEGAL, UNKNOWN = (
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.MESSAGE_ILLEGAL,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
)

BROKER = {
    "unknown code": (command(9999), UNKNOWN, LOGGED),
    "unknown binary code": (command(9999, serialize_type=BINARY), UNKNOWN, LOGGED),
    "two codes in one header": (
        frame(b'{"code":35,"code":9999,"flag":0,"language":"JAVA","opaque":%d,"version":0}' % OPAQUE),
        UNKNOWN,
        LOGGED,
    ),
    "send without topic": (command(SEND, SEND_FIELDS, b"x", topic=None), ERROR, LOGGED),
    "binary send without topic": (
        command(SEND, SEND_FIELDS, b"x", topic=None, serialize_type=BINARY),
        ERROR,
        LOGGED,
    ),
    "send without fields": (command(SEND), ERROR, LOGGED),
    "short names missing": (command(RequestCode.SEND_MESSAGE_V2, {"a": "g"}, b"x"), ERROR, LOGGED),
    "queue id is text": (command(SEND, SEND_FIELDS, b"x", queueId="first"), ERROR, LOGGED),
    "queue id is huge": (command(SEND, SEND_FIELDS, b"x", queueId=HUGE), ERROR, REFUSED),
    "queue id is negative huge": (
        command(SEND, SEND_FIELDS, b"x", topic="AnyQueue", queueId="-" + HUGE),
        None,
        REFUSED,
    ),
    "born timestamp is text": (command(SEND, SEND_FIELDS, b"x", bornTimestamp="now"), ERROR, LOGGED),
    "born timestamp is huge": (command(SEND, SEND_FIELDS, b"x", bornTimestamp=HUGE), ERROR, REFUSED),
    "flag is huge": (command(SEND, SEND_FIELDS, b"x", flag=HUGE), ERROR, REFUSED),
    "system flag is huge": (command(SEND, SEND_FIELDS, b"x", sysFlag=HUGE), ERROR, REFUSED),
    "reconsume times is huge": (command(SEND, SEND_FIELDS, b"x", reconsumeTimes=HUGE), ERROR, REFUSED),
    "queue count is huge": (command(SEND, SEND_FIELDS, b"x", topic="New", defaultTopicQueueNums=HUGE), None, REFUSED),
    "topic name is illegal": (command(SEND, SEND_FIELDS, b"x", topic="no/../such"), ERROR, REFUSED),
    "topic name is too long": (command(SEND, SEND_FIELDS, b"x", topic="t" * 200), ERROR, REFUSED),
    "properties make a header of 96 KB": (command(SEND, SEND_FIELDS, b"x", properties=LONG), ILLEGAL, REFUSED),
    "properties make a binary header of 96 KB": (
        command(SEND, SEND_FIELDS, b"x", properties=LONG, serialize_type=BINARY),
        ILLEGAL,
        REFUSED,
    ),
    "properties make a header of 900 KB": (command(SEND, SEND_FIELDS, b"x", properties=LONG * 9), ILLEGAL, REFUSED),
    "batch is cut off": (command(SEND, SEND_FIELDS, b"\0\0\0", batch="true"), ILLEGAL, REFUSED),
    "batch is empty": (command(SEND, SEND_FIELDS, b"", batch="true"), ILLEGAL, REFUSED),
    "batch total lies": (
        command(SEND, SEND_FIELDS, batch(batch_message(), batch_message(total=9)), batch="true"),
        ILLEGAL,
        REFUSED,
    ),
    "batch body lies": (
        command(SEND, SEND_FIELDS, batch_message(body_length=2**31 - 1), batch="true"),
        ILLEGAL,
        REFUSED,
    ),
    "batch body is negative": (
        command(SEND, SEND_FIELDS, batch_message(body_length=-9), batch="true"),
        ILLEGAL,
        REFUSED,
    ),
    "batch properties lie": (
        command(SEND, SEND_FIELDS, batch_message(properties_length=60_000), batch="true"),
        ILLEGAL,
        REFUSED,
    ),
    "send that is not UTF-8": (not_utf8(SEND, "producerGroup"), ERROR, REFUSED),
    "pull that is not UTF-8": (not_utf8(PULL, "consumerGroup"), ERROR, REFUSED),
    "pull without topic": (command(PULL, PULL_FIELDS, topic=None), ERROR, LOGGED),
    "pull offset is text": (command(PULL, PULL_FIELDS, queueOffset="start"), ERROR, LOGGED),
    "pull offset is huge": (command(PULL, PULL_FIELDS, queueOffset=HUGE), None, REFUSED),
    "pull of a negative queue": (command(PULL, PULL_FIELDS, queueId="-1"), None, REFUSED),
    "heartbeat is not JSON": (command(HEARTBEAT, body=b"{clientID"), ERROR, LOGGED),
    "heartbeat is a list": (command(HEARTBEAT, body=b"[]"), ERROR, LOGGED),
    "heartbeat is missing": (command(HEARTBEAT), ERROR, LOGGED),
    "heartbeat has wrong types": (command(HEARTBEAT, body=b'{"clientID":"c","consumerDataSet":7}'), ERROR, LOGGED),
    "heartbeat is deeply nested": (command(HEARTBEAT, body=b'{"clientID":' + DEEP), ERROR, LOGGED),
    "heartbeat is not UTF-8": (command(HEARTBEAT, body=b"\xff\xfe\x00{"), ERROR, LOGGED),
    "lock body is deeply nested": (command(RequestCode.LOCK_BATCH_MQ, body=b'{"mqSet":' + DEEP), ERROR, LOGGED),
}

NAMESRV = {
    "unknown code": (command(9999), UNKNOWN, LOGGED),
    "route without topic": (command(ROUTE), ERROR, LOGGED),
    "route that is not UTF-8": (not_utf8(ROUTE, "topic"), ResponseCode.TOPIC_NOT_EXIST, REFUSED),
    "registration without a body field": (command(REGISTER, REGISTER_FIELDS, b"{}", brokerName=None), ERROR, LOGGED),
    "broker id is text": (command(REGISTER, REGISTER_FIELDS, b"{}", brokerId="master"), ERROR, LOGGED),
    "registration is not JSON": (command(REGISTER, REGISTER_FIELDS, b"{topicConfig"), ERROR, LOGGED),
    "registration is deeply nested": (command(REGISTER, REGISTER_FIELDS, b'{"a":' + DEEP), ERROR, LOGGED),
    "registration has wrong types": (
        command(REGISTER, REGISTER_FIELDS, b'{"topicConfigSerializeWrapper":{"topicConfigTable":[1]}}'),
        ERROR,
        LOGGED,
    ),
    "damaged on its way": (command(REGISTER, REGISTER_FIELDS, b"{}", bodyCrc32="1"), ERROR, LOGGED),
    "compressed is not": (command(REGISTER, REGISTER_FIELDS, b"plain", compressed="true"), ERROR, LOGGED),
    "compressed is cut off": (
        command(REGISTER, REGISTER_FIELDS, zlib.compress(compressed_registration())[:9], compressed="true"),
        ERROR,
        LOGGED,
    ),
    "zip bomb": (
        command(REGISTER, REGISTER_FIELDS, zlib.compress(bytes(300 << 20), 1), compressed="true"),
        ERROR,
        LOGGED,
    ),
    "compressed count lies": (
        command(REGISTER, REGISTER_FIELDS, zlib.compress(compressed_registration(2**31 - 1)), compressed="true"),
        ERROR,
        LOGGED,
    ),
    "compressed topic is broken": (
        command(REGISTER, REGISTER_FIELDS, zlib.compress(compressed_registration(1, b"a b c")), compressed="true"),
        ERROR,
        LOGGED,
    ),
    "data version is no JSON": (
        command(RequestCode.QUERY_DATA_VERSION, REGISTER_FIELDS, b"not JSON"),
        ERROR,
        LOGGED,
    ),
    "configuration without a key": (command(RequestCode.PUT_KV_CONFIG, {"namespace": "n"}), ERROR, LOGGED),
}


@pytest_twisted.async_yield_fixture(scope="module")
async def servers(tmp_path_factory):
    async with both_servers(tmp_path_factory.mktemp("servers")) as running:
        yield running


class Bystander:
    """Another connection that keeps sending, several requests at a time, and counts bad answers."""

    def __init__(self, port, make_request):
        self._port = port
        self._make_request = make_request
        self._count = 0

    async def __aenter__(self):
        self.client = await connect(self._port)
        await self.talk(1)
        return self

    async def __aexit__(self, *_):
        self.client.transport.loseConnection()
        await self.client.wait_closed()

    async def talk(self, count=8):
        """Send requests while other events happen; all must be answered with success."""
        answers = []
        for _ in range(count):
            self._count += 1
            answers.append(self.client.ask(self._make_request(self._count)))
        for answer in answers:
            response = await answer
            assert response is not None, "the bystander's connection was closed"
            assert response.code == ResponseCode.SUCCESS, response
        return self._count


def send_request(number):
    return RemotingCommand(SEND, {**SEND_FIELDS, "topic": "Bystander"}, b"%d" % number)


def cluster_request(number):
    return RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)


def route_request(number):
    return RemotingCommand(ROUTE, {"topic": "TBW102"})


async def check(server, make_request, data, expected, lines):
    """Send bad bytes in the midst of a bystander's requests; ``expected`` is the answer's code, "close", or None for any."""
    async with Bystander(server.port, make_request) as bystander:
        bad = await connect(server.port)
        with LogLines() as log:
            answer = bad.expect(OPAQUE)
            bad.transport.write(data)
            talk = bystander.talk()
            await talk
            response = await answer
            await bystander.talk()
            if expected == "close":
                assert response is None, response
                await bad.wait_closed()
            else:
                assert response is not None, "closed"
                if expected is not None:
                    assert response.code == expected, response
                    assert response.remark
                assert not bad.is_closed
                good = await bad.ask(make_request(0))
                assert good.code == ResponseCode.SUCCESS, "the connection serves on"
        assert len(log.events) in lines, log.events
        assert not [event for event in log.events if "log_failure" in event], log.events
        bad.transport.loseConnection()
        await bad.wait_closed()


@pytest.mark.parametrize("name", CLOSING)
@pytest_twisted.ensureDeferred
async def test_closing_input_to_the_broker(servers, name):
    await check(servers[1], send_request, CLOSING[name], "close", LOGGED)


@pytest.mark.parametrize("name", CLOSING)
@pytest_twisted.ensureDeferred
async def test_closing_input_to_the_name_server(servers, name):
    await check(servers[0], route_request, CLOSING[name], "close", LOGGED)


@pytest.mark.parametrize("name", BROKER)
@pytest_twisted.ensureDeferred
async def test_bad_requests_to_the_broker(servers, name):
    await check(servers[1], send_request, *BROKER[name])


@pytest.mark.parametrize("name", NAMESRV)
@pytest_twisted.ensureDeferred
async def test_bad_requests_to_the_name_server(servers, name):
    await check(servers[0], route_request, *NAMESRV[name])


@pytest.mark.parametrize("which", [0, 1], ids=["namesrv", "broker"])
@pytest_twisted.ensureDeferred
async def test_requests_before_bad_frame_of_same_read_do_not_affect_others(servers, which):
    """One read brings good requests and garbage: the garbage closes, and the next connection finds all in order."""
    server, make_request = servers[which], (route_request, send_request)[which]
    async with Bystander(server.port, make_request) as bystander:
        for _ in range(5):
            bad = await connect(server.port)
            good = make_request(0).encode()
            with LogLines() as log:
                bad.transport.write(good * 3 + frame(b"garbage") + good * 3)
                await bystander.talk()
                await bad.wait_closed()
            assert len(log.events) == 1, log.events
            await bystander.talk()


@pytest_twisted.ensureDeferred
async def test_bad_oneways_leave_one_line_and_no_answer(servers):
    _, broker = servers
    for data in (
        command(RequestCode.UNREGISTER_CLIENT, oneway=True),
        command(9999, oneway=True),
        command(HEARTBEAT, body=b"[", oneway=True),
    ):
        client = await connect(broker.port)
        answer = client.expect(OPAQUE)
        with LogLines() as log:
            client.transport.write(data)
            for number in range(3):
                assert (await client.ask(send_request(number))).code == ResponseCode.SUCCESS
            await eventually(lambda log=log: log.events)
        assert not answer.called
        assert len(log.events) == 1, log.events
        client.transport.loseConnection()
        assert await answer is None


@pytest_twisted.ensureDeferred
async def test_bad_input_is_not_stored(servers):
    """The queue that the bad sends named holds nothing, and the bystanders' messages are there in order."""
    _, broker = servers
    client = await connect(broker.port)
    count = 20
    await eventually(lambda: broker.store.dispatch_behind_bytes() == 0)
    before = await client.ask(RemotingCommand(RequestCode.GET_MAX_OFFSET, {"topic": "Bystander", "queueId": "0"}))
    for number in range(count):
        await client.ask(send_request(number))
    await eventually(lambda: broker.store.dispatch_behind_bytes() == 0)
    after = await client.ask(RemotingCommand(RequestCode.GET_MAX_OFFSET, {"topic": "Bystander", "queueId": "0"}))
    assert int(after.ext_fields["offset"]) - int(before.ext_fields["offset"]) == count
    bad = await client.ask(RemotingCommand(RequestCode.GET_MAX_OFFSET, {"topic": "BadInput", "queueId": "0"}))
    assert bad.ext_fields["offset"] == "0"
    client.transport.loseConnection()


@pytest_twisted.ensureDeferred
async def test_half_a_frame_then_silence(tmp_path, monkeypatch):
    monkeypatch.setattr(server_module, "_IDLE_SCAN_SECONDS", 0.2)
    async with both_servers(tmp_path, serverChannelMaxIdleTimeSeconds="3") as servers:
        for server, make_request in zip(servers, (cluster_request, send_request), strict=True):
            async with Bystander(server.port, make_request) as bystander:
                halves = [await connect(server.port) for _ in range(3)]
                addresses = {f"127.0.0.1:{half.transport.getHost().port}" for half in halves}
                with LogLines() as log:
                    for half, size in zip(halves, (1, 6, 40), strict=True):
                        half.transport.write(make_request(0).encode()[:size])
                    while not all(half.is_closed for half in halves):
                        await bystander.talk()
                        await deferLater(reactor, 0.02)
                ours = [event for event in log.events if "nothing was received" in event["log_format"]]
                assert sorted(event["address"] for event in ours if event["address"] in addresses) == sorted(addresses)
                await bystander.talk()


@pytest_twisted.ensureDeferred
async def test_a_client_in_pieces_is_served(servers):
    """One byte at a time is good input."""
    _, broker = servers
    client = await connect(broker.port)
    client.transport.setTcpNoDelay(True)
    request = send_request(1)
    answer = client.expect(request.opaque)
    for at in request.encode():
        client.transport.write(bytes([at]))
        await deferLater(reactor, 0)
    assert (await answer).code == ResponseCode.SUCCESS
    client.transport.loseConnection()


def test_every_case_is_json_or_bytes():
    """The cases agree with their names: a field left out is missing."""
    data, _, _ = BROKER["send without topic"]
    header_length = int.from_bytes(data[5:8], "big")
    assert "topic" not in json.loads(data[8 : 8 + header_length])["extFields"]


@pytest_twisted.ensureDeferred
async def test_answer_longer_than_a_frame_becomes_an_error_and_the_connection_stays(tmp_path):
    async with both_servers(tmp_path) as (name_server, broker):
        name_server.dispatcher.answers.longest_answer = broker.dispatcher.answers.longest_answer = 8192
        admin = await connect(broker.port)
        for number in range(50):
            group = {"groupName": f"G{number}"}
            answer = await admin.ask(
                RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=json.dumps(group).encode())
            )
            assert answer.code == ResponseCode.SUCCESS
        await is_too_long(admin, RemotingCommand(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        client = await connect(name_server.port)
        for number in range(10):
            fields = {"namespace": "N", "key": f"K{number}", "value": "v" * 1000}
            await client.ask(RemotingCommand(RequestCode.PUT_KV_CONFIG, fields))
        await is_too_long(client, RemotingCommand(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"}))


async def is_too_long(client, request):
    answer = await client.ask(request)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "more than the 8192 of a frame" in answer.remark
    assert not client.is_closed


@pytest_twisted.ensureDeferred
async def test_answers_may_have_the_length_of_received_frames_if_that_is_more(tmp_path):
    for name, length, expected in (("less", 8192, MAX_FRAME_LENGTH), ("more", 33_554_432, 33_554_432)):
        settings = {"com.rocketmq.remoting.frameMaxLength": str(length)}
        async with both_servers(tmp_path / name, **settings) as servers:
            assert {server.dispatcher.answers.longest_answer for server in servers} == {expected}
