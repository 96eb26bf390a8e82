"""A broker whose name servers are named by a page: real HTTP, real registrations."""

from contextlib import asynccontextmanager

import pytest
import pytest_twisted
from test_broker import make_a_broker, make_name_server
from twisted.internet import reactor
from twisted.web.resource import Resource
from twisted.web.server import Site
from wire_client import eventually, running

from rocketd.broker import name_server_addresses
from rocketd.broker.name_server_addresses import page_url
from rocketd.broker.settings import BrokerConfig, BrokerSettings
from rocketd.common.config import ConfigError
from rocketd.remoting import address_server


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
async def test_broker_without_namesrv_addr_registers_with_the_servers_that_a_page_names(tmp_path, monkeypatch):
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
async def test_broker_with_namesrv_addr_asks_no_page(tmp_path):
    page = Page()
    async with serving(page) as domain, running(make_name_server(tmp_path)) as name_server:
        options = {"fetchNamesrvAddrByAddressServer": "true", "rmqAddressServerDomain": domain}
        address = f"127.0.0.1:{name_server.port}"
        async with running(make_a_broker(tmp_path, namesrvAddr=address, **options)):
            await eventually(lambda: knows(name_server))
        assert page.asked == []


def test_page_url_is_that_of_apache():
    assert page_url(BrokerConfig()) == "http://jmenv.tbsite.net:8080/rocketmq/nsaddr"
    config = BrokerConfig(rmq_address_server_domain="names.example:80", rmq_address_server_sub_group="x")
    assert page_url(config) == "http://names.example:80/rocketmq/x"


def test_domain_that_is_not_a_host_ends_the_start():
    with pytest.raises(ConfigError, match="rmqAddressServerDomain = http://names: accepted is a host or host:port"):
        BrokerSettings.load(None, [("rmqAddressServerDomain", "http://names")])
