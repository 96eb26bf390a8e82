"""Stores that are killed at lines of their code, for a bounded time; `python -m tests.crash.kill_points` goes on."""

import os
import signal
import subprocess
import sys
from random import Random, SystemRandom

import pytest

from rocketd.store.message_store import MessageStore
from rocketd.store.testing import STORE_HOST, small_config
from tests.crash.kill_checks import FaultError, check, put, stored_form
from tests.crash.kill_trace import functions_of
from tests.support.places import ROOT

SECONDS = float(os.environ.get("ROCKETD_KILL_POINT_SECONDS", "20"))
SEED = int(os.environ.get("ROCKETD_CRASH_SEED", "0")) or SystemRandom().randrange(1 << 32)


@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize("options", [[], ["--power"]])
def test_stores_live_on_after_every_kill(options):
    # In a child process: the process that forks must have one thread.
    command = [sys.executable, "-m", "tests.crash.kill_points", "--seconds", str(SECONDS), "--seed", str(SEED)]
    command += options
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=SECONDS + 100)
    print(done.stdout)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.fixture
def store(tmp_path):
    store = MessageStore(small_config(str(tmp_path / "store")), STORE_HOST)
    store.start()
    yield store
    store.stop()


def filled(store, count=30):
    answers = []
    put(store, 0, count, Random(1), answers.append)
    places = {}
    for line in b"".join(answers).decode().splitlines():
        number, topic, *numbers = line.split(" ")
        places[0, int(number)] = (topic, *map(int, numbers))
    assert len(places) == count
    return places


def test_check_passes_right_store(store):
    places = filled(store)
    assert check(store, places, {0: 30}) == places


def test_check_finds_lost_message(store):
    places = filled(store)
    with pytest.raises(FaultError, match="lost"):
        check(store, places | {(0, 30): ("KillA", 0, 99, 99_999)}, {0: 31})


def test_check_finds_invented_message(store):
    places = filled(store)
    with pytest.raises(FaultError, match="never sent"):
        check(store, places, {0: 29})


def test_check_finds_duplicate_message(store):
    places = filled(store)
    store.put_messages([stored_form((0, 3))])
    while store.dispatch_behind_bytes():
        pass
    with pytest.raises(FaultError, match=r"comes after|twice"):
        check(store, places, {0: 30})


def test_check_finds_message_missing_in_index(store):
    assert store.index is not None
    real, store.index.put = store.index.put, lambda requests: None
    places = filled(store, 3)
    store.index.put = real
    with pytest.raises(FaultError, match="found"):
        check(store, places, {0: 3})


START_WITH = """
import sys
from pathlib import Path
from rocketd.store.message_store import MessageStore
from rocketd.store.testing import STORE_HOST, small_config
from tests.crash.kill_trace import KillPoint
file, line, times, directory = sys.argv[1:]
point = KillPoint(file, int(line) or None, int(times), Path(directory, "note"))
point.install()
point.armed = True
MessageStore(small_config(directory + "/store"), STORE_HOST).start()
"""


def start_with(directory, file, line, times):
    """Return the exit status of a process that starts a store with this kill point, and the place of its kill."""
    command = [sys.executable, "-c", START_WITH, file, str(line), str(times), str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60)
    note = directory / "note"
    return done.returncode, note.read_text() if note.exists() else ""


@pytest.mark.parametrize("times", [1, 3])
def test_kill_point_ends_the_process_there(tmp_path, times):
    line = functions_of("log/mapped_file_queue.py")[0][-1]
    status, where = start_with(tmp_path, "log/mapped_file_queue.py", line, 1)
    assert status == -signal.SIGKILL
    assert where.startswith(f"mapped_file_queue.py:{line} in ")
    status, where = start_with(tmp_path, "state/last_stop.py", 0, times)
    assert status == -signal.SIGKILL
    assert where.startswith("last_stop.py:")


def test_kill_point_not_reached_does_nothing(tmp_path):
    assert start_with(tmp_path, "state/last_stop.py", 0, 10_000) == (0, "")
