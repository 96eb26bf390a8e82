"""TLS contexts, and plain and TLS connections on one port over real loopback sockets."""

import os

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from twisted.internet import defer, reactor, task
from twisted.internet.endpoints import TCP4ClientEndpoint, wrapClientTLS
from twisted.internet.interfaces import IHandshakeListener, ISSLTransport
from twisted.internet.protocol import Factory, Protocol
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase, TestCase
from zope.interface import implementer

from rocketd.remoting.settings import TlsConfig
from rocketd.remoting.tls.certificates import TLSConfigError, read_identity
from rocketd.remoting.tls.contexts import ClientTLS, server_context
from rocketd.remoting.tls.port import wrap_server_factory


class Echo(Protocol):
    """Echoes received data; the first byte tells whether the transport is secure."""

    def __init__(self, factory):
        self.factory = factory

    def connectionMade(self):
        self.factory.made += 1
        self.transport.write(b"S" if ISSLTransport.providedBy(self.transport) else b"P")

    def dataReceived(self, data):
        self.transport.write(data)

    def connectionLost(self, reason=None):
        self.factory.lost += 1
        if self.factory.on_lost is not None:
            self.factory.on_lost.callback(None)


class EchoFactory(Factory):
    noisy = False
    made = lost = 0
    on_lost = None

    def buildProtocol(self, addr):
        self.last = Echo(self)
        return self.last


@implementer(IHandshakeListener)
class Caller(Protocol):
    """Sends a text at once and collects the answer."""

    def __init__(self, text):
        self.text = text
        self.got = b""
        self.done = defer.Deferred()

    def connectionMade(self):
        if self.text:
            self.transport.write(self.text)

    def handshakeCompleted(self):
        pass

    def dataReceived(self, data):
        self.got += data
        if self.text and len(self.got) == 1 + len(self.text):
            self.transport.loseConnection()

    def connectionLost(self, reason=None):
        self.reason = reason
        self.done.callback(self.got)


class OnePortTestCase(TestCase):
    def listen(self, settings):
        self.echo = EchoFactory()
        port = reactor.listenTCP(0, wrap_server_factory(settings, reactor)(self.echo), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.echo.on_lost = defer.Deferred()
        self.port = port.getHost().port

    @defer.inlineCallbacks
    def call(self, text=b"hello", tls=None, host="127.0.0.1"):
        caller = self.caller = Caller(text)
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", self.port)
        if tls is not None:
            endpoint = wrapClientTLS(tls.connection_creator(host), endpoint)
        yield endpoint.connect(Factory.forProtocol(lambda: caller))
        got = yield caller.done
        yield self.echo.on_lost
        self.echo.on_lost = defer.Deferred()
        return got


class OnePortTests(OnePortTestCase):
    @defer.inlineCallbacks
    def test_plain_and_tls_share_one_port(self):
        self.listen(TlsConfig())
        for _ in range(2):
            self.assertEqual((yield self.call()), b"Phello")
            self.assertEqual((yield self.call(tls=ClientTLS(TlsConfig()))), b"Shello")
        self.assertEqual((self.echo.made, self.echo.lost), (4, 4))

    @defer.inlineCallbacks
    def test_large_traffic_over_tls(self):
        self.listen(TlsConfig())
        text = os.urandom(1 << 20)
        self.assertEqual((yield self.call(text, tls=ClientTLS(TlsConfig()))), b"S" + text)

    @defer.inlineCallbacks
    def test_disabled_closes_tls_and_serves_plain(self):
        self.listen(TlsConfig(server_mode="disabled"))
        self.assertEqual((yield self.call(tls=ClientTLS(TlsConfig()))), b"")
        self.assertEqual((yield self.call()), b"Phello")
        self.assertEqual((self.echo.made, self.echo.lost), (1, 2))

    @defer.inlineCallbacks
    def test_enforcing_closes_plain_and_serves_tls(self):
        self.listen(TlsConfig(server_mode="enforcing"))
        self.assertEqual((yield self.call()), b"")
        self.assertEqual((yield self.call(tls=ClientTLS(TlsConfig()))), b"Shello")

    @defer.inlineCallbacks
    def test_permissive_without_certificate_serves_plain_only(self):
        self.listen(TlsConfig(test_mode_enable=False))
        self.assertEqual((yield self.call(tls=ClientTLS(TlsConfig()))), b"")
        self.assertEqual((yield self.call()), b"Phello")

    @defer.inlineCallbacks
    def test_silent_connection_can_be_closed_through_its_protocol(self):
        self.listen(TlsConfig())
        caller = Caller(b"")
        yield TCP4ClientEndpoint(reactor, "127.0.0.1", self.port).connect(Factory.forProtocol(lambda: caller))
        while self.echo.lost == 0 and getattr(getattr(self.echo, "last", None), "transport", None) is None:
            turn = defer.Deferred()
            reactor.callLater(0.001, turn.callback, None)
            yield turn
        self.echo.last.transport.abortConnection()
        yield caller.done
        yield self.echo.on_lost
        self.assertEqual((self.echo.made, self.echo.lost), (0, 1))

    @defer.inlineCallbacks
    def test_garbage_like_tls_closes_its_connection_only(self):
        self.listen(TlsConfig())
        self.assertNotIn(b"garbage", (yield self.call(b"\x16garbage garbage garbage")))
        self.assertEqual((yield self.call()), b"Phello")


class VerificationTests(OnePortTestCase):
    """Real certificates: trusted and untrusted peers."""

    def setUp(self):
        self.folder = self.mktemp()
        os.mkdir(self.folder)
        self.authority = trustme.CA()
        self.trust = self.write("ca.pem", self.authority.cert_pem.bytes())

    def write(self, name, content):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def issue(self, name, *hosts):
        issued = self.authority.issue_cert(*hosts)
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        return self.write(f"{name}.key", issued.private_key_pem.bytes()), self.write(f"{name}.pem", chain)

    def server(self, *hosts, **arguments):
        key, certificate = self.issue("server", *hosts)
        return TlsConfig(test_mode_enable=False, server_key_path=key, server_cert_path=certificate, **arguments)

    def client(self, **arguments):
        arguments = {"client_auth_server": True, "client_trust_cert_path": self.trust, **arguments}
        return ClientTLS(TlsConfig(test_mode_enable=False, **arguments))

    def listen_for_certificates(self, need):
        options = {"server_need_client_auth": need, "server_auth_client": True, "server_trust_cert_path": self.trust}
        self.listen(self.server("127.0.0.1", **options))

    def known_client(self):
        key, certificate = self.issue("client", "client.example")
        return self.client(client_key_path=key, client_cert_path=certificate)

    def stranger(self):
        issued = trustme.CA().issue_cert("client.example")
        key = self.write("stranger.key", issued.private_key_pem.bytes())
        certificate = self.write("stranger.pem", issued.cert_chain_pems[0].bytes())
        return self.client(client_key_path=key, client_cert_path=certificate)

    @defer.inlineCallbacks
    def test_address_in_certificate_is_trusted(self):
        self.listen(self.server("127.0.0.1"))
        self.assertEqual((yield self.call(tls=self.client())), b"Shello")

    @defer.inlineCallbacks
    def test_host_name_in_certificate_is_trusted(self):
        self.listen(self.server("broker.example"))
        self.assertEqual((yield self.call(tls=self.client(), host="broker.example")), b"Shello")

    @defer.inlineCallbacks
    def test_other_name_is_not_trusted(self):
        self.listen(self.server("broker.example"))
        self.assertEqual((yield self.call(tls=self.client(), host="other.example")), b"")
        self.assertEqual((yield self.call(tls=self.client())), b"")

    @defer.inlineCallbacks
    def test_other_authority_is_not_trusted(self):
        self.listen(self.server("127.0.0.1"))
        other = self.write("other.pem", trustme.CA().cert_pem.bytes())
        self.assertEqual((yield self.call(tls=self.client(client_trust_cert_path=other))), b"")

    @defer.inlineCallbacks
    def test_every_server_is_trusted_without_auth_server(self):
        self.listen(TlsConfig())
        self.assertEqual((yield self.call(tls=self.client(client_auth_server=False))), b"Shello")

    @defer.inlineCallbacks
    def test_required_client_certificate(self):
        self.listen_for_certificates("require")
        known, unknown = self.known_client(), self.stranger()
        self.assertEqual((yield self.call(tls=known)), b"Shello")
        self.assertNotIn(b"hello", (yield self.call(tls=unknown)))
        self.assertNotIn(b"hello", (yield self.call(tls=self.client())))

    @defer.inlineCallbacks
    def test_required_but_unchecked_client_certificate(self):
        self.listen(self.server("127.0.0.1", server_need_client_auth="require"))
        self.assertEqual((yield self.call(tls=self.stranger())), b"Shello")
        self.assertNotIn(b"hello", (yield self.call(tls=self.client())))

    @defer.inlineCallbacks
    def test_optional_client_certificate_is_checked_if_present(self):
        self.listen_for_certificates("optional")
        known, unknown = self.known_client(), self.stranger()
        self.assertEqual((yield self.call(tls=self.client())), b"Shello")
        self.assertEqual((yield self.call(tls=known)), b"Shello")
        self.assertNotIn(b"hello", (yield self.call(tls=unknown)))

    @defer.inlineCallbacks
    def test_renewed_certificate_is_used_only_if_complete(self):
        self.listen(self.server("old.example"))
        renewed = self.authority.issue_cert("new.example")
        with capturedLogs() as events:
            self.write("server.key", renewed.private_key_pem.bytes())
            while not any("stay in use" in event["log_format"] for event in events):
                yield task.deferLater(reactor, 0.01)
        self.assertEqual((yield self.call(tls=self.client(), host="old.example")), b"Shello")
        self.write("server.pem", b"".join(blob.bytes() for blob in renewed.cert_chain_pems))
        while (yield self.call(tls=self.client(), host="new.example")) != b"Shello":
            yield task.deferLater(reactor, 0.01)
        self.assertEqual((yield self.call(tls=self.client(), host="old.example")), b"")


class ConfigurationErrorTests(SynchronousTestCase):
    def setUp(self):
        self.folder = self.mktemp()
        os.mkdir(self.folder)
        issued = trustme.CA().issue_cert("127.0.0.1")
        self.key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        self.certificate = self.write("server.pem", issued.cert_chain_pems[0].bytes())

    def write(self, name, content):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def write_key(self, form, password=None):
        encryption = NoEncryption() if password is None else BestAvailableEncryption(password)
        return self.write("server.key", self.key.private_bytes(Encoding.PEM, form, encryption))

    def assert_refused(self, text, **arguments):
        error = self.assertRaises(TLSConfigError, server_context, TlsConfig(test_mode_enable=False, **arguments))
        self.assertIn(text, str(error))

    def test_key_formats_are_read(self):
        for form in (PrivateFormat.TraditionalOpenSSL, PrivateFormat.PKCS8):
            for password in (None, b"secret"):
                path = self.write_key(form, password)
                identity = read_identity("tls.server", path, self.certificate, "secret")
                self.assertEqual(identity.key.bits(), self.key.key_size)

    def test_missing_password(self):
        path = self.write_key(PrivateFormat.PKCS8, b"secret")
        self.assert_refused("set tls.server.keyPassword", server_key_path=path, server_cert_path=self.certificate)

    def test_wrong_password(self):
        path = self.write_key(PrivateFormat.PKCS8, b"secret")
        self.assert_refused(
            "cannot be read with tls.server.keyPassword",
            server_key_path=path,
            server_cert_path=self.certificate,
            server_key_password="guess",
        )

    def test_missing_file(self):
        self.assert_refused("cannot read nowhere.pem", server_key_path="k", server_cert_path="nowhere.pem")

    def test_files_without_pem_are_refused(self):
        junk = self.write("junk.pem", b"junk")
        self.assert_refused("does not contain a PEM certificate", server_key_path=junk, server_cert_path=junk)
        self.assert_refused("is not a PEM private key", server_key_path=junk, server_cert_path=self.certificate)

    def test_key_of_other_certificate_is_refused(self):
        other = trustme.CA().issue_cert("127.0.0.1")
        path = self.write("other.key", other.private_key_pem.bytes())
        self.assert_refused("does not match the certificate", server_key_path=path, server_cert_path=self.certificate)

    def test_enforcing_needs_a_certificate(self):
        self.assert_refused("tls.server.keyPath is not set", server_mode="enforcing")

    def test_certificate_without_key(self):
        self.assert_refused("tls.server.keyPath is not set", server_cert_path=self.certificate)

    def test_client_without_trusted_file(self):
        settings = TlsConfig(test_mode_enable=False, client_auth_server=True, client_trust_cert_path="nowhere.pem")
        error = self.assertRaises(TLSConfigError, ClientTLS, settings)
        self.assertIn("tls.client.trustCertPath", str(error))
