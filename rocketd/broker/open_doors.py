"""What the settings of a broker leave open to strangers, said at the start.

No counterpart in Apache, whose broker is as open and does not say so. Pure.
"""

from rocketd.broker.settings import BrokerSettings
from rocketd.common.networks import network_list


def open_doors(settings: BrokerSettings) -> list[str]:
    """List what is open, one line each, with the setting that closes it."""
    broker = settings.broker
    found = []
    if broker.acl_enable:
        if not broker.acl_strict:
            found.append(
                "aclEnable=true without aclStrict=true, as at Apache's broker: an account without any rights can read all "
                "secrets (54), make itself an admin (50), delete accounts (51), let everybody in (53), read any message by "
                "its place in the log (33) or give it back to a group of its own (36), send batches and replies to any "
                "topic (320, 324, 325), end transactions of others (37) and reset offsets of any group (222); set "
                "aclStrict=true"
            )
        found += _replication(settings)
    elif network_list(broker.admin_without_acl).takes_everybody:
        found.append(
            f"adminWithoutAcl={broker.admin_without_acl} without aclEnable: everybody who reaches this port can change "
            "settings and delete topics; set adminWithoutAcl=private, or use accounts"
        )
    return found


def _replication(settings: BrokerSettings) -> list[str]:
    store = settings.store
    text = store.ha_allowed_addresses
    allowed = network_list(text)
    if store.ha_tls_mode == "enforcing" or not (allowed.brokers or allowed.takes_everybody):
        return []
    who = "everybody" if allowed.takes_everybody else "whoever name servers know as a broker of this brokerName"
    return [
        f"aclEnable=true guards clients, not the port for slaves: haAllowedAddresses={text} gives the whole log to "
        f"{who}, unencrypted; list the addresses of the slaves, or set haTlsMode=enforcing"
    ]
