"""Strangers at the port for slaves of real brokers: they get nothing, count for nothing, and keep no slave out."""

from contextlib import asynccontextmanager
from struct import pack

import pytest
import trustme
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol, wrapClientTLS
from twisted.internet.protocol import Protocol
from twisted.logger import formatEvent

from rocketd.remoting.settings import TlsConfig
from rocketd.remoting.tls.certificates import TLSConfigError
from rocketd.remoting.tls.contexts import ClientTLS
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.log.transfer import TransferDecoder
from tests.servers.in_process import LogLines, broker_in, namesrv_in
from tests.servers.wire_client import connect, eventually, running

LIMIT = 60  # seconds
LISTED = {"haAllowedAddresses": "127.0.0.1"}
ELSEWHERE = {"bindAddress": "127.0.0.2", "brokerIP1": "127.0.0.2", "brokerIP2": "127.0.0.2"}
"""The settings of a broker at another host."""
ZEROS = bytes(8)
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}
# A slave learns where its master is from the answer to a registration.
QUICK = {"registerNameServerPeriod": "10000", "slaveTimeout": "20000"}


class Peer(Protocol):
    """Any connection to the port for slaves."""

    def __init__(self):
        self.got = b""
        self.closed = Deferred()
        self.is_closed = False

    def dataReceived(self, data):
        self.got += data

    def connectionLost(self, reason=None):
        self.is_closed = True
        self.closed.callback(None)


class Forger(Peer):
    """Reports that it has all bytes of the log, and keeps none."""

    def __init__(self):
        super().__init__()
        self.decoder = TransferDecoder()

    def dataReceived(self, data):
        super().dataReceived(data)
        for transfer in self.decoder.feed(data):
            self.transport.write(pack(">q", transfer.offset + len(transfer.body)))


async def stranger(broker, host="127.0.0.1", data=b"", kind=Peer, tls=None):
    endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", broker.replication.port, bindAddress=(host, 0))
    if tls is not None:
        endpoint = wrapClientTLS(tls.connection_creator("127.0.0.1"), endpoint)
    peer = await connectProtocol(endpoint, kind())
    peer.transport.write(data)
    return peer


async def is_turned_away(broker, **how):
    """Whether a stranger is sent nothing, and its connection is closed."""
    peer = await stranger(broker, data=ZEROS, **how)
    await peer.closed.addTimeout(LIMIT, reactor)
    return peer.got == b""


async def send(broker):
    """Send a message; returns the code of the answer."""
    fields = {
        "a": "senders", "b": "Doors", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
        "i": "", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    client = await connect(broker.port)
    try:
        answer = await client.ask(RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, b"secret"))
        return answer.code
    finally:
        client.transport.loseConnection()
        await client.wait_closed()


async def answers(broker):
    """Whether a broker serves: it has asked the others of its name before."""
    client = await connect(broker.port)
    try:
        answer = await client.ask(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
        return answer.code == ResponseCode.SUCCESS
    finally:
        client.transport.loseConnection()
        await client.wait_closed()


async def is_replicated(broker):
    return await send(broker) == ResponseCode.SUCCESS


@asynccontextmanager
async def master_in(directory, **options):
    """A SYNC_MASTER with a message, and its name server's address."""
    async with running(namesrv_in(directory)) as name_server:
        namesrv = f"127.0.0.1:{name_server.port}"
        given = {**QUICK, "brokerRole": "SYNC_MASTER", **options}
        async with running(broker_in(directory / "master", namesrv, **given)) as master:
            assert await send(master) == ResponseCode.SLAVE_NOT_AVAILABLE
            # A registration under way would replace a forged one.
            await eventually(lambda: name_server.routes.pick_topic_route("Doors"), LIMIT)
            told = Deferred()
            master.registration.when_told(lambda: told.callback(None))
            await told
            yield master, namesrv


def slave_in(directory, namesrv, **options):
    return running(broker_in(directory / "slave", namesrv, **{**QUICK, **SLAVE, **options}))


async def test_stranger_gets_no_byte_of_the_log_and_makes_no_send_ok(tmp_path):
    async with master_in(tmp_path, haAllowedAddresses="127.0.0.2") as (master, _):
        assert await is_turned_away(master)
        end = master.store.max_physical_offset()
        forger = await stranger(master, data=pack(">q", end), kind=Forger)
        assert await send(master) == ResponseCode.SLAVE_NOT_AVAILABLE
        await forger.closed.addTimeout(LIMIT, reactor)
        assert forger.got == b""
        assert master.replication.table()["haRefused"] == "2"


async def test_registered_slave_that_answers_gets_nothing_unless_it_is_listed(tmp_path):
    async with master_in(tmp_path, **LISTED) as (master, namesrv), slave_in(tmp_path, namesrv, **ELSEWHERE) as slave:
        await eventually(lambda: slave.replication.synchronize.master_address is not None, LIMIT)
        assert await is_turned_away(master, host="127.0.0.2")
        master.settings.update("haAllowedAddresses=127.0.0.2")
        listed = await stranger(master, host="127.0.0.2", data=ZEROS)
        await eventually(lambda: b"secret" in listed.got)
        listed.transport.abortConnection()


async def test_other_master_that_answers_does_not_stop_the_master_unless_it_is_listed(tmp_path):
    async with master_in(tmp_path, **LISTED) as (master, namesrv):
        later = broker_in(tmp_path / "later", namesrv, **QUICK, **ELSEWHERE, singleMasterCheck="false")
        async with running(later):
            await later.registration.register()
            await master.registration.before_each(namesrv)
            assert await send(master) == ResponseCode.SLAVE_NOT_AVAILABLE
            master.settings.update("haAllowedAddresses=127.0.0.2")
            await master.registration.before_each(namesrv)
            assert await send(master) == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_slave_follows_master_that_name_servers_tell_only_if_it_is_listed(tmp_path):
    async with running(namesrv_in(tmp_path)) as name_server:
        namesrv = f"127.0.0.1:{name_server.port}"
        async with running(broker_in(tmp_path / "false", namesrv, **QUICK, **ELSEWHERE)) as false:
            await false.registration.register()
            with LogLines() as lines:
                async with slave_in(tmp_path, namesrv, **LISTED) as slave:
                    await slave.registration.register()
                    text = f"127.0.0.2:{false.port} as the master, which is not followed: its host is not"
                    await eventually(lambda: any(text in formatEvent(event) for event in lines.events), LIMIT)
                    replication = slave.replication
                    assert replication.slave.master_address is replication.synchronize.master_address is None
                    slave.settings.update("haAllowedAddresses=127.0.0.2")
                    await slave.registration.register()
                    await eventually(lambda: replication.slave.connection is not None, LIMIT)
                    assert replication.synchronize.master_address == f"127.0.0.2:{false.port}"


async def test_forged_master_registration_does_not_stop_the_master(tmp_path):
    async with master_in(tmp_path) as (master, namesrv):
        fields = {
            "brokerName": master.settings.broker.broker_name, "brokerAddr": namesrv, "clusterName": "DefaultCluster",
            "haServerAddr": namesrv, "brokerId": "0",
        }  # fmt: skip
        client = await connect(int(namesrv.rpartition(":")[2]))
        answer = await client.ask(RemotingCommand(RequestCode.REGISTER_BROKER, fields))
        assert answer.code == ResponseCode.SUCCESS
        with LogLines() as lines:
            await master.registration.before_each(namesrv)
        assert any("but does not confirm it" in formatEvent(event) for event in lines.events)
        assert await send(master) == ResponseCode.SLAVE_NOT_AVAILABLE
        client.transport.loseConnection()
        await client.wait_closed()


async def test_returning_master_takes_nothing_from_other_broker_registered_as_its_slave(tmp_path):
    async with running(namesrv_in(tmp_path)) as name_server:
        namesrv = f"127.0.0.1:{name_server.port}"
        async with running(broker_in(tmp_path / "other", namesrv, brokerName="other")) as other:
            assert await send(other) == ResponseCode.SUCCESS
            fields = {
                "brokerName": "broker-a", "brokerAddr": f"127.0.0.2:{other.port}", "clusterName": "DefaultCluster",
                "haServerAddr": "127.0.0.1:1", "brokerId": "7",
            }  # fmt: skip
            client = await connect(name_server.port)
            answer = await client.ask(RemotingCommand(RequestCode.REGISTER_BROKER, fields))
            assert answer.code == ResponseCode.SUCCESS
            with LogLines() as lines:
                async with running(broker_in(tmp_path / "master", namesrv, brokerName="broker-a")) as master:
                    await eventually(
                        lambda: any("not answer as a slave" in formatEvent(event) for event in lines.events), LIMIT
                    )
                    await eventually(lambda: answers(master), LIMIT)
                    assert "Doors" not in master.topics.snapshot().topic_config_table
            client.transport.loseConnection()
            await client.wait_closed()


async def test_idle_strangers_do_not_keep_the_slave_out(tmp_path):
    async with master_in(tmp_path, **LISTED) as (master, namesrv):
        idle = [await stranger(master, host="127.0.0.2") for _ in range(70)]
        await eventually(lambda: sum(peer.is_closed for peer in idle) == 6)
        assert await send(master) == ResponseCode.SLAVE_NOT_AVAILABLE
        async with slave_in(tmp_path, namesrv):
            await eventually(lambda: is_replicated(master), LIMIT)
            assert sum(peer.is_closed for peer in idle) == 7
        for peer in idle:
            peer.transport.abortConnection()


async def test_connection_without_report_is_closed_in_time(tmp_path):
    async with master_in(tmp_path, haIdentifyTimeout="300") as (master, _):
        peer = await stranger(master, data=ZEROS[:7])
        await peer.closed.addTimeout(LIMIT, reactor)
        assert peer.got == b""


async def test_listed_address_is_served_and_others_are_closed_at_once(tmp_path):
    async with master_in(tmp_path, haAllowedAddresses="127.0.0.2") as (master, namesrv):
        assert await is_turned_away(master)
        listed = await stranger(master, host="127.0.0.2", data=ZEROS)
        await eventually(lambda: b"secret" in listed.got)
        listed.transport.abortConnection()
        with LogLines() as lines:
            async with slave_in(tmp_path, namesrv):
                await eventually(
                    lambda: any("its haAllowedAddresses and haTlsMode" in formatEvent(e) for e in lines.events), LIMIT
                )
                assert await send(master) == ResponseCode.SLAVE_NOT_AVAILABLE
                # It may be changed while both run.
                master.settings.update("haAllowedAddresses=127.0.0.1")
                await eventually(lambda: is_replicated(master), LIMIT)


class Certificates:
    """Files and settings of both sides, from one authority or two."""

    def __init__(self, directory):
        self.directory = directory
        self.authority = trustme.CA()
        self.trust = self.write("ca.pem", self.authority.cert_pem.bytes())
        self.server = self.issue("server", self.authority)
        self.client = self.issue("client", self.authority)

    def write(self, name, data):
        path = self.directory / name
        path.write_bytes(data)
        return str(path)

    def issue(self, name, authority):
        """Return the paths of a key and its certificate."""
        issued = authority.issue_cert("127.0.0.1")
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        key = self.write(f"{name}.key", issued.private_key_pem.bytes())
        return key, self.write(f"{name}.pem", chain)

    def settings(self, **others):
        return {
            "tls.test.mode.enable": "false",
            "tls.server.keyPath": self.server[0],
            "tls.server.certPath": self.server[1],
            "tls.server.trustCertPath": self.trust,
            "tls.client.keyPath": self.client[0],
            "tls.client.certPath": self.client[1],
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": self.trust,
            "useTLS": "false",
            "haTlsMode": "enforcing",
            **others,
        }

    def client_tls(self, identity=(None, None)):
        return ClientTLS(TlsConfig(test_mode_enable=False, client_key_path=identity[0], client_cert_path=identity[1]))


@pytest.fixture
def certificates(tmp_path):
    return Certificates(tmp_path)


async def test_tls_pair_replicates_and_refuses_plain_and_wrong_certificates(tmp_path, certificates):
    given = certificates.settings()
    async with master_in(tmp_path, **given) as (master, namesrv):
        assert await is_turned_away(master)
        with LogLines() as lines:
            assert await is_turned_away(master, tls=certificates.client_tls())
        assert "TLS failed: peer did not return a certificate" in "".join(map(formatEvent, lines.events))
        wrong = certificates.issue("wrong", trustme.CA())
        assert await is_turned_away(master, tls=certificates.client_tls(wrong))
        assert master.replication.table()["haRefused"] == "2"
        async with slave_in(tmp_path, namesrv, **given) as slave:
            await eventually(lambda: is_replicated(master), LIMIT)
            end = master.store.max_physical_offset()
            await eventually(lambda: slave.store.max_physical_offset() == end)
            # The host is trusted by now; that does not help a plain connection.
            assert await is_turned_away(master)
            assert await is_turned_away(master, tls=certificates.client_tls(wrong))
            right = await stranger(
                master, host="127.0.0.2", data=ZEROS, tls=certificates.client_tls(certificates.client)
            )
            await eventually(lambda: b"secret" in right.got)
            right.transport.abortConnection()


async def test_tls_slave_refuses_master_with_wrong_certificate(tmp_path, certificates):
    wrong = certificates.issue("wrong", trustme.CA())
    given = certificates.settings(**{"tls.server.keyPath": wrong[0], "tls.server.certPath": wrong[1]})
    with LogLines() as lines:
        async with master_in(tmp_path, **given) as (master, namesrv), slave_in(tmp_path, namesrv, **given):
            await eventually(lambda: any("certificate verify failed" in formatEvent(e) for e in lines.events), LIMIT)
            assert await send(master) == ResponseCode.SLAVE_NOT_AVAILABLE


async def test_permissive_port_takes_listed_plain_and_certified_tls_slaves(tmp_path, certificates):
    given = certificates.settings(haTlsMode="permissive", haAllowedAddresses="127.0.0.2")
    async with master_in(tmp_path, **given) as (master, _):
        certified = await stranger(master, data=ZEROS, tls=certificates.client_tls(certificates.client))
        listed = await stranger(master, host="127.0.0.2", data=ZEROS)
        for peer in (certified, listed):
            await eventually(lambda peer=peer: b"secret" in peer.got)
            peer.transport.abortConnection()
        assert await is_turned_away(master)


def test_tls_without_certificates_is_refused_at_start(tmp_path, certificates):
    with pytest.raises(TLSConfigError, match=r"haTlsMode = enforcing: set tls\.test\.mode\.enable=false"):
        broker_in(tmp_path, None, namesrvAddr="", haTlsMode="enforcing")
    given = certificates.settings()
    del given["tls.server.trustCertPath"]
    with pytest.raises(TLSConfigError, match=r"set haTlsTrustCertPath or tls\.server\.trustCertPath"):
        broker_in(tmp_path, None, **given, namesrvAddr="")
    given = certificates.settings(**{"tls.client.authServer": "false"})
    with pytest.raises(TLSConfigError, match=r"haTlsEnable = true: set .*tls.client.authServer=true"):
        broker_in(tmp_path, None, **given, **SLAVE, namesrvAddr="")
