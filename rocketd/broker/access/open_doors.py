"""Warns at the start of access that the settings leave open to strangers.

Apache's broker is as open, but gives no warning. Pure functions.
"""

from rocketd.broker.base.settings import BrokerSettings
from rocketd.common.networks import network_list


def open_doors(settings: BrokerSettings) -> list[str]:
    """Return one line for each open access, with the setting that closes it."""
    broker = settings.broker
    found = []
    if broker.acl_enable:
        if not broker.acl_strict:
            found.append(
                "aclEnable=true without aclStrict=true, as at Apache's broker: an account without any rights can read all "
                "secrets (54), make itself an admin (50), delete accounts (51), open the broker to any address (53), "
                "read any message by its offset in the log (33), send it back to any group (36), send batches and "
                "replies to any "
                "topic (320, 324, 325), end transactions of others (37) and reset offsets of any group (222); set "
                "aclStrict=true"
            )
        found += _replication(settings)
    elif network_list(broker.admin_without_acl).takes_everybody:
        found.append(
            f"adminWithoutAcl={broker.admin_without_acl} without aclEnable: any host that reaches this port can "
            "change settings and delete topics; set adminWithoutAcl=private, or use accounts"
        )
    return found


def _replication(settings: BrokerSettings) -> list[str]:
    store = settings.store
    text = store.ha_allowed_addresses
    allowed = network_list(text)
    if store.ha_tls_mode == "enforcing" or not allowed.takes_everybody:
        return []
    return [
        f"aclEnable=true guards clients, not the port for slaves: haAllowedAddresses={text} gives the whole log to "
        "every host, unencrypted; list the addresses of the brokers of this name, or set haTlsMode=enforcing"
    ]
