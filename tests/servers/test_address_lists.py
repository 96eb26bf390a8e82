"""Real servers that take administrative writes and registrations from some addresses only; loopback has many."""

import pytest
from twisted.internet import reactor
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.logger import formatEvent

from rocketd.remoting.bodies.tables import RegisterBrokerBody
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from tests.servers.in_process import LogLines, broker_in, namesrv_in
from tests.servers.wire_client import WireClient, eventually, running

HOME, STRANGER = "127.0.0.1", "127.0.0.2"
TOPIC = {
    "topic": "Made",
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}
KV = {"namespace": "space", "key": "key", "value": "value"}
BROKER = {
    "brokerName": "fake",
    "brokerAddr": "127.0.0.2:1",
    "clusterName": "c",
    "haServerAddr": "127.0.0.2:2",
    "brokerId": "0",
}


async def connect(port, host):
    """Connect from an address of this machine."""
    return await connectProtocol(TCP4ClientEndpoint(reactor, "127.0.0.1", port, bindAddress=(host, 0)), WireClient())


async def ask(port, host, code, fields=None, body=None):
    client = await connect(port, host)
    try:
        return await client.ask(RemotingCommand(code, fields, body))
    finally:
        client.transport.loseConnection()
        await client.wait_closed()


@pytest.mark.parametrize("allowed", ["127.0.0.1", "127.0.0.0/31"])
async def test_broker_admin_write_from_unlisted_address_is_refused(tmp_path, allowed):
    with LogLines() as lines:
        async with running(broker_in(tmp_path, None, namesrvAddr="", adminWithoutAcl=allowed)) as broker:
            for _ in range(3):
                refused = await ask(broker.port, STRANGER, RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
                assert refused.code == ResponseCode.NO_PERMISSION
                assert "setting adminWithoutAcl" in refused.remark
            config = await ask(broker.port, STRANGER, RequestCode.UPDATE_BROKER_CONFIG, None, b"adminWithoutAcl=any")
            assert config.code == ResponseCode.NO_PERMISSION
            assert "Made" not in broker.topics.snapshot().topic_config_table
            assert (await ask(broker.port, STRANGER, RequestCode.GET_ALL_TOPIC_CONFIG)).code == ResponseCode.SUCCESS
            made = await ask(broker.port, HOME, RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
            assert made.code == ResponseCode.SUCCESS
            assert "Made" in broker.topics.snapshot().topic_config_table
            state = await ask(broker.port, STRANGER, RequestCode.GET_BROKER_RUNTIME_INFO)
            assert b'"adminWritesRefused":"4"' in state.body.replace(b" ", b"")
    assert len([event for event in lines.events if event.get("setting") == "adminWithoutAcl"]) == 1


async def test_broker_changes_its_admin_list_by_no_request(tmp_path):
    async with running(broker_in(tmp_path, None, namesrvAddr="")) as broker:
        answer = await ask(broker.port, HOME, RequestCode.UPDATE_BROKER_CONFIG, None, b"adminWithoutAcl=any")
        assert answer.code != ResponseCode.SUCCESS
        assert "adminWithoutAcl" in answer.remark


async def test_name_server_refuses_admin_and_registration_of_unlisted_address(tmp_path):
    options = {"adminWithoutAcl": "127.0.0.1", "brokerAllowedAddresses": "127.0.0.1"}
    async with running(namesrv_in(tmp_path, **options)) as name_server:
        port = name_server.port
        body = RegisterBrokerBody().encode()
        for code, fields, content in (
            (RequestCode.PUT_KV_CONFIG, KV, None),
            (RequestCode.UPDATE_NAMESRV_CONFIG, None, b"orderMessageEnable=true"),
            (RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"}, None),
            (RequestCode.REGISTER_BROKER, BROKER, body),
            (RequestCode.UNREGISTER_BROKER, BROKER, None),
        ):
            refused = await ask(port, STRANGER, code, fields, content)
            assert refused.code == ResponseCode.NO_PERMISSION, code
        assert name_server.dispatcher.refused_by_address() == {"adminWritesRefused": 3, "registrationsRefused": 2}
        async with running(broker_in(tmp_path, f"127.0.0.1:{port}")):
            await eventually(lambda: name_server.routes.cluster_info().broker_addr_table)
        assert (await ask(port, HOME, RequestCode.PUT_KV_CONFIG, KV)).code == ResponseCode.SUCCESS


async def test_refused_registration_is_logged_with_the_setting(tmp_path):
    async with running(namesrv_in(tmp_path, brokerAllowedAddresses="none")) as name_server:
        with LogLines() as lines:
            async with running(broker_in(tmp_path, f"127.0.0.1:{name_server.port}")):
                await eventually(lambda: name_server.broker_guard.refused)
            texts = [formatEvent(event) for event in lines.events]
        (told,) = [text for text in texts if "cannot tell name server" in text]
        assert "brokers may register and unregister only from: none (setting brokerAllowedAddresses)" in told
        assert any("the address is not in brokerAllowedAddresses = none" in text for text in texts)


async def test_name_server_takes_registrations_from_everywhere_with_any(tmp_path):
    options = {"adminWithoutAcl": "none", "brokerAllowedAddresses": "any"}
    async with running(namesrv_in(tmp_path, **options)) as name_server:
        body = RegisterBrokerBody().encode()
        answer = await ask(name_server.port, STRANGER, RequestCode.REGISTER_BROKER, BROKER, body)
        assert answer.code == ResponseCode.SUCCESS
        refused = await ask(name_server.port, HOME, RequestCode.PUT_KV_CONFIG, KV)
        assert refused.code == ResponseCode.NO_PERMISSION


async def test_connection_from_unlisted_address_is_closed_at_once(tmp_path):
    listed = {"serverAllowedAddresses": "127.0.0.1"}
    for server in (namesrv_in(tmp_path, **listed), broker_in(tmp_path, "127.0.0.1:1", **listed)):
        async with running(server):
            client = await connect(server.port, STRANGER)
            await client.wait_closed()
            assert server.dispatcher.limits.counts == {"connections refused by address": 1}
            answer = await ask(server.port, HOME, RequestCode.GET_ALL_TOPIC_CONFIG)
            assert answer.code in (ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


async def test_name_server_with_any_address_warns_at_start(tmp_path):
    with LogLines() as lines:
        async with running(namesrv_in(tmp_path, adminWithoutAcl="any", brokerAllowedAddresses="any")):
            pass
        async with running(namesrv_in(tmp_path)):
            pass
    assert [event["admins"] for event in lines.events if "admins" in event] == ["any"]
    assert [event["brokers"] for event in lines.events if "register as any broker" in formatEvent(event)] == ["any"]
