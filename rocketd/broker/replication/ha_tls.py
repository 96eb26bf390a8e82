"""TLS between master and slave: what the port for slaves asks for, and what a slave shows.

No counterpart in Apache, whose replication is always plain. Keys and certificates are those of the ``tls.*`` settings.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from twisted.internet.interfaces import IProtocolFactory

from rocketd.remoting.certificate_watch import CertificateWatch
from rocketd.remoting.certificates import TLSConfigError
from rocketd.remoting.settings import TlsConfig
from rocketd.remoting.tls import DISABLED, ENFORCING, ClientTLS
from rocketd.remoting.tls_port import DetectingFactory
from rocketd.store.settings import MessageStoreConfig

MODE = "haTlsMode"


def wrap_slave_factory(
    config: MessageStoreConfig, tls: TlsConfig, reactor: Any
) -> Callable[[IProtocolFactory], IProtocolFactory] | None:
    """Return what puts TLS around the factory of the port for slaves; None if it is plain. Raises TLSConfigError."""
    if config.ha_tls_mode == DISABLED:
        return None
    given = f"{MODE} = {config.ha_tls_mode}"
    if tls.test_mode_enable:
        raise TLSConfigError(f"{given}: set tls.test.mode.enable=false, tls.server.keyPath and tls.server.certPath")
    trust = config.ha_tls_trust_cert_path or tls.server_trust_cert_path
    if trust is None:
        raise TLSConfigError(f"{given}: set haTlsTrustCertPath or tls.server.trustCertPath, which vouch for slaves")
    demanding = replace(
        tls,
        server_mode=ENFORCING,
        server_need_client_auth="require",
        server_auth_client=True,
        server_trust_cert_path=trust,
    )
    watch = CertificateWatch(demanding, reactor)
    return lambda factory: DetectingFactory(factory, config.ha_tls_mode, watch, MODE)


def slave_tls(config: MessageStoreConfig, tls: TlsConfig) -> ClientTLS | None:
    """Return how a slave connects; None if it connects plain. Raises TLSConfigError.

    The slave shows a certificate and verifies the master's: what a false master sends would be taken for messages.
    """
    if not config.ha_tls_enable or config.broker_role != "SLAVE":
        return None
    if tls.test_mode_enable or not tls.client_auth_server or not tls.client_key_path or not tls.client_cert_path:
        raise TLSConfigError(
            "haTlsEnable = true: set tls.test.mode.enable=false, tls.client.keyPath, tls.client.certPath and "
            "tls.client.authServer=true"
        )
    return ClientTLS(tls)
