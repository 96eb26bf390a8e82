"""How a client finds its name servers by HTTP, against a page on loopback."""

import os

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory, Protocol
from twisted.trial.unittest import SynchronousTestCase, TestCase
from twisted.web.resource import Resource
from twisted.web.server import Site

from rocketd.client.errors import IllegalOptionError, NoNameServerError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.settings.config import ClientConfig
from rocketd.remoting.calling import address_server
from rocketd.remoting.calling.address_server import addresses_in, page_of

LIMIT = 60  # seconds


class Page(Resource):
    """Answers every path with ``status`` and ``text``; ``asked`` has the paths, ``seen`` fires at the next request."""

    isLeaf = True  # noqa: N815

    def __init__(self):
        super().__init__()
        self.status = 200
        self.text = b"127.0.0.1:1;127.0.0.1:2\n"
        self.asked = []
        self.seen = Deferred()

    def render_GET(self, request):  # noqa: N802
        request.setResponseCode(self.status)
        self.asked.append(request.uri)
        seen, self.seen = self.seen, Deferred()
        reactor.callLater(0, seen.callback, None)
        return self.text


class AddressServerTests(TestCase):
    def listen(self, factory):
        port = reactor.listenTCP(0, factory, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        return f"http://127.0.0.1:{port.getHost().port}/rocketmq/nsaddr"

    def client(self, url, **options):
        client = ClientInstance(reactor, ClientConfig(name_server_url=url, client_ip="10.0.0.9", **options))
        client.startService()
        self.addCleanup(client.stopService)
        return client

    def setUp(self):
        self.page = Page()
        self.url = self.listen(Site(self.page))

    def servers(self, client):
        return set(client.remoting.name_servers.addresses)

    async def fail_to_ask(self, client):
        with self.assertRaises(NoNameServerError) as caught:
            await client.routes.route("T")
        self.assertTrue(caught.exception.retriable)
        return str(caught.exception)

    def test_request_without_name_server_fetches_the_page(self):
        async def run():
            client = self.client(self.url)
            self.assertEqual(self.page.asked, [])
            # No server listens at the addresses of the page; the test only sees that they are asked.
            self.assertIn("127.0.0.1:", await self.fail_to_ask(client))
            self.assertEqual(self.servers(client), {"127.0.0.1:1", "127.0.0.1:2"})
            await self.fail_to_ask(client)
            self.assertEqual(self.page.asked, [b"/rocketmq/nsaddr"])

        return Deferred.fromCoroutine(run())

    def test_concurrent_requests_share_one_page_fetch(self):
        async def run():
            client = self.client(self.url, unit_name="north")
            await gatherResults([Deferred.fromCoroutine(self.fail_to_ask(client)) for _ in range(3)])
            self.assertEqual(self.page.asked, [b"/rocketmq/nsaddr-north?nofix=1"])

        return Deferred.fromCoroutine(run())

    def test_bad_page_is_reported_and_fetched_again_by_next_call(self):
        async def run():
            client = self.client(self.url)
            self.page.status = 404
            self.assertIn(
                f"asking {self.url} for the addresses of name servers failed: its answer has status 404",
                await self.fail_to_ask(client),
            )
            self.page.status, self.page.text = 200, b"<html>hello</html>"
            self.assertIn(
                "does not list addresses of name servers: '<html>hello</html>'", await self.fail_to_ask(client)
            )
            self.page.text = b""
            self.assertIn("does not list addresses of name servers: ''", await self.fail_to_ask(client))
            self.page.text = b"127.0.0.1:3"
            await self.fail_to_ask(client)
            self.assertEqual(self.servers(client), {"127.0.0.1:3"})

        return Deferred.fromCoroutine(run())

    def test_refused_connection_and_lost_connection_are_reported(self):
        class Gone(Protocol):
            def dataReceived(self, data):
                self.transport.loseConnection()

        async def run():
            self.assertIn("refused", await self.fail_to_ask(self.client("http://127.0.0.1:1/x")))
            text = await self.fail_to_ask(self.client(self.listen(Factory.forProtocol(Gone))))
            self.assertIn(str(ConnectionDone()), text)

        return Deferred.fromCoroutine(run())

    def test_missing_answer_times_out(self):
        self.patch(address_server, "TIMEOUT_SECONDS", 0.05)

        class Stalls(Protocol):
            def dataReceived(self, data):
                self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n127")

        async def run():
            for protocol in (Protocol, Stalls):
                client = self.client(self.listen(Factory.forProtocol(protocol)))
                self.assertIn("no answer within 0.05 s", await self.fail_to_ask(client))

        return Deferred.fromCoroutine(run())

    def test_stop_ends_page_fetch_under_way(self):
        silent = self.listen(Factory.forProtocol(Protocol))
        client = self.client(silent)
        asking = Deferred.fromCoroutine(client.routes.route("T"))
        client.stopService()
        return asking.addBoth(lambda result: self.assertIsNotNone(result)).addTimeout(LIMIT, reactor)

    def test_list_follows_page_and_survives_bad_answers(self):
        self.patch(address_server, "INTERVAL_SECONDS", 0.01)

        async def run():
            client = self.client(self.url)
            await self.fail_to_ask(client)
            self.page.text = b"127.0.0.1:3"
            while self.servers(client) != {"127.0.0.1:3"}:
                await self.page.seen
            for status, text in ((503, b"127.0.0.1:4"), (200, b"nonsense")):
                self.page.status, self.page.text = status, text
                for _ in range(3):
                    await self.page.seen
                self.assertEqual(self.servers(client), {"127.0.0.1:3"})

        return Deferred.fromCoroutine(run()).addTimeout(LIMIT, reactor)


class PageTests(SynchronousTestCase):
    def test_addresses(self):
        self.assertEqual(addresses_in(" a:1; [::1]:2;\r\nmore"), ["a:1", "[::1]:2"])
        for text in ("", "\n", "a", "a:1,b:2", "a:70000"):
            self.assertRaises(ValueError, addresses_in, text)

    def test_unit_name_is_part_of_page_address(self):
        self.assertEqual(page_of("http://h/ns", "u"), "http://h/ns-u?nofix=1")
        for unit in (None, "", " "):
            self.assertEqual(page_of("http://h/ns", unit), "http://h/ns")

    def test_options(self):
        # The program's option takes precedence over the environment.
        self.patch(os, "environ", {**os.environ, "NAMESRV_ADDR": "elsewhere:9876"})
        self.assertEqual(ClientConfig(name_server_url="http://host").name_servers(), [])
        for wrong in ("host:80", "https://host/x", "http:///x", "http://h/x?y", "http://h/a b", ""):
            self.assertRaises(IllegalOptionError, ClientConfig, name_server_url=wrong)
        self.assertRaises(IllegalOptionError, ClientConfig, name_server_url="http://h/x", namesrv="h:1")
