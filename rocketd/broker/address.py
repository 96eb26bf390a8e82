"""Which address the broker tells its clients, and why.

Answers to RemotingUtil.getLocalAddress, with the reason kept: users who cannot reach their broker should find the cause in
its first log lines. Pure, but for the one function that asks the system for its addresses.
"""

import ipaddress
import socket
from collections.abc import Callable, Iterable
from typing import NamedTuple

CONTAINER_BRIDGES = (ipaddress.ip_network("172.17.0.0/16"), ipaddress.ip_network("172.18.0.0/16"))
"""Networks that container engines give their bridges unless told otherwise."""


class AdvertisedAddress(NamedTuple):
    """The host that is registered, why, and what may be wrong with it (None when nothing is)."""

    host: str
    reason: str
    warning: str | None

    def describe(self, port: int) -> str:
        """Write the one line for the log."""
        return f"registered as {join(self.host, port)} ({self.reason}); set brokerIP1 to register another address"


def local_addresses() -> list[str]:
    """List this machine's addresses: the one of the default route first, then those of the host name."""
    found: list[str] = []
    for family, target in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))  # a datagram socket sends nothing when it connects
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
    """Choose what to register: what is configured, unresolved, or the address that others are likeliest to reach."""
    if configured:
        return AdvertisedAddress(configured, f"{key} says so", _doubt(configured))
    candidates = list(addresses())
    ranked = sorted(candidates, key=lambda address: (_doubt(address) is not None, ":" in address))
    if not ranked:
        return AdvertisedAddress("127.0.0.1", "this machine has no other address", _doubt("127.0.0.1"))
    chosen = ranked[0]
    if len(ranked) == 1:
        return AdvertisedAddress(chosen, "the only address of this machine", _doubt(chosen))
    others = ", ".join(ranked[1:])
    return AdvertisedAddress(
        chosen, f"the likeliest to be reached of this machine's addresses; not {others}", _doubt(chosen)
    )


def _doubt(host: str) -> str | None:
    """Say why clients elsewhere may not reach a host; None when nothing speaks against it, or it is a name."""
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
    """Write ``host:port``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class RecordHost(NamedTuple):
    """Host and port as records hold them, 8 or 20 bytes, and what is wrong with them (None when nothing is)."""

    packed: bytes
    warning: str | None


def record_host(
    host: str, port: int, key: str = "brokerIP1", addresses: Callable[[], Iterable[str]] = local_addresses
) -> RecordHost:
    """Write host and port as records hold them; a name is resolved, for records hold no names.

    A name that is not known here stands for an address of this machine, with a warning: clients may know it.
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
