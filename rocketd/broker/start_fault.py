"""Finds the reason why a start with changed settings would fail, while the broker runs.

Rules on settings alone are in ``BrokerSettings.derive``. The rules here need files: of the store, certificates,
accounts. Any thread; blocks.
"""

from rocketd.broker.access.access_control import make_access_control
from rocketd.broker.base.extensions import accounts_are_replaced
from rocketd.broker.base.settings import BrokerSettings
from rocketd.broker.replication.ha_tls import slave_port_tls, slave_tls
from rocketd.common.settings.declaration import ConfigError
from rocketd.remoting.tls.certificates import TLSConfigError
from rocketd.remoting.tls.contexts import ClientTLS, server_context
from rocketd.store.base.errors import StoreError
from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.recovery.file_sizes import check_file_sizes


def start_fault(now: BrokerSettings, tried: BrokerSettings, fs: IFileSystem) -> str | None:
    """Return why a broker would not start with the settings ``tried`` in place of ``now``; None if it would.

    Only differences are checked.
    """
    try:
        check_file_sizes(fs, now.store, tried.store)
        if _tls_of(tried) != _tls_of(now):
            _check_tls(tried)
        if tried.broker.acl_enable and not now.broker.acl_enable and not accounts_are_replaced():
            make_access_control(tried.broker, lambda: 0)
    except (ConfigError, TLSConfigError, StoreError, OSError) as error:
        return str(error)
    return None


def _tls_of(settings: BrokerSettings) -> tuple[object, ...]:
    store = settings.store
    return settings.tls, settings.client.use_tls, store.ha_tls_mode, store.ha_tls_enable, store.broker_role


def _check_tls(settings: BrokerSettings) -> None:
    server_context(settings.tls)
    if settings.client.use_tls:
        ClientTLS(settings.tls)
    for_slaves = slave_port_tls(settings.store, settings.tls)
    if for_slaves is not None:
        server_context(for_slaves)
    slave_tls(settings.store, settings.tls)
