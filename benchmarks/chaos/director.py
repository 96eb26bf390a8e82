"""One side's run: starts the workers, ends servers and members as scheduled, and waits until all has arrived."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.chaos.accounting import account
from benchmarks.chaos.journal import READY, Event, read_journals
from benchmarks.chaos.schedule import LASTING, NAMESRV_AWAY, Change, Fault, churn, faults
from benchmarks.chaos.topics import ALL, BROADCAST, CONCURRENT, ITERATION, KEY_ORDER, POLL, QUEUE_ORDER, QUEUES, REST
from benchmarks.servers import Side
from tests.support import wire
from tests.support.process import ServerError

WORKERS = (
    *(f"{CONCURRENT}-{number + 1}" for number in range(LASTING)),
    *(f"{role}-{number}" for role in (QUEUE_ORDER, BROADCAST) for number in (1, 2)),
    *(f"{role}-1" for role in (KEY_ORDER, POLL, ITERATION, REST, "reply")),
    *(f"{role}-1" for role in ("threads", "tasks", "batches", "keys", "delays", "bulk", "transactions", "requests")),
)
"""The workers that are there from the start."""

BROKER = "broker-a"
SETTINGS = {"transactionTimeOut": "3000", "transactionCheckInterval": "5000"}
"""Settings of both brokers, which ask about open transactions before the run ends."""

START_SECONDS = 120.0
"""How long workers may take to begin."""

ARRIVAL_SECONDS = 120.0
"""How long messages may take to arrive after the last send."""

LATER_SECONDS = 3.0
"""How long late copies may take after that."""

LEAVE_SECONDS = 40.0
"""How long a worker may take to leave."""

_CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass
class Run:
    """The course of one side's run."""

    events: list[Event]
    failures: list[str]
    steps: list[str]


class Workers:
    """The client processes."""

    def __init__(self, namesrv: str, directory: Path, seed: int) -> None:
        """Start none yet."""
        self._arguments = ["--namesrv", namesrv, "--dir", str(directory), "--seed", str(seed)]
        self._directory = directory
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._leaving: dict[str, subprocess.Popen[bytes]] = {}
        self.failures: list[str] = []

    def start(self, worker: str) -> None:
        """Start one; what it logs goes to a file of its name. It gets signals only when it is ready for them."""
        environment = {**os.environ, "PYTHONPATH": str(_CHECKOUT), "HOME": str(self._directory)}
        with (self._directory / "logs" / worker).open("wb") as log, _blocked({signal.SIGTERM, signal.SIGUSR1}):
            self._running[worker] = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.chaos.worker", worker, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env=environment,
            )

    def kill(self, worker: str) -> None:
        """SIGKILL to one."""
        process = self._running.pop(worker)
        self._note_early(worker, process)
        process.kill()
        process.wait()

    def leave(self, worker: str) -> None:
        """SIGTERM to one. Its end is awaited in ``end``."""
        process = self._running.pop(worker)
        self._note_early(worker, process)
        process.terminate()
        self._leaving[worker] = process

    def be_quiet(self) -> None:
        """Have all stop sending."""
        for process in self._running.values():
            process.send_signal(signal.SIGUSR1)

    def end(self) -> None:
        """Have all leave, and kill those that do not."""
        for worker in list(self._running):
            self.leave(worker)
        deadline = time.monotonic() + LEAVE_SECONDS
        for worker, process in self._leaving.items():
            try:
                code = process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.failures.append(f"{worker} was left running {LEAVE_SECONDS:g} s after SIGTERM")
                continue
            if code:
                self.failures.append(f"{worker} ended with {code}:\n{self._tail(worker)}")

    def kill_all(self) -> None:
        """SIGKILL to all that still run."""
        for process in (*self._running.values(), *self._leaving.values()):
            process.kill()
            process.wait()

    def _note_early(self, worker: str, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is not None:
            self.failures.append(f"{worker} ended early with {process.returncode}:\n{self._tail(worker)}")

    def _tail(self, worker: str) -> str:
        return "\n".join((self._directory / "logs" / worker).read_text(errors="replace").splitlines()[-15:])


@contextlib.contextmanager
def _blocked(signals: set[signal.Signals]) -> Iterator[None]:
    """Block signals in this thread, and in the processes that it starts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)


class Director:
    """The director of one run. ``tell`` gets lines of progress, from two threads."""

    def __init__(self, side: Side, directory: Path, seconds: float, seed: int, tell: Callable[[str], None]) -> None:
        """Take a started side; ``directory`` gets the journals and logs of the workers."""
        self._side = side
        self._directory = directory
        self._seconds = seconds
        self._seed = seed
        self._tell = tell
        self._steps: list[str] = []
        self._failures: list[str] = []
        self._ended = threading.Event()
        self._began = time.monotonic()

    def run(self) -> Run:
        """Run it, and return what happened. Raises ServerError if the servers do not take part."""
        for part in ("journals", "logs"):
            (self._directory / part).mkdir(parents=True)
        for topic in ALL:
            wire.create_topic(self._side.broker_address, topic, QUEUES)
            wire.await_route(self._side.namesrv_address, topic, self._side.broker_address)
        workers = Workers(self._side.namesrv_address, self._directory, self._seed)
        try:
            for worker in WORKERS:
                workers.start(worker)
            self._await_workers()
            self._began = time.monotonic()
            with self._server_faults():
                self._change_members(workers)
            workers.be_quiet()
            self._await_arrival()
            workers.end()
        finally:
            workers.kill_all()
        return Run(self._events(), self._failures + workers.failures, self._steps)

    def _note(self, what: str) -> None:
        now = time.monotonic()
        self._steps.append(f"{now:.3f} {what}")
        self._tell(f"{self._side.name:8} {now - self._began:6.1f} s  {what}")

    def _sleep_until(self, at: float) -> bool:
        """Sleep until so many seconds after the start. Return whether the run has ended meanwhile."""
        return self._ended.wait(max(0.0, self._began + at - time.monotonic()))

    @contextlib.contextmanager
    def _server_faults(self) -> Iterator[None]:
        """End servers as scheduled, in a thread: some do not come back at once."""

        def run() -> None:
            try:
                for at, fault in faults(self._seconds):
                    if self._sleep_until(at):
                        return
                    if fault in _OF_SERVERS:
                        self._note(fault.value)
                        _OF_SERVERS[fault](self._side)
            except (ServerError, OSError) as error:
                self._failures.append(f"the servers: {error}")

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        except BaseException:
            self._ended.set()
            raise
        finally:
            thread.join()

    def _change_members(self, workers: Workers) -> None:
        """Have members join and leave, and end producers, as scheduled, until the last send."""
        steps: list[tuple[float, Callable[[], None]]] = []
        for move in churn(self._seconds, self._seed):
            worker = f"{CONCURRENT}-{move.member}"
            change = {Change.JOIN: workers.start, Change.LEAVE: workers.leave, Change.KILL: workers.kill}[move.change]
            steps.append((move.at, partial(self._change, worker, move.change, change)))
        killed = [at for at, fault in faults(self._seconds) if fault is Fault.KILL_TRANSACTIONS]
        for number, at in enumerate(killed, 1):
            steps.append((at, partial(self._replace, workers, "transactions", number)))
        for at, step in sorted(steps, key=lambda step: step[0]):
            self._sleep_until(at)
            step()
        self._sleep_until(self._seconds)

    def _change(self, worker: str, change: Change, function: Callable[[str], None]) -> None:
        self._note(f"{worker} {change.value}")
        function(worker)

    def _replace(self, workers: Workers, role: str, number: int) -> None:
        self._note(Fault.KILL_TRANSACTIONS.value)
        workers.kill(f"{role}-{number}")
        workers.start(f"{role}-{number + 1}")

    def _await_workers(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        ready: set[str] = set()
        while not ready.issuperset(WORKERS):
            if time.monotonic() > deadline:
                raise ServerError(f"not begun: {', '.join(set(WORKERS) - ready)}")
            time.sleep(0.2)
            ready = {event.worker for event in self._events() if event.kind == READY}

    def _events(self) -> list[Event]:
        return read_journals(self._directory / "journals")

    def _await_arrival(self) -> None:
        deadline = time.monotonic() + ARRIVAL_SECONDS
        while not account(self._events()).is_complete:
            if time.monotonic() > deadline:
                self._note("not all has arrived")
                return
            time.sleep(1)
        time.sleep(LATER_SECONDS)
        self._note("all has arrived")


def _kill_broker(side: Side) -> None:
    side.kill(BROKER)
    side.spawn(BROKER)


def _end_broker(side: Side) -> None:
    side.end(BROKER)
    side.spawn(BROKER)


def _kill_namesrv(side: Side) -> None:
    side.kill("namesrv")
    time.sleep(NAMESRV_AWAY)
    side.start_namesrv()


_OF_SERVERS = {
    Fault.KILL_BROKER: _kill_broker,
    Fault.END_BROKER: _end_broker,
    Fault.KILL_NAMESRV: _kill_namesrv,
}
