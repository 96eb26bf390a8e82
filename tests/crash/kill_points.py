"""Kills store processes at randomly chosen lines of rocketd's store, and checks the store after each kill.

``python -m tests.crash.kill_points --seconds 300``. The crash loop kills by the clock, and so hardly ever between two lines
that are microseconds apart; here a trace function counts the lines that any thread executes, of all the store or of one
module, and sends SIGKILL to its process at the chosen one. A life of a store is a row of loads, stops and starts, each
in a new process, most of them killed. The disk keeps all writes, as after the end of a mere process. With ``--power``,
many kills are followed by a power cut, which takes any part of what was not flushed.
"""

import argparse
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom

from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.message_store import MessageStore
from rocketd.store.state.last_stop import mark_in_doubt
from rocketd.store.testing import STORE_HOST, small_config
from tests.crash.kill_checks import FaultError, MessageId, Place, check, put
from tests.crash.kill_trace import in_child, kill_point, refuse_errors
from tests.crash.power_cut import cut_power, flushed_offsets
from tests.crash.recording import RecordingFileSystem

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Directory of the stores: in memory, so that writes are kept without waiting for a disk."""


@dataclass
class Life:
    """One store from its first start to its last check; ``seed`` decides everything except the order of threads."""

    directory: Path
    seed: str
    power: bool = False
    """Whether power cuts follow kills."""
    trail: list[str] = field(default_factory=list)
    places: dict[MessageId, Place] = field(default_factory=dict)
    """Places of messages that must be there: acknowledged, or served before."""
    sent: dict[int, int] = field(default_factory=dict)
    """How many messages each load may have given to the store."""

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        pick = self.random.choice
        quick = pick((True, False))
        self.settings: dict[str, object] = {
            "max_hash_slot_num": pick((7, 50)),
            "max_index_num": pick((11, 20, 100)),
            "mapped_file_size_commit_log": pick((4096, 8192, 65536)),
            "mapped_file_size_consume_queue": pick((100, 200, 1000)),
            "enable_consume_queue_ext": pick((False, False, True)),
            "flush_disk_type": pick(("ASYNC_FLUSH", "SYNC_FLUSH")),
            "flush_interval_commit_log": 5 if quick else 500,
            "flush_interval_consume_queue": 5 if quick else 1000,
            "flush_commit_log_thorough_interval": 20 if quick else 10_000,
            "flush_consume_queue_thorough_interval": 20 if quick else 60_000,
        }

    def run(self) -> None:
        """Live; raises FaultError."""
        for number in range(self.random.randint(1, 6)):
            self._load(number)
            for _ in range(self.random.choice((0, 0, 0, 1, 1, 2))):
                self._start()
            if self.power:
                if self.random.random() < 0.5:
                    self._cut_power()
            elif self.random.random() < 0.25:
                self._doubt()
            if self.random.random() < 0.2:
                self._check()
        self._check()
        self._check()

    def _config(self) -> MessageStoreConfig:
        return small_config(str(self.directory / "store"), **self.settings)

    def _open(self) -> MessageStore:
        root, shadow = str(self.directory / "store"), str(self.directory / "shadow")
        return MessageStore(
            self._config(), STORE_HOST, fs=RecordingFileSystem(root, shadow) if self.power else RealFileSystem()
        )

    def _cut_power(self) -> None:
        """Cut the power. Messages that were not flushed need not be there any more."""
        root, shadow = self.directory / "store", self.directory / "shadow"
        if not root.exists():
            return
        cut = cut_power(root, shadow, self.random)
        shutil.rmtree(shadow, ignore_errors=True)
        self.trail.append(f"power cut, {cut}")
        if cut.flushed_log is not None:
            flushed = flushed_offsets(cut)
            self.places = {message: place for message, place in self.places.items() if place[3] in flushed}

    def _step(self, what: str, work: Callable[[], None]) -> None:
        note = self.directory / "killed"
        note.unlink(missing_ok=True)
        status = in_child(work)
        self.trail.append(f"{what}: {note.read_text() if note.exists() else 'came to its end'}")
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            raise FaultError(f"{what} ended with wait status {status:#x}")

    def _load(self, number: int) -> None:
        """Start the store, put messages, perhaps stop; the file of acknowledgements has the answers."""
        count = self.random.randint(5, 150)
        point = kill_point(self.random, 30_000, self.directory / "killed")
        from_the_start, stopped = self.random.random() < 0.1, self.random.random() < 0.3
        choice = Random(f"{self.seed} load {number}")
        acknowledged = self.directory / f"acknowledged-{number}"

        def work() -> None:
            refuse_errors()
            point.install()
            point.armed = from_the_start
            store = self._open()
            store.holds_dispatch = choice.random() < 0.7
            store.start()
            point.armed = True
            with acknowledged.open("ab", buffering=0) as answers:
                put(store, number, count, choice, answers.write)
            if stopped:
                store.stop()

        self.sent[number] = count
        self._step(f"load {number} of {count}" + (", stopped" if stopped else ""), work)
        # An answer that the kill cut short was none.
        lines = acknowledged.read_text().split("\n")[:-1] if acknowledged.exists() else []
        for line in lines:
            index, topic, *numbers = line.split(" ")
            queue_id, queue_offset, offset = map(int, numbers)
            self.places[number, int(index)] = (topic, queue_id, queue_offset, offset)

    def _start(self) -> None:
        point = kill_point(self.random, 20_000, self.directory / "killed")

        def work() -> None:
            refuse_errors()
            point.install()
            point.armed = True
            self._open().start()

        self._step("start", work)

    def _doubt(self) -> None:
        """Leave the store as a start that is killed before it has changed anything leaves it."""
        if (self.directory / "store" / "abort").exists():
            mark_in_doubt(RealFileSystem(), str(self.directory / "store"))
            self.trail.append("left in doubt")

    def _check(self) -> None:
        """Read everything, then stop or be killed."""
        stopped = self.random.random() < 0.5
        found = self.directory / "found"

        def work() -> None:
            refuse_errors()
            store = self._open()
            store.start()
            found.write_bytes(pickle.dumps(check(store, self.places, self.sent)))
            if stopped:
                store.stop()

        found.unlink(missing_ok=True)
        self._step("check" + (", stopped" if stopped else ""), work)
        self.places = pickle.loads(found.read_bytes())


def run(
    seed: int, seconds: float, lives: int | None = None, first: int = 0, again: int = 1, power: bool = False
) -> int:
    """Let stores live for so many seconds; return their number. Prints and raises FaultError at the first fault; its
    files stay.
    """
    deadline = time.monotonic() + seconds
    number = first
    while time.monotonic() < deadline and (lives is None or number < first + lives):
        for _ in range(again):
            directory = Path(tempfile.mkdtemp(prefix="rocketd-kill-points-", dir=MEMORY))
            life = Life(directory, f"{seed} {number}", power)
            try:
                life.run()
            except FaultError as error:
                lines = [f"life {number}: {error}", *(f"  {step}" for step in life.trail), f"settings: {life.settings}"]
                lines.append(f"files: {directory}")
                lines.append(
                    f"again: python -m tests.crash.kill_points --seed {seed} --life {number}" + " --power" * power
                )
                raise FaultError("\n".join(lines)) from error
            shutil.rmtree(directory)
        number += 1
    return number - first


def main() -> int:
    """Run for the given time; 1 when a fault was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.kill_points", description=__doc__.partition(",")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="default 60")
    parser.add_argument("--seed", type=int, default=None, help="of an earlier run, to do the same again")
    parser.add_argument("--life", type=int, default=None, help="only this one, 20 times: threads have a say in it")
    parser.add_argument("--power", action="store_true", help="cut the power after many of the kills")
    options = parser.parse_args()
    seed = SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    print(f"python -m tests.crash.kill_points --seconds {options.seconds:g} --seed {seed}", flush=True)
    try:
        if options.life is None:
            count = run(seed, options.seconds, power=options.power)
        else:
            count = 20 * run(seed, options.seconds, lives=1, first=options.life, again=20, power=options.power)
    except FaultError as error:
        print(error)
        return 1
    print(f"{count} stores lived: nothing was lost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
