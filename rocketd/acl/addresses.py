"""Parses white addresses to rules about peers.

Counterpart: `RemoteAddressStrategyFactory` (Apache), with its forms: ``1.2.3.4``, ``1.2.3.4,1.2.3.5``, ``1.2.3.{4,5}``,
``1.2.3.4-9``, ``1.2.*.*``, ``*``, and the same for IPv6 addresses, with a range or ``*`` in one of the last two groups.
Forms accepted by Apache that fail at its first request are refused when read. Pure functions.
"""

from collections.abc import Callable, Sequence
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address

from rocketd.acl.errors import AclError

AddressRule = Callable[[str], bool]
"""Returns whether a peer's host, in the form of ``canonical``, matches."""

_EVERYBODY = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
_GROUPS = 8
_GROUP_WIDTH = 5
"""Digits of a group of a full IPv6 address, and its colon."""


def nobody(_host: str) -> bool:
    """Match no host: the rule for an address that is not set."""
    return False


def everybody(_host: str) -> bool:
    """The rule of an asterisk."""
    return True


def canonical(host: str) -> str:
    """Return a peer's host in the form compared by rules: full IPv6, upper case, without brackets and zone."""
    bare = host.strip("[]").partition("%")[0]
    try:
        return _canonical(bare)
    except ValueError:
        return bare


def address_rule(text: str | None) -> AddressRule:
    """Return the rule of a white address. An unset one matches no host. Raises AclError."""
    if text is None or not text.strip():
        return nobody
    if text in _EVERYBODY:
        return everybody
    if text.endswith("}"):
        return _one_of(_in_braces(text))
    if "," in text:
        return _one_of(_split(text, ","))
    if "*" in text or "-" in text:
        try:
            return _ipv6_range(text) if ":" in text else _ipv4_range(text)
        except (ValueError, IndexError):
            raise _bad_range(text) from None
    return _one_of([text])


def _split(text: str, separator: str) -> list[str]:
    return [part for part in text.split(separator) if part]


def _canonical(text: str) -> str:
    address = ip_address(text)
    return address.exploded.upper() if isinstance(address, IPv6Address) else text


def _one_of(texts: Sequence[str]) -> AddressRule:
    hosts = set()
    for text in texts:
        try:
            hosts.add(_canonical(text))
        except ValueError:
            raise AclError(f"Netaddress examine Exception netaddress is {text}") from None
    return hosts.__contains__


def _in_braces(text: str) -> list[str]:
    """Return the addresses of a form that ends with alternatives in braces."""
    parts = _split(text, ":" if ":" in text else ".")
    if ":" not in text and len(parts) < 4:
        raise AclError(f"MultipleRemoteAddressStrategy has got a/some wrong format IP(s) {text}")
    if not parts[-1].startswith("{"):
        raise AclError(f"MultipleRemoteAddressStrategy netaddress examine scope Exception netaddress {text}")
    head = text[: text.index("{")]
    return [head + part for part in _split(parts[-1][1:-1], ",")]


def _bad_range(text: str) -> AclError:
    return AclError(f"Netaddress examine scope Exception netaddress is {text}")


def _bounds(part: str, base: int, greatest: int) -> range | None:
    """Parse ``*`` or ``4-9``. None for anything else. Raises ValueError."""
    part = part.strip()
    if part == "*":
        return range(greatest + 1)
    if "-" not in part:
        return None
    low, high = part.split("-")
    first, last = int(low, base), int(high, base)
    if not 0 <= first <= last <= greatest or last == 0:
        raise ValueError(part)
    return range(first, last + 1)


def _ipv4_range(text: str) -> AddressRule:
    """Return the rule of a range of IPv4 addresses. Parts after the first range are ignored."""
    parts = _split(text, ".")
    if len(parts) != 4:
        raise _bad_range(text)
    for index in (1, 2, 3):
        bounds = _bounds(parts[index], 10, 255)
        if bounds is not None:
            break
    else:
        raise _bad_range(text)
    head = [str(IPv4Address(f"0.0.0.{part.strip()}").packed[3]) for part in parts[:index]]

    def matches(host: str) -> bool:
        octets = host.split(".")
        return len(octets) == 4 and octets[:index] == head and int(octets[index]) in bounds

    return matches


def _ipv6_range(text: str) -> AddressRule:
    """Return the rule of a range of IPv6 addresses: ``2::78:1-200``, ``2::78:*`` or ``2::78:1-200:*``."""
    groups = text.split(":")
    ranged = next(index for index, group in enumerate(groups) if "*" in group or "-" in group)
    behind = len(groups) - ranged - 1
    if ("*" in text and not text.endswith("*")) or not any(groups[:ranged]):
        raise _bad_range(text)
    if behind > (1 if "*" in text and "-" in text else 0):
        raise _bad_range(text)
    bounds = _bounds(groups[ranged], 16, 0xFFFF)
    if bounds is None:
        raise _bad_range(text)
    head = _expand(":".join(groups[:ranged]), _GROUPS - 1 - behind)
    index = head.count(":") + 1
    if index >= _GROUPS:
        raise _bad_range(text)
    place = _GROUP_WIDTH * index

    def matches(host: str) -> bool:
        return ":" in host and host.startswith(head) and int(host[place : place + 4], 16) in bounds

    return matches


def _expand(head: str, groups: int) -> str:
    """Return the leading groups of an IPv6 address in full. ``::`` among them stands for the missing ones of
    ``groups``.
    """
    missing = groups - head.count(":")
    if missing > 0:
        head = head.replace("::", ":" * (missing + 1))
    parts = [part.zfill(4) for part in head.upper().split(":")]
    for part in parts:
        try:
            IPv6Address(f"::{part}")
        except AddressValueError:
            raise ValueError(part) from None
    return ":".join(parts)
