"""Brokers whose store lacks files of queues or index, after a clean stop, a kill and a crash: one line says which, and
everything is served."""

import shutil

import pytest

from tests.servers.damage import (
    COUNT,
    START_LIMIT,
    assert_serves_everything,
    good,
    left_by_a_kill,
    log_bytes,
    servers,
    serves,
)
from tests.servers.load import check_everything_is_there
from tests.support.server_processes import TOPIC

__all__ = ["good", "left_by_a_kill", "servers"]  # fixtures


def made_again(servers):
    """Return the files that the last broker recreated, according to its log."""
    lines = servers.processes[-1].log.read_text().splitlines()
    return [line for line in lines if "rebuilt from the log" in line]


def assert_makes_again(servers, sent, *missing):
    """Check that the broker names missing files once, serves everything, and has all files at the next start."""
    assert_serves_everything(servers, sent)
    (line,) = made_again(servers)
    for path in missing:
        assert str(path) in line
    broker = servers.start_broker(registered=False)
    broker.wait_for("it serves", lambda: serves(servers.broker_address), START_LIMIT)
    assert made_again(servers) == []
    assert check_everything_is_there(servers.broker_address, [sent]) == COUNT + 50
    assert broker.stop() == 0


def queue(servers, queue_id):
    return servers.store / "consumequeue" / TOPIC / str(queue_id)


def index_files(servers):
    return sorted((servers.store / "index").iterdir())


def test_complete_store_serves_everything(servers, good):
    before = log_bytes(servers.store)
    assert_serves_everything(servers, good[1])
    assert made_again(servers) == []
    assert log_bytes(servers.store) != before


def test_missing_queue_is_made_again(servers, good):
    shutil.rmtree(queue(servers, 2))
    assert_makes_again(servers, good[1], queue(servers, 2))


def test_missing_queues_of_topic_are_made_again(servers, good):
    shutil.rmtree(queue(servers, 0).parent)
    assert_makes_again(servers, good[1], queue(servers, 0), queue(servers, 3))


@pytest.mark.parametrize("number", [0, -1])
def test_missing_file_of_queue_is_made_again(number, servers, good):
    missing = sorted(queue(servers, 1).iterdir())[number]
    missing.unlink()
    assert_makes_again(servers, good[1], missing)


def test_missing_index_file_is_made_again(servers, good):
    missing = index_files(servers)[0]
    missing.unlink()
    assert_makes_again(servers, good[1], missing)


def test_missing_index_is_made_again(servers, good):
    missing = index_files(servers)[0]
    shutil.rmtree(servers.store / "index")
    assert_makes_again(servers, good[1], missing)


@pytest.mark.parametrize("bit", [40, 60])
def test_a_flipped_bit_in_the_last_entry_of_a_queue(bit, servers, good):
    """After a crash of the system the bit may be a result of the crash; no message is lost in any case."""
    path = sorted(queue(servers, 3).iterdir())[-1]
    data = bytearray(path.read_bytes())
    last = len(data.rstrip(b"\0")) // 20 * 20
    data[last + bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    assert_serves_everything(servers, good[1])
    (line,) = made_again(servers)
    assert f"queue {TOPIC}-3 does not agree with the log" in line


def test_start_without_the_log_is_refused_and_keeps_all_files(servers, good):
    """The case of a disk that is not mounted, and of a mistyped storePathCommitLog."""
    log = servers.store / "commitlog"
    aside = servers.directory / "aside"
    log.rename(aside)
    before = {path: path.read_bytes() for path in servers.store.rglob("*") if path.is_file() and path.name != "lock"}
    for changes, looked_at in (({}, log), ({"storePathCommitLog": "/nowhere/log"}, "/nowhere/log")):
        result = servers.run_broker(**changes)
        (line,) = result.stderr.strip().splitlines()
        assert result.returncode == 1
        assert f"the commit log is missing: looked in {looked_at} (does not exist)" in line
        assert "mount the disk of the log, put its files back or correct storePathCommitLog" in line
        after = {path: path.read_bytes() for path in servers.store.rglob("*") if path.is_file() and path.name != "lock"}
        assert after == before
    aside.rename(log)
    assert_serves_everything(servers, good[1])
