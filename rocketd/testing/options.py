"""The options of a cluster, checked, and the brokers made of them. Pure functions."""

import re
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from rocketd.client.errors import IllegalOptionError
from rocketd.testing.faults import check_number

TlsMode = Literal["enforcing", "permissive"]
Brokers = int | Iterable[str] | Mapping[str, Mapping[str, object]]
"""Their number, their names, or their settings by name."""

FIRST_PORT = 10911
PORT_DISTANCE = 10
"""Distance between the ports of two brokers: each also uses the next one (slaves), and the one two below."""
MAX_BROKERS = 200

_NAME = re.compile(r"(?!\.+$)[A-Za-z0-9_.-]+")
"""A broker's name. It is also the name of a directory."""

_ADDRESSES = ("listenPort", "haListenPort", "namesrvAddr", "brokerIP1", "brokerIP2", "bindAddress")
_IDENTITY = {
    "brokerName": "names come from the option brokers",
    "brokerId": "slaves come from the option slaves",
    "rocketmqHome": "give it without the option accounts, or accounts without it",
    "aclCredentialsFile": "give it without the option accounts, or accounts without it",
}
_CLIENT_CERTIFICATES = ("tls.server.need.client.auth", "tls.server.authClient")
_MASTERS = ("ASYNC_MASTER", "SYNC_MASTER")


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """A broker to run. ``broker_id`` is 0 for a master, ``place`` counts all brokers of the cluster."""

    broker_name: str
    broker_id: int
    place: int
    given: Mapping[str, object]

    @property
    def name(self) -> str:
        """The name of a master, or for example ``broker-a:1`` for its slave."""
        return f"{self.broker_name}:{self.broker_id}" if self.broker_id else self.broker_name

    @property
    def is_slave(self) -> bool:
        """Whether it is a slave."""
        return self.broker_id > 0

    def settings(self) -> Mapping[str, object]:
        """Return its settings."""
        port = FIRST_PORT + PORT_DISTANCE * self.place
        role: Mapping[str, object] = {"brokerRole": "SLAVE", "brokerId": self.broker_id} if self.is_slave else {}
        return {"brokerName": self.broker_name, "listenPort": port, "haListenPort": port + 1, **self.given, **role}


def plan_brokers(brokers: Brokers, slaves: int, common: Mapping[str, object]) -> list[BrokerPlan]:
    """Return the brokers in the order of their start: masters, then slaves. Raises IllegalOptionError."""
    check_number("slaves", slaves, 0)
    given = dict(_named(brokers))
    if not 0 < len(given) * (1 + slaves) <= MAX_BROKERS:
        raise IllegalOptionError(f"brokers={brokers!r}, slaves={slaves}: accepted are 1 to {MAX_BROKERS} brokers")
    numbered = [(name, broker_id) for broker_id in range(slaves + 1) for name in given]
    return [
        BrokerPlan(name, broker_id, place, {**common, **given[name]})
        for place, (name, broker_id) in enumerate(numbered)
    ]


def _named(brokers: Brokers) -> Iterator[tuple[str, Mapping[str, object]]]:
    if isinstance(brokers, Mapping):
        for name, settings in brokers.items():
            if not isinstance(settings, Mapping):
                raise IllegalOptionError(f"brokers: the settings of {name!r} are {settings!r}; accepted is a mapping")
        pairs = list(brokers.items())
    else:
        pairs = [(name, {}) for name in _names(brokers)]
    seen = set()
    for name, settings in pairs:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in seen:
            raise IllegalOptionError(
                f"brokers: {name!r} is not a name, or a second broker of this name; names consist of letters of "
                "ASCII, digits, '_', '-' and '.'"
            )
        seen.add(name)
        yield name, settings


def _names(brokers: int | Iterable[str]) -> Iterable[str]:
    names = [brokers] if isinstance(brokers, str) else brokers
    if isinstance(names, int):
        check_number("brokers", names, 1)
        names = [f"broker-{_letters(number)}" for number in range(min(names, MAX_BROKERS + 1))]
    return names


def _letters(number: int) -> str:
    """Return a, b, ... z, aa, ab and so on."""
    most, letter = divmod(number, len(string.ascii_lowercase))
    return (_letters(most - 1) if most else "") + string.ascii_lowercase[letter]


def tls_mode(tls: bool | TlsMode) -> TlsMode | None:
    """Return the mode of TLS; None without TLS. Raises IllegalOptionError."""
    if isinstance(tls, bool):
        return "enforcing" if tls else None
    if tls not in get_args(TlsMode):
        raise IllegalOptionError(f"tls={tls!r}: accepted are True, False, {', '.join(map(repr, get_args(TlsMode)))}")
    return tls


def check_settings(settings: Mapping[str, object], *, tls: bool, accounts: bool) -> None:
    """Raise IllegalOptionError for settings impossible for a test's servers."""
    for name, value in settings.items():
        if name in _ADDRESSES:
            raise IllegalOptionError(
                f"{name}: the servers of a test choose their addresses themselves; see Cluster.listen"
            )
        if name.startswith("tls.") and not (tls and name in _CLIENT_CERTIFICATES):
            raise IllegalOptionError(
                f"{name}: servers of a test have TLS by the option tls of Cluster; with it, accepted are "
                f"{', '.join(_CLIENT_CERTIFICATES)}"
            )
        if name.startswith("haTls") and not tls:
            raise IllegalOptionError(f"{name}: it needs the option tls of Cluster, for certificates")
        if name in _IDENTITY and (accounts or name.startswith("broker")):
            raise IllegalOptionError(f"{name}: {_IDENTITY[name]}")
        if name == "brokerRole" and value not in _MASTERS:
            raise IllegalOptionError(
                f"brokerRole={value!r}: accepted are {', '.join(_MASTERS)}; slaves come from the option slaves"
            )
