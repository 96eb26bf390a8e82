"""The commands of ``python -m rocketd.testing``: lines of text for a cluster.

Each line is answered by one line: ``ok`` with an optional result, or ``error`` with the reason.
"""

import inspect
import shlex
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from rocketd.client.errors import IllegalOptionError
from rocketd.common.suggest import did_you_mean
from rocketd.testing.cluster import Cluster
from rocketd.testing.cluster_broker import ClusterBroker
from rocketd.testing.faults import Drop

N = TypeVar("N", int, float)

UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}

COMMANDS = {
    "advance": ("advance 2h", "advance the clock (ms, s, m, h, d; also 1h30m)"),
    "now": ("now", "show the time, Unix milliseconds"),
    "create-topic": ("create-topic NAME [4] [BROKER ...]", "create a topic with so many queues on each broker"),
    "count": ("count TOPIC [BROKER]", "show the number of messages of a topic"),
    "settle": ("settle", "wait until nothing is left to do, and slaves have all messages"),
    "kill": ("kill [BROKER]", "end the brokers like kill -9"),
    "power-cut": ("power-cut [BROKER]", "end the brokers like a power cut"),
    "restart": ("restart [BROKER]", "start them again"),
    "cut": ("cut [BROKER]", "break all connections"),
    "drop": (
        "drop [WHICH ...] [times=N] [rate=0.1] [seed=7] [what=request|answer|connection]",
        "lose requests: send, pull, heartbeat, route, commit, retry, end, or a request code; or all",
    ),
    "keep": ("keep", "stop losing requests"),
    "slow-fsync": ("slow-fsync 500ms [BROKER]", "make each flush to the disk take so long; 0s ends it"),
    "brokers": ("brokers", "show the names of the running brokers"),
    "ca": ("ca", "show the file with the authority for TLS"),
    "stop": ("stop", "end"),
}
"""Usage and purpose of each command."""

_COLUMN = 27


def usage_text() -> str:
    """Return the usage of all commands."""
    lines = [
        "commands, one a line; with the name of a BROKER, such as broker-b or its slave broker-b:1, they are for that "
        "one alone:"
    ]
    for usage, purpose in COMMANDS.values():
        start = f"  {usage}"
        if len(start) >= _COLUMN:
            lines.append(start)
            start = ""
        lines.append(start.ljust(_COLUMN) + purpose)
    return "\n".join(lines) + "\n"


class CommandConsole:
    """Carries out commands on a cluster. ``stopped`` becomes true with the command ``stop``."""

    def __init__(self, cluster: Cluster) -> None:
        self.stopped = False
        self._cluster = cluster
        self._drops: list[Drop] = []
        self._commands: dict[str, Callable[..., Any]] = {
            "advance": lambda duration: cluster.advance(parse_duration(duration)),
            "now": lambda: int(cluster.now().timestamp() * 1000),
            "create-topic": self._create_topic,
            "count": lambda topic, broker=None: len(self._of(broker).messages(topic)),
            "settle": cluster.settle,
            "kill": lambda broker=None: self._of(broker).kill(),
            "power-cut": lambda broker=None: self._of(broker).kill(power_cut=True),
            "restart": lambda broker=None: self._of(broker).restart(),
            "cut": lambda broker=None: self._of(broker).cut_connections(),
            "drop": self._drop,
            "keep": self._keep,
            "slow-fsync": lambda duration, broker=None: self._of(broker).slow_fsync(parse_duration(duration)),
            "brokers": lambda: " ".join(name for name, broker in cluster.brokers.items() if broker.is_running),
            "ca": self._ca,
            "stop": self._stop,
        }

    def answer(self, line: str) -> str:
        """Carry out one command and return the line of the answer."""
        try:
            name, *arguments = shlex.split(line)
            command = self._commands.get(name)
            if command is None:
                raise ValueError(f"unknown command {name!r}: known are {', '.join(self._commands)}")
            if not _accepts(command, arguments):
                raise ValueError(f"usage: {COMMANDS[name][0]}")
            result = command(*arguments)
        except Exception as error:
            text = " ".join(str(error).split()) or type(error).__name__
            return f"error {text}"
        return "ok" if result is None else f"ok {result}"

    def _of(self, name: str | None) -> Cluster | ClusterBroker:
        """Return the named broker, or the whole cluster without a name."""
        if name is None:
            return self._cluster
        known = self._cluster.brokers
        if name not in known:
            raise IllegalOptionError(f"no broker {name!r}: there are {', '.join(known)}{did_you_mean(name, known)}")
        return known[name]

    def _create_topic(self, topic: str, queues: str = "4", *brokers: str) -> None:
        self._cluster.create_topic(topic, queues=_number(int, queues), brokers=brokers or None)

    def _ca(self) -> str:
        if self._cluster.tls is None:
            raise IllegalOptionError("this cluster has no TLS: start it with --tls")
        return self._cluster.tls.ca

    def _drop(self, *words: str) -> None:
        requests = [int(word) if word.isdigit() else word for word in words if "=" not in word]
        given: dict[str, Any] = {}
        for option in (word for word in words if "=" in word):
            name, _, value = option.partition("=")
            kinds: dict[str, Callable[[str], Any]] = {
                "times": partial(_number, int),
                "rate": partial(_number, float),
                "seed": partial(_number, int),
                "what": str,
            }
            if name not in kinds:
                raise ValueError(f"unknown option {name!r}: known are {', '.join(kinds)}")
            given[name] = kinds[name](value)
        self._drops.append(self._cluster.drop(*requests, **given))

    def _keep(self) -> None:
        for drop in self._drops:
            drop.end()
        self._drops.clear()

    def _stop(self) -> None:
        self.stopped = True


def _accepts(command: Callable[..., Any], arguments: list[str]) -> bool:
    """Return whether a command accepts so many words."""
    try:
        inspect.signature(command).bind(*arguments)
    except TypeError:
        return False
    return True


def _number(kind: type[N], text: str) -> N:
    """Parse a number. Raises ValueError."""
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a {'whole ' if kind is int else ''}number") from None


def parse_duration(text: str) -> timedelta:
    """Parse a duration such as ``2h``, ``1h30m`` or ``500ms``. Raises ValueError."""
    seconds = 0.0
    rest = text
    while rest:
        number = "".join(_leading(rest, "0123456789."))
        unit = "".join(_leading(rest[len(number) :], "abcdefghijklmnopqrstuvwxyz"))
        if not number or unit not in UNITS:
            raise ValueError(f"{text!r} is not a duration, for example 500ms, 10s, 5m, 2h, 3d or 1h30m")
        seconds += _number(float, number) * UNITS[unit]
        rest = rest[len(number) + len(unit) :]
    return timedelta(seconds=seconds)


def _leading(text: str, characters: str) -> Iterable[str]:
    for character in text:
        if character not in characters:
            return
        yield character
