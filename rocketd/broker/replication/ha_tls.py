"""TLS between master and slave: the demands of the port for slaves, and the certificate of a slave.

Apache's replication is always plain text. Keys and certificates are those of the ``tls.*`` settings.
"""

from collections.abc import Callable
from dataclasses import replace

from twisted.internet.interfaces import IProtocolFactory

from rocketd.common.event_loop.reactor import IReactor
from rocketd.remoting.settings import TlsConfig
from rocketd.remoting.tls.certificate_watch import CertificateWatch
from rocketd.remoting.tls.certificates import TLSConfigError
from rocketd.remoting.tls.contexts import DISABLED, ENFORCING, ClientTLS
from rocketd.remoting.tls.port import DetectingFactory
from rocketd.store.base.settings import MessageStoreConfig

MODE = "haTlsMode"


def wrap_slave_factory(
    config: MessageStoreConfig, tls: TlsConfig, reactor: IReactor
) -> Callable[[IProtocolFactory], IProtocolFactory] | None:
    """Return a wrapper that adds TLS to the factory of the port for slaves; None if it is plain.

    Raises TLSConfigError.
    """
    demanding = slave_port_tls(config, tls)
    if demanding is None:
        return None
    watch = CertificateWatch(demanding, reactor)
    return lambda factory: DetectingFactory(factory, config.ha_tls_mode, watch, reactor, MODE)


def slave_port_tls(config: MessageStoreConfig, tls: TlsConfig) -> TlsConfig | None:
    """Return the TLS settings of the port for slaves; None if it is plain. Raises TLSConfigError."""
    if config.ha_tls_mode == DISABLED:
        return None
    given = f"{MODE} = {config.ha_tls_mode}"
    if tls.test_mode_enable:
        raise TLSConfigError(f"{given}: set tls.test.mode.enable=false, tls.server.keyPath and tls.server.certPath")
    trust = config.ha_tls_trust_cert_path or tls.server_trust_cert_path
    if trust is None:
        raise TLSConfigError(f"{given}: set haTlsTrustCertPath or tls.server.trustCertPath, which vouch for slaves")
    return replace(
        tls,
        server_mode=ENFORCING,
        server_need_client_auth="require",
        server_auth_client=True,
        server_trust_cert_path=trust,
    )


def slave_tls(config: MessageStoreConfig, tls: TlsConfig) -> ClientTLS | None:
    """Return the TLS settings of a slave's connection; None if it is plain. Raises TLSConfigError.

    The slave shows a certificate and verifies the master's: data from a false master would be taken for messages.
    """
    if not config.ha_tls_enable or config.broker_role != "SLAVE":
        return None
    if tls.test_mode_enable or not tls.client_auth_server or not tls.client_key_path or not tls.client_cert_path:
        raise TLSConfigError(
            "haTlsEnable = true: set tls.test.mode.enable=false, tls.client.keyPath, tls.client.certPath and "
            "tls.client.authServer=true"
        )
    return ClientTLS(tls)
