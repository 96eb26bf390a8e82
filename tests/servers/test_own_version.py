"""The version that servers and clients name, as peers see it: set by environment, file and option of real processes."""

import json

import pytest_twisted

from rocketd.client import ClientConfig, Message, Producer
from rocketd.remoting.wire.codes import RequestCode, ResponseCode, SerializeType
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.versions import set_own_version
from tests.servers.brokers import heartbeat, pull, send
from tests.servers.wire_client import connect, eventually
from tests.support.server_processes import ServerProcesses

OF_ENVIRONMENT = 398
OF_FILE = 399


@pytest_twisted.ensureDeferred
async def test_servers_and_client_send_the_set_version(tmp_path, monkeypatch):
    monkeypatch.setenv("ROCKETMQ_REMOTING_VERSION", str(OF_ENVIRONMENT))
    set_own_version(None)  # of this process, whose client reads the environment too
    servers = ServerProcesses(tmp_path, **{"rocketmq.remoting.version": str(OF_FILE)})
    try:
        servers.start_namesrv()
        servers.start_broker()
        name_server = await connect(int(servers.namesrv_address.rpartition(":")[2]))
        answer = await name_server.ask(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO))
        assert answer.version == OF_ENVIRONMENT

        port = int(servers.broker_address.rpartition(":")[2])
        peer, second = await connect(port), await connect(port)
        for serialize_type in SerializeType:
            stored = await peer.ask(send(serialize_type=serialize_type))
            assert (stored.code, stored.version) == (ResponseCode.SUCCESS, OF_FILE)
            asked = pull()
            asked.serialize_type = serialize_type
            found = await peer.ask(asked)
            assert (found.code, found.version) == (ResponseCode.SUCCESS, OF_FILE)
        await peer.ask(heartbeat("first"))
        await second.ask(heartbeat("second"))
        await eventually(lambda: peer.requests)
        assert peer.requests[0].version == OF_FILE

        producer = Producer("Q", cluster=ClientConfig(namesrv=servers.namesrv_address, heartbeat_interval=0.1))
        await producer.open()
        try:
            await producer.send(Message("T", b"from the client"))

            async def version_of_the_producer():
                asked = RemotingCommand(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "Q"})
                answer = await peer.ask(asked)
                if answer.code != ResponseCode.SUCCESS:  # its heartbeat is still on the way
                    return None
                (connection,) = json.loads(answer.body)["connectionSet"]
                return connection["version"]

            await eventually(version_of_the_producer)
            assert await version_of_the_producer() == OF_ENVIRONMENT
        finally:
            await producer.close()
        for each in (name_server, peer, second):
            each.transport.loseConnection()
    finally:
        servers.kill_all()
        monkeypatch.undo()
        set_own_version(None)
