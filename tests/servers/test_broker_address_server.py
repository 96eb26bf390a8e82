"""A broker that reads its name servers from a page: real HTTP, real registrations."""

from contextlib import asynccontextmanager

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.web.resource import Resource
from twisted.web.server import Site

from rocketd.broker import name_server_addresses
from rocketd.broker.base.settings import BrokerConfig, BrokerSettings
from rocketd.broker.name_server_addresses import page_url
from rocketd.broker.replication.single_master import SecondMasterError
from rocketd.common.settings.declaration import ConfigError
from rocketd.remoting.calling import address_server
from tests.servers.brokers import make_a_broker, make_name_server
from tests.servers.wire_client import eventually, running


class Page(Resource):
    """Answers each path with ``text``; 404 without one. ``asked`` has the paths."""

    isLeaf = True  # noqa: N815

    def __init__(self):
        super().__init__()
        self.text = ""
        self.asked = []

    def render_GET(self, request):  # noqa: N802
        self.asked.append(request.uri)
        request.setResponseCode(200 if self.text else 404)
        return self.text.encode()


@asynccontextmanager
async def serving(page):
    port = reactor.listenTCP(0, Site(page), interface="127.0.0.1")
    try:
        yield f"127.0.0.1:{port.getHost().port}"
    finally:
        await port.stopListening()


def knows(name_server):
    return "broker-a" in name_server.routes.cluster_info().broker_addr_table


@pytest_twisted.ensureDeferred
async def test_broker_without_namesrv_addr_registers_with_servers_of_page(tmp_path, monkeypatch):
    monkeypatch.setattr(address_server, "INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(name_server_addresses, "RETRY_SECONDS", 0.05)
    page = Page()
    async with (
        serving(page) as domain,
        running(make_name_server(tmp_path)) as first,
        running(make_name_server(tmp_path)) as second,
        running(
            make_a_broker(
                tmp_path,
                fetchNamesrvAddrByAddressServer="true",
                rmqAddressServerDomain=domain,
                rmqAddressServerSubGroup="nsaddr-unit",
            )
        ) as broker,
    ):
        # Nothing is known yet: the page is asked for again, soon.
        await eventually(lambda: len(page.asked) > 2)
        assert set(page.asked) == {b"/rocketmq/nsaddr-unit"}
        assert not knows(first)
        page.text = f"127.0.0.1:{first.port}\n"
        await eventually(lambda: knows(first))
        # The page changes: the registration follows.
        page.text = f"127.0.0.1:{second.port};127.0.0.1:{first.port}\n"
        await eventually(lambda: knows(second))
        # A page that fails later changes nothing.
        page.text = ""
        asked = len(page.asked)
        await eventually(lambda: len(page.asked) > asked + 2)
        assert len(broker.client.name_servers.addresses) == 2
        # An operator who names name servers wins over the page.
        broker.settings.update(f"namesrvAddr=127.0.0.1:{second.port}")
        await broker.registration.register()
        assert broker.client.name_servers.addresses == (f"127.0.0.1:{second.port}",)


@pytest_twisted.ensureDeferred
async def test_broker_with_namesrv_addr_does_not_fetch_the_page(tmp_path):
    page = Page()
    async with serving(page) as domain, running(make_name_server(tmp_path)) as name_server:
        options = {"fetchNamesrvAddrByAddressServer": "true", "rmqAddressServerDomain": domain}
        address = f"127.0.0.1:{name_server.port}"
        async with running(make_a_broker(tmp_path, namesrvAddr=address, **options)):
            await eventually(lambda: knows(name_server))
        assert page.asked == []


def test_page_url_equals_apaches():
    assert page_url(BrokerConfig()) == "http://jmenv.tbsite.net:8080/rocketmq/nsaddr"
    config = BrokerConfig(rmq_address_server_domain="names.example:80", rmq_address_server_sub_group="x")
    assert page_url(config) == "http://names.example:80/rocketmq/x"


def test_malformed_domain_ends_the_start():
    with pytest.raises(ConfigError, match="rmqAddressServerDomain = http://names: accepted is a host or host:port"):
        BrokerSettings.load(None, [("rmqAddressServerDomain", "http://names")])


@asynccontextmanager
async def a_master_and_a_page(directory, monkeypatch):
    """A name server that knows a master, and the page that may name it; yields also the options that name the page."""
    monkeypatch.setattr(name_server_addresses, "RETRY_SECONDS", 0.05)
    page = Page()
    async with serving(page) as domain, running(make_name_server(directory)) as name_server:
        address = f"127.0.0.1:{name_server.port}"
        async with running(make_a_broker(directory / "first", namesrvAddr=address)) as master:
            await eventually(lambda: knows(name_server))
            yield (
                name_server,
                master,
                page,
                {"fetchNamesrvAddrByAddressServer": "true", "rmqAddressServerDomain": domain},
            )


def registered_master(name_server):
    return name_server.routes.cluster_info().broker_addr_table["broker-a"].broker_addrs[0]


@pytest_twisted.ensureDeferred
async def test_second_master_finding_the_first_by_page_does_not_start(tmp_path, monkeypatch):
    async with a_master_and_a_page(tmp_path, monkeypatch) as (name_server, master, page, options):
        page.text = f"127.0.0.1:{name_server.port}\n"
        second = make_a_broker(tmp_path / "second", **options)
        second.startService()
        with pytest.raises(SecondMasterError, match=f"another master of broker-a .* answers at {master.address}"):
            await second.when_serving()
        assert not second.running
        assert registered_master(name_server) == master.address


@pytest.mark.parametrize("told_by", ["page", "request"])
@pytest_twisted.ensureDeferred
async def test_second_master_finding_the_first_late_steps_down(tmp_path, monkeypatch, told_by):
    async with a_master_and_a_page(tmp_path, monkeypatch) as (name_server, master, page, options):
        address = f"127.0.0.1:{name_server.port}"
        async with running(make_a_broker(tmp_path / "second", **options if told_by == "page" else {})) as second:
            await second.when_serving()
            assert second.client.name_servers.addresses == ()
            if told_by == "page":
                page.text = address
            else:
                second.settings.update(f"namesrvAddr={address}")
                second.registration.register()
            await eventually(lambda: second.replication.table()["haSendsRefused"] == "true")
            await second.registration.register()
            assert registered_master(name_server) == master.address
        # Its stop leaves the other's registration, too.
        assert registered_master(name_server) == master.address
        assert master.replication.table()["haSendsRefused"] == "false"


@pytest.mark.parametrize("known", ["before", "after"])
@pytest_twisted.ensureDeferred
async def test_master_takes_over_state_of_slaves_found_by_page(tmp_path, monkeypatch, known):
    monkeypatch.setattr(name_server_addresses, "RETRY_SECONDS", 0.05)
    page = Page()
    async with serving(page) as domain, running(make_name_server(tmp_path)) as name_server:
        address = f"127.0.0.1:{name_server.port}"
        slave = make_a_broker(tmp_path / "slave", namesrvAddr=address, brokerRole="SLAVE", brokerId="1")
        async with running(slave):
            slave.offsets.commit("c", "G", "T", 0, 5)
            await eventually(lambda: knows(name_server))
            page.text = address if known == "before" else ""
            options = {"fetchNamesrvAddrByAddressServer": "true", "rmqAddressServerDomain": domain}
            async with running(make_a_broker(tmp_path / "master", **options)) as master:
                await master.when_serving()
                assert (master.offsets.query("G", "T", 0) == -1) == (known == "after")
                page.text = address
                await eventually(
                    lambda: 0 in name_server.routes.cluster_info().broker_addr_table["broker-a"].broker_addrs
                )
                assert "T@G" in master.offsets.snapshot().offset_table
