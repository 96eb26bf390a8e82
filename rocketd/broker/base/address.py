"""Chooses the address announced to clients, and records the reason.

Users who cannot reach their broker should find the cause in its first log lines. Pure functions, except one that asks
the system for its addresses.

Counterpart: `RemotingUtil.getLocalAddress` (Apache).
"""

import ipaddress
import socket
from collections.abc import Callable, Iterable
from typing import NamedTuple

CONTAINER_BRIDGES = (ipaddress.ip_network("172.17.0.0/16"), ipaddress.ip_network("172.18.0.0/16"))
"""The default networks of container engines' bridges."""


class AdvertisedAddress(NamedTuple):
    """The host to register, the reason for the choice, and a warning (None without a doubt about it)."""

    host: str
    reason: str
    warning: str | None

    def describe(self, port: int) -> str:
        """Return the line for the log. Who has set brokerIP1 needs no advice to set it."""
        advice = "" if self.reason == "brokerIP1 is set" else "; set brokerIP1 to register another address"
        return f"registered as {join(self.host, port)} ({self.reason}){advice}"


def local_addresses() -> list[str]:
    """Return this machine's addresses: that of the default route first, then those of the host name."""
    found: list[str] = []
    for family, target in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))  # connecting a datagram socket sends nothing
                found.append(probe.getsockname()[0])
        except OSError:
            continue
    try:
        entries = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
        found += [str(entry[4][0]) for entry in entries]
    except OSError:
        pass
    return list(dict.fromkeys(found))


def choose_address(
    configured: str | None, key: str = "brokerIP1", addresses: Callable[[], Iterable[str]] = local_addresses
) -> AdvertisedAddress:
    """Choose the host to register: the configured one, unresolved, or the address most likely to be reachable."""
    if configured:
        return AdvertisedAddress(configured, f"{key} is set", _doubt(configured))
    candidates = list(addresses())
    ranked = sorted(candidates, key=lambda address: (_doubt(address) is not None, ":" in address))
    if not ranked:
        return AdvertisedAddress("127.0.0.1", "this machine has no other address", _doubt("127.0.0.1"))
    chosen = ranked[0]
    if len(ranked) == 1:
        return AdvertisedAddress(chosen, "the only address of this machine", _doubt(chosen))
    others = ", ".join(ranked[1:])
    return AdvertisedAddress(
        chosen, f"the most reachable address of this machine; the others are {others}", _doubt(chosen)
    )


def specific(bound: str | None) -> str | None:
    """Return the value of bindAddress; None if it stands for all addresses."""
    return None if bound is None or ipaddress.ip_address(bound).is_unspecified else bound


def is_loopback(bound: str | None) -> bool:
    """Return whether ports opened at this address are for this machine only. None stands for all addresses."""
    return bound is not None and ipaddress.ip_address(bound).is_loopback


def named(configured: str | None, key: str, bound: str | None) -> tuple[str | None, str]:
    """Return the host that the settings name for others, and its key: ``configured``, or the address of the ports."""
    return (configured, key) if configured or bound is None else (bound, "bindAddress")


def _doubt(host: str) -> str | None:
    """Return why clients elsewhere may not reach a host; None without a reason, or for a name."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if address.is_loopback:
        return f"{host} is a loopback address: only clients on this machine can reach it"
    if address.is_link_local:
        return f"{host} is a link-local address: only clients on the same link can reach it"
    if any(address.version == bridge.version and address in bridge for bridge in CONTAINER_BRIDGES):
        return f"{host} looks like the address of a container bridge: clients on other machines cannot reach it"
    return None


def join(host: str, port: int) -> str:
    """Return ``host:port``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class RecordHost(NamedTuple):
    """Host and port in the form of records, 8 or 20 bytes, and a warning (None if there is none)."""

    packed: bytes
    warning: str | None


def record_host(
    host: str, port: int, key: str = "brokerIP1", addresses: Callable[[], Iterable[str]] = local_addresses
) -> RecordHost:
    """Return host and port in the form of records. A name is resolved, because records hold addresses only.

    A name unknown here is replaced by an address of this machine, with a warning: clients may know the name.
    """
    warning = None
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        try:
            resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            resolved.sort(key=lambda entry: entry[0] != socket.AF_INET)
            address = ipaddress.ip_address(str(resolved[0][4][0]).partition("%")[0])
        except (OSError, UnicodeError) as error:
            address = ipaddress.ip_address(next(iter(addresses()), "127.0.0.1").partition("%")[0])
            reason = error.strerror if isinstance(error, OSError) else str(error)
            warning = (
                f"{key} = {host} cannot be resolved here ({reason}): clients must know that name; "
                f"records have {address}"
            )
    return RecordHost(address.packed + port.to_bytes(4, "big"), warning)
