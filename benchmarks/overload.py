"""``python -m benchmarks overload``: a broker gets several times the messages that it can take, beside honest clients.

First the rate of eight connections with 64 sends under way each is measured. Then 32 connections with 1,024 sends under way
each offer a multiple of this rate, in parts of 30 s. Meanwhile an honest client each pulls a message, sends a heartbeat,
asks for a route and sends a message, again and again. The table shows their waits and the broker's memory.

Exit code: 0 when everything was measured, 1 when something failed, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import generator, run
from benchmarks.attacks.peer import Peer, Waits, heartbeat, honest, pull, request, send
from benchmarks.command import FAILURES, run_directory
from benchmarks.generator import Generator, MeasurementError
from benchmarks.machine import Watch
from benchmarks.outcome import APACHE
from benchmarks.servers import Side
from benchmarks.targets import OVERHEAD
from benchmarks.usage import anonymous_mb
from tests.support import wire
from tests.support.apache import fetch_jars

BROKER = "broker-a"
PART = 30.0
"""Seconds of one run of the generator."""
CALM = ("-c", "8", "-w", "64")
OVERLOAD = ("-c", "32", "-w", "1024")
MAX_MINUTES = 30
_CALM_SECONDS = 5.0


class Outcome:
    """The sums of all parts of one side."""

    def __init__(self, calm_rate: float) -> None:
        self.calm_rate = calm_rate
        self.seconds = 0.0
        self.codes: dict[str, int] = {}
        self.waits: dict[str, dict[str, float]] = {}
        self.memory: list[float] = []

    def add(self, result: dict[str, Any]) -> None:
        """Add a line of the generator."""
        self.seconds += float(result["seconds"])
        for code, count in result["codes"].items():
            self.codes[code] = self.codes.get(code, 0) + count

    def as_json(self) -> dict[str, Any]:
        """The form of the file of results."""
        return {
            "sustainable per s": self.calm_rate,
            "seconds": self.seconds,
            "answers by code": self.codes,
            "waits": self.waits,
            "MB before, at most, after": self.memory,
        }

    def lines(self, name: str) -> list[str]:
        """The part of the table."""
        answered = sum(self.codes.values())
        stored = self.codes.get("0", 0)
        refused = {code: f"{count:,}" for code, count in sorted(self.codes.items()) if code != "0"}
        lines = [
            f"{name}: sustainable {self.calm_rate:,.0f}/s; answered {answered / self.seconds:,.0f}/s over "
            f"{self.seconds:,.0f} s, stored {stored / self.seconds:,.0f}/s, refused by code {refused or 'none'}",
            f"  memory in MB: before {self.memory[0]:.0f}, at most {self.memory[1]:.0f}, after {self.memory[2]:.0f}",
        ]
        for what, waits in self.waits.items():
            figures = ", ".join(
                f"{key} {value:,.1f}" if "ms" in key else f"{key} {value:,}" for key, value in waits.items()
            )
            lines.append(f"  {what:10} {figures}")
        return lines


@contextlib.contextmanager
def _honest_clients(side: Side) -> Iterator[dict[str, Waits]]:
    asked = {
        "pull": (side.broker_address, pull("honest", "Honest", 1)),
        "heartbeat": (side.broker_address, heartbeat("honest", ["honest"])),
        "send": (side.broker_address, send("Honest")),
        "route": (side.namesrv_address, request(wire.GET_ROUTEINFO_BY_TOPIC, {"topic": "Honest"})),
    }
    with contextlib.ExitStack() as stack:
        yield {what: stack.enter_context(honest(*question)) for what, question in asked.items()}


@contextlib.contextmanager
def _highest_memory(pid: int) -> Iterator[list[float]]:
    """Look at the memory of a process every 0.2 s; the list has the highest value in MB."""
    highest = [anonymous_mb(pid)]
    ending = threading.Event()

    def look() -> None:
        while not ending.wait(0.2):
            with contextlib.suppress(OSError):
                highest[0] = max(highest[0], anonymous_mb(pid))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield highest
    finally:
        ending.set()
        thread.join()


def _measure(name: str, given: argparse.Namespace, load: Generator, directory: Path) -> Outcome:
    with run.started([name], directory, {"mappedFileSizeCommitLog": str(1 << 30)}) as (side,):
        pid = side.pid(BROKER)
        flags = ["-addr", side.broker_address, "-topic", "Load", "-size", str(given.size)]
        if given.warm:
            load.run(["send", *flags, *CALM, "-d", f"{given.warm}s"], given.warm + OVERHEAD)
        calm = load.run(["send", *flags, *CALM, "-d", f"{_CALM_SECONDS}s"], _CALM_SECONDS + OVERHEAD)
        outcome = Outcome(float(calm["ops_per_s"]))
        wire.create_topic(side.broker_address, "Honest", 1)
        _store_first_message(side.broker_address)
        before = anonymous_mb(pid)
        rate = min(1e6, given.times * outcome.calm_rate)
        with _highest_memory(pid) as highest, _honest_clients(side) as clients:
            for number in range(max(1, round(given.minutes * 60 / PART))):
                part = load.run(
                    ["send", *flags, *OVERLOAD, "-rate", f"{rate:.0f}", "-n", "50000000", "-d", f"{PART}s"],
                    PART + OVERHEAD,
                )
                outcome.add(part)
                worst = {what: max(waits.seconds) for what, waits in clients.items()}
                print(f"{name}, part {number + 1}: {part['codes']}, longest waits in s: {worst}", flush=True)
        side.pid(BROKER)  # it still runs
        outcome.waits = {what: waits.figures() for what, waits in clients.items()}
        outcome.memory = [before, highest[0], anonymous_mb(pid)]
    return outcome


def _store_first_message(address: str) -> None:
    """Store the message that the honest client pulls."""
    with contextlib.closing(Peer(address)) as peer:
        code = peer.ask(send("Honest"))
    if code:
        raise MeasurementError(f"the first message was refused with code {code}")


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks overload", description="Offer a broker several times the messages that it can take."
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="length of the overload (default 10)")
    parser.add_argument("--times", type=float, default=4.0, help="multiple of the sustainable rate (default 4)")
    parser.add_argument("--size", type=int, default=100, help="bytes of a body (default 100)")
    parser.add_argument("--warm", type=float, default=12.0, help="seconds of warm-up of each side (default 12)")
    parser.add_argument("--sides", choices=[*run.SIDES, "both"], default="both", help="measure only one of them")
    given = parser.parse_args(arguments)
    if not 0 < given.minutes <= MAX_MINUTES:
        parser.error(f"accepted are up to {MAX_MINUTES} minutes")
    names = run.SIDES if given.sides == "both" else (given.sides,)
    outcomes: dict[str, Outcome] = {}
    failures: list[str] = []
    with run_directory("overload") as directory:
        load = generator.build(directory)
        if APACHE in names:
            fetch_jars()
        watch = Watch()
        for name in names:
            try:
                outcomes[name] = _measure(name, given, load, directory)
            except FAILURES as e:
                failures.append(f"{name}: {e}")
            shutil.rmtree(directory / name, ignore_errors=True)
    form = {"settings": vars(given), **{name: outcome.as_json() for name, outcome in outcomes.items()}}
    table = "\n".join(line for name, outcome in outcomes.items() for line in outcome.lines(name))
    return watch.publish(form, table, failures=failures)
