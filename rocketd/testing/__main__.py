"""A cluster for tests in any language: ``python -m rocketd.testing`` prints an address, then does what standard input says.

No counterpart in Apache. Each line of input is a command, each is answered by one line: ``ok``, with a result behind it
where there is one, or ``error`` with the reason. The end of the input ends the cluster.
"""

import argparse
import shlex
import sys
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, TextIO

from rocketd.testing.cluster import Cluster
from rocketd.testing.faults import Drop

UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}

USAGE = """\
commands, one a line:
  advance 2h               let time pass (ms, s, m, h, d; also 1h30m)
  now                      the time, Unix milliseconds
  create-topic NAME [4]    make a topic of so many queues
  count TOPIC              how many messages lie in a topic
  kill | power-cut         end the broker as kill -9, or a loss of power, does
  restart                  start it again
  cut                      break all connections
  drop [WHICH ...] [times=N] [rate=0.1] [seed=7] [what=request|answer|connection]
                           lose requests: send, pull, heartbeat, route, commit, retry, end, or a request code; or all
  keep                     lose nothing more
  slow-fsync 500ms         have each flush of the disk take so long; 0s ends it
  stop                     end
"""


class Console:
    """Carries out commands on a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._drops: list[Drop] = []
        self._commands: dict[str, Callable[..., Any]] = {
            "advance": lambda duration: cluster.advance(parse_duration(duration)),
            "now": lambda: int(cluster.now().timestamp() * 1000),
            "create-topic": lambda topic, queues="4": cluster.create_topic(topic, queues=int(queues)),
            "count": lambda topic: len(cluster.messages(topic)),
            "kill": cluster.kill,
            "power-cut": lambda: cluster.kill(power_cut=True),
            "restart": cluster.restart,
            "cut": cluster.cut_connections,
            "drop": self._drop,
            "keep": self._keep,
            "slow-fsync": lambda duration: cluster.slow_fsync(parse_duration(duration)),
        }

    def answer(self, line: str) -> str:
        """Carry out one command; the result is the line to answer with."""
        try:
            name, *arguments = shlex.split(line)
            command = self._commands.get(name)
            if command is None:
                raise ValueError(f"no command {name!r}: there are {', '.join(self._commands)}, stop")
            result = command(*arguments)
        except Exception as error:
            text = " ".join(str(error).split()) or type(error).__name__
            return f"error {text}"
        return "ok" if result is None else f"ok {result}"

    def _drop(self, *words: str) -> None:
        requests = [int(word) if word.isdigit() else word for word in words if "=" not in word]
        given: dict[str, Any] = {}
        for option in (word for word in words if "=" in word):
            name, _, value = option.partition("=")
            kinds: dict[str, Callable[[str], Any]] = {"times": int, "rate": float, "seed": int, "what": str}
            if name not in kinds:
                raise ValueError(f"no option {name!r}: there are {', '.join(kinds)}")
            given[name] = kinds[name](value)
        self._drops.append(self._cluster.drop(*requests, **given))

    def _keep(self) -> None:
        for drop in self._drops:
            drop.end()
        self._drops.clear()


def parse_duration(text: str) -> timedelta:
    """Read such as ``2h``, ``1h30m`` or ``500ms``. Raises ValueError."""
    seconds = 0.0
    rest = text
    while rest:
        number = "".join(_leading(rest, "0123456789."))
        unit = "".join(_leading(rest[len(number) :], "abcdefghijklmnopqrstuvwxyz"))
        if not number or unit not in UNITS:
            raise ValueError(f"{text!r} is no duration: it is written as 500ms, 10s, 5m, 2h, 3d or 1h30m")
        seconds += float(number) * UNITS[unit]
        rest = rest[len(number) + len(unit) :]
    return timedelta(seconds=seconds)


def _leading(text: str, characters: str) -> Iterable[str]:
    for character in text:
        if character not in characters:
            return
        yield character


def main(arguments: list[str] | None = None, source: TextIO = sys.stdin, target: TextIO = sys.stdout) -> None:
    """Run a cluster until the end of the input."""
    parser = argparse.ArgumentParser(
        prog="python -m rocketd.testing",
        description="a name server and a broker for tests, on loopback sockets, in a time that can be put forward",
        epilog=USAGE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=0, help="the name server's port (default: any that is free)")
    parser.add_argument("--topic", action="append", default=[], help="a topic that is there from the beginning")
    parser.add_argument(
        "--broker", action="append", default=[], metavar="KEY=VALUE", help="a setting of the broker, by Apache's names"
    )
    options = parser.parse_args(arguments)
    settings = {name: value for name, _, value in (pair.partition("=") for pair in options.broker)}
    with Cluster(topics=options.topic, broker=settings) as cluster:
        console = Console(cluster)
        print(cluster.listen(options.port), file=target, flush=True)
        for line in source:
            if line.strip() == "stop":
                break
            if line.strip():
                print(console.answer(line), file=target, flush=True)


if __name__ == "__main__":
    main()
