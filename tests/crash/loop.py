"""Load, kill, perhaps cut the power, restart, check, and on."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from threading import Event

import rocketd
from rocketd.common.names import TRANS_HALF_TOPIC
from tests.crash.check import Checker, CheckError, Ledger
from tests.crash.load import Load, Producer
from tests.crash.messages import DELAY_LEVELS
from tests.crash.power_cut import Cut, cut_power, flushed_offsets
from tests.support import wire
from tests.support.patience import PATIENT
from tests.support.ports import free_broker_port
from tests.support.process import ServerError, ServerProcess

MODES = ("kill", "power")
FLUSHES = ("SYNC_FLUSH", "ASYNC_FLUSH")
PRODUCERS = 4
START_LIMIT = 120.0  # seconds
LARGEST_STORE = 12_000
"""A store with more messages than these has been read often enough: the next round begins with an empty one."""

_SOURCES = Path(rocketd.__file__).parents[1]
_TROUBLE = ("Traceback (most recent call last)", "Unhandled", "#error] ", "#critical] ")


class CrashLoop:
    """One run on one directory, which must be empty. ``seed`` decides all random choices of the run."""

    def __init__(
        self, directory: Path, mode: str, flush: str, seed: int, report: Callable[[str], None] = print
    ) -> None:
        self.directory = directory
        self.mode = mode
        self.flush = flush
        self.random = Random(f"{mode} {flush} {seed}")
        self.report = report
        self.round = 0
        self.checked = 0
        self.kills = 0
        self._store = directory / "store"
        self._shadow = directory / "shadow"
        self._port = free_broker_port()
        self._ledger = Ledger()
        self._broker: ServerProcess | None = None

    def run(self, seconds: float, kills: int = 2) -> None:
        """Go on for about so many seconds, until there were so many kills under load; AssertionError or ServerError at the
        first fault.
        """
        deadline = time.monotonic() + seconds
        try:
            while self.round < 3 or self.kills < kills or time.monotonic() < deadline:
                self.round += 1
                self._run_round()
            count = self._start_and_check(delays_over=True)
            assert self._running.stop() == 0, self._running.tail()
            self.report(f"end: {count} messages, all delayed ones delivered")
        finally:
            if self._broker is not None and self._broker.exit_code is None:
                self._broker.kill()

    @property
    def _running(self) -> ServerProcess:
        assert self._broker is not None
        return self._broker

    def _run_round(self) -> None:
        random = self.random
        if not self._store.exists():
            self._make_store()
        if random.random() < 0.2:
            self._start(wait=False)
            Event().wait(random.uniform(0.2, 1.5))
            self._running.kill()
            self._after_the_end("killed at the start", [])
        began = time.monotonic()
        count = self._start_and_check(delays_over=False)
        checked = time.monotonic() - began
        self.checked += count
        producers = [Producer(f"r{self.round}p{number}", Random(f"{random.random()}")) for number in range(PRODUCERS)]
        load = Load(self._port, producers)
        load.wait_for(random.choice((5, 50, 300, 1_000)) + random.randrange(300), random.uniform(0.1, 1.5))
        if random.random() < 0.1:
            how = "stopped"
            assert self._running.stop() == 0, self._running.tail()
        else:
            how = "killed"
            self._running.kill()
            self.kills += 1
        load.join()
        self._after_the_end(how, producers, f"{count} messages found in {checked:.1f} s; ")
        if count > LARGEST_STORE:
            self._start_and_check(delays_over=True)
            assert self._running.stop() == 0, self._running.tail()
            shutil.rmtree(self._store)
            shutil.rmtree(self._shadow, ignore_errors=True)
            self._ledger = Ledger()

    def _make_store(self) -> None:
        """An empty store that lets the checker pull half messages: a broker makes their topic for itself only."""
        config = self._store / "config"
        config.mkdir(parents=True)
        topic = {"topicName": TRANS_HALF_TOPIC, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        (config / "topics.json").write_text(json.dumps({"topicConfigTable": {TRANS_HALF_TOPIC: topic}}))

    def _after_the_end(self, how: str, producers: list[Producer], found: str = "") -> None:
        """Cut the power if the mode is a power cut, and note the messages that must be there from now on."""
        broker = self._running
        text = broker.log.read_text(errors="replace")
        assert not any(sign in text for sign in _TROUBLE), f"{broker.log}:\n{broker.tail(60)}"
        refused = [refusal for producer in producers for refusal in producer.refused]
        assert not refused or how == "stopped", refused[:3]
        cut: Cut | None = None
        for producer in producers:
            self._ledger.add(producer)
        if self.mode == "power" and self.random.random() < 0.7:
            cut = cut_power(self._store, self._shadow, self.random)
            shutil.rmtree(self._shadow, ignore_errors=True)
            if how != "stopped" and cut.flushed_log is not None:
                self._ledger.keep(flushed_offsets(cut), acknowledged=self.flush == "SYNC_FLUSH")
        kept = len(self._ledger.places)
        acknowledged = sum(len(producer.acknowledged) for producer in producers)
        self.report(
            f"round {self.round}: {found}{acknowledged} more acknowledged; {how}"
            + (f"; {cut}" if cut else "")
            + f"; {kept} have to stay"
        )

    def _start_and_check(self, delays_over: bool) -> int:
        self._start(wait=True)
        try:
            return Checker(self._port, self._ledger, self.random).check(delays_over)
        except OSError as error:
            raise ServerError(f"no answer: {error}\n{self._running.tail(60)}") from error
        except CheckError as error:
            self._running.kill()
            raise CheckError(f"{error}\n{self._running.tail()}\n{self._verified()}") from error

    def _verified(self) -> str:
        """Return the findings of rocketd's examination of the store of a killed broker."""
        config = str(self.directory / "broker.conf")
        command = [sys.executable, "-m", "rocketd", "store", "verify", "--config", config, str(self._store)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_LIMIT, env=self._environment())
        return done.stdout + done.stderr

    @staticmethod
    def _environment() -> dict[str, str]:
        return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(_SOURCES), os.environ.get("PYTHONPATH"))))}

    def _start(self, wait: bool) -> None:
        config = self.directory / "broker.conf"
        settings = {
            "listenPort": str(self._port),
            "brokerIP1": "127.0.0.1",
            "brokerName": "broker-a",
            "namesrvAddr": "",
            "storePathRootDir": str(self._store),
            "flushDiskType": self.flush,
            **PATIENT,
            "mappedFileSizeCommitLog": "131072",
            "mappedFileSizeConsumeQueue": "6000",
            "maxHashSlotNum": "500",
            "maxIndexNum": "2000",
            "messageDelayLevel": DELAY_LEVELS,
            "diskMaxUsedSpaceRatio": "99",
            "flushIntervalCommitLog": "100",
            "flushCommitLogThoroughInterval": "500",
            "flushIntervalConsumeQueue": "100",
            "flushConsumeQueueThoroughInterval": "500",
            "flushDelayOffsetInterval": "200",
            "flushConsumerOffsetInterval": "200",
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        if self.mode == "power":
            launcher = str(Path(__file__).with_name("launcher.py"))
            command = [sys.executable, launcher, str(self._store), str(self._shadow), str(config)]
        else:
            twistd = str(Path(sys.executable).with_name("twistd"))
            command = [sys.executable, twistd, "-n", "--pidfile", "", "rocketd-broker", "-c", str(config)]
        log = self.directory / f"broker-{self.round}.log"
        self._broker = ServerProcess("broker", command, log, self.directory, self._environment())
        if wait:
            address = f"127.0.0.1:{self._port}"
            self._broker.wait_for("it accepts", lambda: wire.accepts(address), START_LIMIT)
