"""White addresses mean the peers that they mean to Apache's classes."""

import re
import subprocess
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from random import Random

from rocketd.acl.addresses import address_rule, canonical
from rocketd.acl.errors import AclError
from tests.support.apache import fetch_jars
from tests.support.jars import PeerUnavailableError

SOURCE = Path(__file__).parent / "acl" / "Addresses.java"
COUNT = 200  # of each family
LIMIT = 120.0  # seconds
GROUPS = ("0", "1", "a", "ff", "db8", "FFFF", "2001", "0005", "fe80")
OCTETS = ("1", "10", "127", "0", "255", "192")
# Forms that Apache's classes take and then cannot use: they throw at every peer, or can mean none.
REFUSED_HERE_ALONE = ("*.1.2.3", "::*", "::1-5", "::/64")
ODD = (
    *("*", "*.*.*.*", "*:*:*:*:*:*:*:*", "1.2.3.4-", "1.2.3", "1.2.3.4.5", "a", "1.2.3.4/24", "fe80:*", "fe80::*"),
    *("1.2.3.*-5", "1::1-5:*", "1.*.2.3", "1.2.3.{}", "1.2.3.{4}", "1.2.3.{4,}", "::{1,2}", "::1,", "::"),
    *("1:2:3:4:5:6:7:*", "1:2:3:4:5:6:*:*", "127.0.0.01", "1.2.3.1-300", "2001:db8:*", "{1.2.3.4}", "1.2.{3}"),
    *REFUSED_HERE_ALONE,
)


class Generator:
    """White addresses of all forms. The seed is fixed, so that a failure can be repeated."""

    def __init__(self) -> None:
        self._random = Random(2024)

    def ipv4(self) -> str:
        parts = [self._random.choice(OCTETS) for _ in range(4)]
        at = self._random.randrange(1, 4)
        return self._random.choice(
            (
                ".".join(parts),
                ".".join(parts) + ",127.0.0.1",
                ".".join(parts[:3]) + ".{1,255}",
                ".".join([*parts[:at], self._range(10, 255), *parts[at + 1 :]]),
                ".".join([*parts[:at], "*", *parts[at + 1 :]]),
                ".".join([*parts[:at], *["*"] * (4 - at)]),
                ".".join([*parts[:at], self._range(10, 255), *["*"] * (3 - at)]),
            )
        )

    def ipv6(self) -> str:
        return self._random.choice(
            (
                self._groups(8),
                self._groups(8) + "," + self._groups(8),
                self._groups(7) + ":{1,ff}",
                self._groups(7) + ":" + self._range(16, 0xFFFF),
                self._groups(self._random.choice((1, 3, 5, 7))) + ":*",
                self._groups(6) + ":" + self._range(16, 0xFFFF) + ":*",
            )
        )

    def peer_of(self, address: str) -> str | None:
        """Return a peer near a white address, as Java writes it; None if there is none."""
        near = address.split(",")[0].replace("*", self._random.choice("019")).translate({123: None, 125: None})
        near = re.sub(r"(\w+)-(\w+)", lambda match: match[self._random.randrange(1, 3)], near)
        try:
            host = ip_address(near)
        except ValueError:
            return None
        if isinstance(host, IPv6Address):
            return ":".join(f"{int(group, 16):x}" for group in host.exploded.split(":"))
        return near

    def _range(self, base: int, greatest: int) -> str:
        low, high = sorted(self._random.randrange(1, greatest + 1) for _ in range(2))
        return f"{low}-{high}" if base == 10 else f"{low:x}-{high:x}"

    def _groups(self, count: int) -> str:
        """So many groups, some of them perhaps as ``::``, never at an end."""
        parts = [self._random.choice(GROUPS) for _ in range(count)]
        if count > 3 and self._random.random() < 0.5:
            at = self._random.randrange(1, count - 2)
            return ":".join(parts[:at]) + "::" + ":".join(parts[at + 2 :])
        return ":".join(parts)


def ours(address: str, peers: list[str]) -> str:
    try:
        rule = address_rule(address)
    except AclError:
        return "refused"
    return "".join("1" if rule(canonical(peer)) else "0" for peer in peers)


def test_white_addresses_mean_the_same_peers(lacking: Callable[[str], None]) -> None:
    generator = Generator()
    addresses = [*ODD, *(generator.ipv4() for _ in range(COUNT)), *(generator.ipv6() for _ in range(COUNT))]
    peers = sorted({peer for address in addresses if (peer := generator.peer_of(address)) is not None})
    try:
        jars = fetch_jars()
    except PeerUnavailableError as error:
        lacking(str(error))
    asked = subprocess.run(
        ["java", "-Xmx256m", "-cp", f"{jars}/*", str(SOURCE)],
        input="\n".join([" ".join(peers), *addresses]) + "\n",
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    theirs = dict(zip(addresses, asked.stdout.splitlines(), strict=True))
    differing = {address for address in addresses if ours(address, peers) != theirs[address]}
    assert differing == set(REFUSED_HERE_ALONE)
    for address in REFUSED_HERE_ALONE:
        assert ours(address, peers) == "refused"
        assert "1" not in theirs[address]
    assert sum(answer.count("1") for answer in theirs.values()) > COUNT
