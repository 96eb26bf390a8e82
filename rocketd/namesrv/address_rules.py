"""Addresses by the requester's network: rules to replace the addresses of brokers in answers. Pure functions.

A broker in a container, behind a port forwarding or in a cloud has one address for its neighbours and another one for
clients outside. It registers one of them. With rules, the name server tells each requester an address within reach.
Apache has no counterpart.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from rocketd.common.networks import NetworkList, network_list
from rocketd.common.settings.checks import is_address
from rocketd.remoting.bodies.tables import BrokerData

RULES: Final = (
    "rules separated by semicolons: a list of networks, a blank, and registered=told addresses separated by blanks, like "
    "10.0.0.0/8 172.18.0.3:10911=10.1.2.3:10911; any 172.18.0.3:10911=mq.example.org:30911"
)

_MAX_KNOWN: Final = 1024
"""Number of hosts whose view is kept."""


class AddressView:
    """The addresses for some requesters: told ones by registered one. Others are told as they are registered.

    A view equals itself only, so answers can be kept by it.
    """

    __slots__ = ("addresses",)

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self.addresses = addresses

    def told(self, registered: str) -> str:
        """Return the address to tell for a registered one."""
        return self.addresses.get(registered, registered)

    def broker(self, broker: BrokerData) -> BrokerData:
        """Return a broker with the addresses to tell."""
        return replace(
            broker, broker_addrs={number: self.told(address) for number, address in broker.broker_addrs.items()}
        )


class AddressRules:
    """The rules of a text. For each address, the first rule with the requester's network and this address counts.

    Raises ValueError if the text does not consist of rules.
    """

    def __init__(self, text: str) -> None:
        self._rules: list[tuple[NetworkList, Mapping[str, str]]] = []
        for rule in filter(None, (part.strip() for part in text.split(";"))):
            networks, *pairs = rule.split()
            told = dict(_pair(pair) for pair in pairs)
            if not told:
                raise ValueError(f"the rule {rule!r} has no registered=told addresses")
            self._rules.append((network_list(networks), told))
        # By the numbers of the rules with the requester's network: fewer than there are hosts.
        self._views: dict[tuple[int, ...], AddressView | None] = {(): None}
        self._known: dict[str, AddressView | None] = {}

    def view_of(self, asker: str) -> AddressView | None:
        """Return the view of a requester, given as ``host:port``. None: all addresses as they are registered. Any thread."""
        if not self._rules:
            return None
        host = asker.rpartition(":")[0]
        known = self._known
        if host in known:
            return known[host]
        view = self._find(host)
        if len(known) >= _MAX_KNOWN:
            self._known = known = {}
        known[host] = view
        return view

    def _find(self, host: str) -> AddressView | None:
        numbers = tuple(number for number, (networks, _) in enumerate(self._rules) if networks.allows(host))
        if numbers not in self._views:
            addresses: dict[str, str] = {}
            for number in reversed(numbers):
                addresses |= self._rules[number][1]
            self._views.setdefault(numbers, AddressView(addresses))
        return self._views[numbers]


def _pair(text: str) -> tuple[str, str]:
    registered, equals, told = text.partition("=")
    if not (equals and is_address(registered) and is_address(told)):
        raise ValueError(f"{text!r} is not registered=told, two addresses host:port")
    return registered, told


@lru_cache(maxsize=8)
def address_rules(text: str) -> AddressRules:
    """Return the parsed rules of a text, cached. Raises ValueError."""
    return AddressRules(text)


def are_address_rules(text: str) -> bool:
    """Return whether a text consists of rules."""
    try:
        address_rules(text)
    except ValueError:
        return False
    return True
