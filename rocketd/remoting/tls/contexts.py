"""TLS contexts of both sides, from the ``tls.*`` settings.

Counterpart: `TlsHelper` and `TlsMode` (Apache). Contexts are built when the daemon starts, so a wrong path or password
is reported then instead of by failed handshakes.
"""

from typing import Any

from OpenSSL import SSL
from twisted.internet import ssl
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOProtocol
from zope.interface import implementer

from rocketd.remoting.settings import TlsConfig
from rocketd.remoting.tls.certificates import TLSConfigError, TLSIdentity, read_certificates, read_identity, self_signed

DISABLED = "disabled"
PERMISSIVE = "permissive"
ENFORCING = "enforcing"

_log = Logger()


# ---------------------------------------------------------------- the listening side


def server_context(settings: TlsConfig) -> ssl.CertificateOptions | None:
    """Build the context of the listening side. None if TLS is disabled or no certificate is configured.

    In test mode the certificate is newly created and cannot be verified. Raises TLSConfigError if named files are
    unusable, or if none are named and the mode is enforcing.
    """
    if settings.server_mode == DISABLED:
        return None
    if settings.test_mode_enable:
        return _options(self_signed())
    if settings.server_key_path is None and settings.server_cert_path is None and settings.server_mode == PERMISSIVE:
        _log.warn("TLS connections are refused: neither tls.server.keyPath nor tls.server.certPath is set")
        return None
    identity = read_identity(
        "tls.server", settings.server_key_path, settings.server_cert_path, settings.server_key_password
    )
    if settings.server_need_client_auth == "none":
        return _options(identity)
    options = _options(identity)
    context = options.getContext()
    flags = SSL.VERIFY_PEER
    if settings.server_need_client_auth == "require":
        flags |= SSL.VERIFY_FAIL_IF_NO_PEER_CERT
    if not settings.server_auth_client:
        context.set_verify(flags, lambda *_: True)
        return options
    if settings.server_trust_cert_path is None:
        context.set_default_verify_paths()
    else:
        store = context.get_cert_store()
        for trusted in read_certificates("tls.server.trustCertPath", settings.server_trust_cert_path):
            store.add_cert(trusted)
            context.add_client_ca(trusted)
    context.set_verify(flags)
    return options


# ---------------------------------------------------------------- the connecting side


class ClientTLS:
    """TLS of outgoing connections. Raises TLSConfigError if the settings are unusable.

    In test mode, and unless ``tls.client.authServer`` is true, every server is trusted. Otherwise its certificate must
    be signed according to ``tls.client.trustCertPath`` (default: the system's certificates), and name the dialled host
    or IP address. Apache does not check the name.
    """

    def __init__(self, settings: TlsConfig) -> None:
        self._verify = settings.client_auth_server and not settings.test_mode_enable
        self._identity: TLSIdentity | None = None
        if not settings.test_mode_enable and (settings.client_key_path or settings.client_cert_path):
            self._identity = read_identity(
                "tls.client", settings.client_key_path, settings.client_cert_path, settings.client_key_password
            )
        self._trust: Any = None
        if self._verify:
            path = settings.client_trust_cert_path
            self._trust = ssl.platformTrust() if path is None else _trust_root(path)
        self._trusting = None if self._verify else _AnyServer(_options(self._identity))

    def connection_creator(self, host: str) -> IOpenSSLClientConnectionCreator:
        """Return the creator of TLS connections to a host name or IP address."""
        if self._trusting is not None:
            return self._trusting
        return ssl.optionsForClientTLS(
            host, trustRoot=self._trust, extraCertificateOptions=_identity_arguments(self._identity)
        )


@implementer(IOpenSSLClientConnectionCreator)
class _AnyServer:
    """Trusts every server without checking its certificate."""

    def __init__(self, options: ssl.CertificateOptions) -> None:
        self._options = options

    def clientConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:  # noqa: N803
        """Create a connection without verification."""
        return SSL.Connection(self._options.getContext(), None)


# ---------------------------------------------------------------- for both


def _options(identity: TLSIdentity | None) -> ssl.CertificateOptions:
    try:
        options = ssl.CertificateOptions(**_identity_arguments(identity))
        options.getContext()
    except SSL.Error as error:
        raise TLSConfigError(f"the private key does not match the certificate: {ssl_reason(error)}") from error
    return options


def _identity_arguments(identity: TLSIdentity | None) -> dict[str, Any]:
    if identity is None:
        return {}
    return {
        "privateKey": identity.key,
        "certificate": identity.certificate,
        "extraCertChain": identity.chain,
    }


def _trust_root(path: str) -> Any:
    return ssl.trustRootFromCertificates(
        [ssl.Certificate(found) for found in read_certificates("tls.client.trustCertPath", path)]
    )


def ssl_reason(error: SSL.Error) -> str:
    """Return OpenSSL's reason for an error."""
    try:
        return str(error.args[0][-1][-1])
    except (IndexError, TypeError):
        return str(error)
