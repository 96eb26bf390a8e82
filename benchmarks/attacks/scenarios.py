"""The attacks. Each takes a side whose servers run, and returns its measurements by name."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.attacks.peer import (
    GET_ALL_TOPIC_CONFIG,
    GET_BROKER_RUNTIME_INFO,
    GET_MAX_OFFSET,
    Peer,
    ask_all,
    heartbeat,
    honest,
    pull,
    request,
    send,
)
from benchmarks.servers import Side
from benchmarks.usage import anonymous_mb, cpu_seconds
from tests.support import wire
from tests.support.process import ServerError

Figures = dict[str, float | str]
Scenario = Callable[[Side], Figures]

BROKER = "broker-a"
ONE_WAY_SENDS = 120_000
PAUSES, PAUSE_SECONDS = 4, 0.6
IDLE_CONNECTIONS = 20
HELD_SECONDS = 3.0
DELAY_SECONDS = 5.0
PATIENCE_SECONDS = 20.0
_SENDERS = 6
_LIBRARY = "libfaketimeMT.so.1"


def heartbeats(side: Side) -> Figures:
    """Three heartbeats of 2,000 unknown groups each, beside the heartbeats of an honest client."""
    address, pid = side.broker_address, side.pid(BROKER)
    groups = [f"invented-group-of-a-client-{number:05}" for number in range(2000)]
    before = cpu_seconds(pid)
    with honest(address, heartbeat("honest", ["CG"])) as waits:
        for _ in range(3):
            ask_all(address, [heartbeat("bomb", groups)], 1)
    return {**waits.figures(), "broker CPU s": cpu_seconds(pid) - before}


def topics(side: Side) -> Figures:
    """Sends to 4,000 new topics, 64 under way, beside sends of an honest client."""
    address, pid = side.broker_address, side.pid(BROKER)
    wire.create_topic(address, "Known")
    before = cpu_seconds(pid)
    with honest(address, send("Known")) as waits:
        codes = ask_all(address, [send(f"invented-topic-{number:05}") for number in range(4000)], 64)
    return {**waits.figures(), "topics made": codes.count(0), "broker CPU s": cpu_seconds(pid) - before}


def one_way(side: Side) -> Figures:
    """One-way sends while the broker's process stops several times for longer than a send may wait."""
    address, pid = side.broker_address, side.pid(BROKER)
    wire.create_topic(address, "OneWay", 1)
    sent = [0] * _SENDERS

    def flood(sender: int) -> None:
        peer = Peer(address)
        data = b"".join(send("OneWay", b"x" * 100, one_way=True) for _ in range(50))
        for _ in range(ONE_WAY_SENDS // _SENDERS // 50):
            peer.write(data)
            sent[sender] += 50
        peer.ask(request(GET_BROKER_RUNTIME_INFO))  # its answer says that all before it was read
        peer.close()

    threads = [threading.Thread(target=flood, args=(sender,)) for sender in range(_SENDERS)]
    for thread in threads:
        thread.start()
    for pause in range(PAUSES):
        _await(lambda pause=pause: sum(sent) >= (pause + 1) * ONE_WAY_SENDS // (PAUSES + 2), 60)
        os.kill(pid, signal.SIGSTOP)
        threading.Event().wait(PAUSE_SECONDS)
        os.kill(pid, signal.SIGCONT)
    for thread in threads:
        thread.join()
    stored = _settled(lambda: _max_offset(address, "OneWay"))
    return {"sent": sum(sent), "lost": sum(sent) - stored}


def unread(side: Side) -> Figures:
    """Eight connections ask for 300 topics 9,000 times each, and read no answer."""
    address, pid = side.broker_address, side.pid(BROKER)
    for number in range(300):
        wire.create_topic(address, f"a-topic-with-a-name-of-some-length-{number:04}")
    before = anonymous_mb(pid)
    peers = [Peer(address) for _ in range(8)]
    data = b"".join(request(GET_ALL_TOPIC_CONFIG) for _ in range(9000))
    for peer in peers:
        peer.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            peer.socket.send(data)
    peak = _peak(pid, 8.0)
    for peer in peers:
        peer.close()
    return {"MB before": before, "MB at most": peak, "MB after": _settled_memory(pid)}


def half_frames(side: Side) -> Figures:
    """Thirty connections send 15 MB of a frame of 16 MB, and then nothing."""
    address, pid = side.broker_address, side.pid(BROKER)
    before = anonymous_mb(pid)
    peers = [Peer(address, 10.0) for _ in range(30)]
    part = (16_000_000).to_bytes(4, "big") + (100).to_bytes(4, "big") + bytes(15_000_000)

    def fill(peer: Peer) -> None:
        with contextlib.suppress(OSError):  # closed, or not read any further
            peer.write(part)

    threads = [threading.Thread(target=fill, args=(peer,)) for peer in peers]
    for thread in threads:
        thread.start()
    peak = _peak(pid, 12.0)
    for thread in threads:
        thread.join()
    for peer in peers:
        peer.close()
    return {"MB before": before, "MB at most": peak, "MB after": _settled_memory(pid)}


def clock_back(side: Side) -> Figures:
    """The wall clock is set back by 300 s."""
    return _clock_step(side, -300)


def clock_forward(side: Side) -> Figures:
    """The wall clock is set forward by 300 s."""
    return _clock_step(side, 300)


def _clock_step(side: Side, step: int) -> Figures:
    address = side.broker_address
    wire.create_topic(address, "Clock", 1)
    peer = Peer(address, PATIENCE_SECONDS)
    idle = [Peer(address, PATIENCE_SECONDS) for _ in range(IDLE_CONNECTIONS)]
    for one in idle:
        one.ask(request(GET_BROKER_RUNTIME_INFO))
    set_clock(step)
    held = _seconds(lambda: peer.ask(pull("Held", "Clock", 32, HELD_SECONDS)))
    began = time.monotonic()
    sender = Peer(address, PATIENCE_SECONDS)
    sender.ask(send("Clock", DELAY="2"))
    delivered = _await(lambda: _max_offset(address, "Clock") > 0, PATIENCE_SECONDS)
    took = time.monotonic() - began
    _await(lambda: time.monotonic() - began > PATIENCE_SECONDS, 2 * PATIENCE_SECONDS)  # for a scan of idle connections
    closed = sum(_is_closed(one) for one in idle)
    return {
        "pull held for 3 s": held,
        "delay of 5 s": f"{took:.1f} s" if delivered else f"not in {PATIENCE_SECONDS:g} s",
        f"closed of {IDLE_CONNECTIONS}": closed,
    }


@contextlib.contextmanager
def stepped_clock(directory: Path) -> Iterator[None]:
    """Have processes that start within this live by a wall clock that ``set_clock`` sets. Raises ServerError."""
    found = sorted(Path("/usr/lib").glob(f"*/faketime/{_LIBRARY}"))
    if not found:
        raise ServerError("libfaketime is missing: apt-get install faketime")
    variables = {
        "LD_PRELOAD": str(found[0]),
        "FAKETIME_TIMESTAMP_FILE": str(directory / "clock"),
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }
    os.environ.update(variables)
    try:
        set_clock(0)
        yield
    finally:
        for name in variables:
            del os.environ[name]


def set_clock(seconds: int) -> None:
    """Let the wall clock of the servers differ by so much from the machine's."""
    file = Path(os.environ["FAKETIME_TIMESTAMP_FILE"])
    fresh = file.with_suffix(".new")
    fresh.write_text(f"{seconds:+d}\n")
    fresh.replace(file)


def _seconds(call: Callable[[], object]) -> str:
    began = time.monotonic()
    try:
        call()
    except TimeoutError:
        return f"not in {PATIENCE_SECONDS:g} s"
    return f"{time.monotonic() - began:.1f} s"


def _is_closed(peer: Peer) -> bool:
    try:
        peer.ask(request(GET_BROKER_RUNTIME_INFO))
    except OSError:
        return True
    return False


def _max_offset(address: str, topic: str) -> int:
    answer = wire.call(address, GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})
    return int(answer.ext_fields.get("offset", "0"))


def _await(condition: Callable[[], bool], limit: float) -> bool:
    """Wait until a condition holds; returns whether it did within ``limit`` seconds."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(0.02)
    return True


def _settled(value: Callable[[], int]) -> int:
    """Return a value once it has stayed the same for two seconds."""
    last, since = value(), time.monotonic()
    while time.monotonic() - since < 2:
        threading.Event().wait(0.1)
        if (now := value()) != last:
            last, since = now, time.monotonic()
    return last


def _peak(pid: int, seconds: float) -> float:
    """The most memory in MB that a process has within so many seconds."""
    deadline = time.monotonic() + seconds
    peak = 0.0
    while time.monotonic() < deadline:
        peak = max(peak, anonymous_mb(pid))
        threading.Event().wait(0.05)
    return peak


def _settled_memory(pid: int) -> float:
    """The least memory in MB that a process has within ten seconds."""
    deadline = time.monotonic() + 10
    least = anonymous_mb(pid)
    while time.monotonic() < deadline:
        least = min(least, anonymous_mb(pid))
        threading.Event().wait(0.1)
    return least


SCENARIOS: dict[str, Scenario] = {
    "heartbeats": heartbeats,
    "new topics": topics,
    "one-way sends": one_way,
    "unread answers": unread,
    "half frames": half_frames,
    "clock back": clock_back,
    "clock forward": clock_forward,
}
CLOCK = ("clock back", "clock forward")
"""Scenarios whose servers need a clock that can be set."""
