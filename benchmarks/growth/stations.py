"""Servers of both ends of a dimension: started with their stores, filled and warm."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.big_store import make_store, share_store
from benchmarks.generator import Generator, MeasurementError
from benchmarks.growth.dimensions import STORE_TOPIC, TOPIC, Dimension, Load, write_topics
from benchmarks.measure import Station
from benchmarks.measurement import Measurement, Settings
from benchmarks.outcome import ROCKETD
from benchmarks.rows import Kind
from benchmarks.servers import ApacheLauncher, RocketdLauncher, Side

_CONNECT_LIMIT = 60.0
_FILL_SECONDS = 60.0
_QUIET_SECONDS = "60s"  # between the heartbeats of idle connections, so that none comes within a load


class EndStation:
    """One end of a dimension at one side."""

    def __init__(self, station: Station, generator: Generator, dimension: Dimension, end: int) -> None:
        """Take prepared servers."""
        self._station = station
        self._generator = generator
        self._dimension = dimension
        self._end = end

    def measure(self, load: Load) -> Measurement:
        """Measure a load once; MeasurementError, ServerError or OSError if it fails."""
        row = load.ends[self._end]
        connections = self._dimension.connections[self._end]
        if not connections or row.arguments[:1] == ("idle",):  # it opens them itself
            return self._station.measure(row)
        with self._held(connections):
            return self._station.measure(row)

    @contextlib.contextmanager
    def _held(self, connections: int) -> Iterator[None]:
        side = self._station.side
        pid = side.pid("broker-a")
        before = _settled_descriptors(pid)
        arguments = ["idle", "-addr", side.broker_address, "-conns", str(connections)]
        with self._generator.running([*arguments, "-rounds", "9", "-interval", _QUIET_SECONDS], 600.0):
            deadline = time.monotonic() + _CONNECT_LIMIT
            while _descriptors(pid) < before + connections:
                if time.monotonic() > deadline:
                    raise MeasurementError(f"{side.name}: {_descriptors(pid) - before} of {connections} connections")
                time.sleep(0.1)
            time.sleep(connections / 5_000)  # for the first heartbeats
            yield
        deadline = time.monotonic() + _CONNECT_LIMIT
        while _descriptors(pid) > before + connections // 10 and time.monotonic() < deadline:
            time.sleep(0.1)


def _settled_descriptors(pid: int) -> int:
    """The number of open files of a process once it no longer falls: connections of the load before may still close."""
    deadline = time.monotonic() + _CONNECT_LIMIT
    found = _descriptors(pid)
    while time.monotonic() < deadline:
        time.sleep(0.5)
        last, found = found, _descriptors(pid)
        if found >= last:
            break
    return found


def _descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@contextlib.contextmanager
def stations(
    dimension: Dimension, names: Sequence[str], generator: Generator, settings: Settings, directory: Path
) -> Iterator[Mapping[tuple[str, int], EndStation]]:
    """Start the servers of all sides and ends; none is left running. ServerError, MeasurementError, OSError."""
    sides: list[Side] = []
    prepared: dict[tuple[str, int], Station] = {}
    try:
        for end in (0, 1) if dimension.apart else (0,):
            new = [_side(name, directory / f"{name}-{end}", dimension) for name in names]
            sides += new
            _make(dimension, end, [side.store("broker-a") for side in new])
            for side in new:
                side.start()
                prepared[side.name, end] = _prepared(side, dimension, end, generator, settings)
        yield {
            (name, end): EndStation(prepared.get((name, end), prepared[name, 0]), generator, dimension, end)
            for name in names
            for end in (0, 1)
        }
        for side in sides:
            side.stop()
    finally:
        for side in sides:
            side.kill_all()


def _side(name: str, directory: Path, dimension: Dimension) -> Side:
    directory.mkdir(parents=True)
    launcher = RocketdLauncher(directory.parent) if name == ROCKETD else ApacheLauncher()
    return Side(launcher, directory, dimension.settings)


def _make(dimension: Dimension, end: int, stores: Sequence[Path]) -> None:
    """Make the stores of one end, before any server runs: large ones share files."""
    if dimension.topics:
        for store in stores:
            write_topics(store, dimension.topics[end])
    if dimension.files:
        first, *others = stores
        make_store(first, STORE_TOPIC, dimension.files[end])
        for other in others:
            share_store(first, other)


def _prepared(side: Side, dimension: Dimension, end: int, generator: Generator, settings: Settings) -> Station:
    station = Station(side, generator, settings)
    station.prepare(dimension.kinds() | {Kind.LOAD})
    for mode, *flags in dimension.fill[end] if dimension.apart else dimension.fill[0] + dimension.fill[1]:
        station.drive((mode, *flags), _FILL_SECONDS)
    if dimension.topics:
        _await_dispatch(station)
    return station


def _await_dispatch(station: Station) -> None:
    """Return when a message can be read right after its send: until then, the broker creates queues."""
    deadline = time.monotonic() + _FILL_SECONDS
    while True:
        try:
            station.drive(("send", "-create=false", "-topic", f"{TOPIC}0", "-n", "8"), _FILL_SECONDS)
        except MeasurementError:
            if time.monotonic() > deadline:
                raise
        else:
            return
