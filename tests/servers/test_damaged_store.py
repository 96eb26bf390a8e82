"""Brokers on damaged stores, full disks and read-only directories: a status, or one line with the command to run; and no
stored message is destroyed."""

import os
import shutil
import struct
import subprocess
import sys

import pytest

from rocketd.remoting.wire.codes import ResponseCode
from tests.servers.damage import (
    COUNT,
    LOG_FILE,
    SMALL,
    START_LIMIT,
    assert_is_one_clear_line,
    assert_serves_everything,
    assert_whole_records,
    await_service_again,
    broker_on_small_disk,
    fill_up,
    good,
    left_by_a_kill,
    log_bytes,
    log_files,
    namespace,
    pull,
    run,
    send,
    servers,
    serves,
    start_in,
)
from tests.servers.load import Sent
from tests.support.process import ServerError
from tests.support.server_processes import QUEUES, SOURCES, TOPIC, ServerProcesses

__all__ = ["good", "left_by_a_kill", "servers"]  # fixtures


def records(path):
    """Begin and size of each record in a file of the log."""
    return records_of(path.read_bytes())


def records_of(data):
    at, found = 0, []
    while at + 8 <= len(data):
        size, magic = struct.unpack_from(">ii", data, at)
        if magic != -626843481:
            break
        found.append((at, size))
        at += size
    return found


def flip_bit(path, position):
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes((byte ^ 0x10,)))


def assert_refuses_to_start(servers, *words):
    """It ends with one line that names the problem and the command to run, and leaves the log as it was."""
    before = log_bytes(servers.store)
    log = run(servers)
    assert log is not None, "it serves"
    assert_is_one_clear_line(log, *words)
    assert log_bytes(servers.store) == before


# ---------------------------------------------------------------- damage that only a person can repair


def test_a_missing_file_in_the_middle_of_the_log(servers):
    missing = log_files(servers.store)[2]
    missing.unlink()
    assert_refuses_to_start(servers, "commitlog")


@pytest.mark.parametrize(("number", "size"), [(0, LOG_FILE // 2), (1, 1), (2, LOG_FILE + 4096)])
def test_a_file_of_the_log_of_a_wrong_size(number, size, servers):
    path = log_files(servers.store)[number]
    os.truncate(path, size)
    assert_refuses_to_start(servers, str(path), f"{size} bytes", str(LOG_FILE))


@pytest.mark.parametrize("where", ["body", "length"])
def test_a_bit_flipped_in_the_middle_of_the_log(where, servers):
    path = log_files(servers.store)[len(log_bytes(servers.store)) - 2]
    begin, size = records(path)[20]
    flip_bit(path, begin + (2 if where == "length" else size // 2))
    assert_refuses_or_leaves(servers, path, begin)


@pytest.mark.parametrize("where", ["body", "length"])
def test_a_bit_flipped_in_the_last_record(where, servers):
    path = log_files(servers.store)[len(log_bytes(servers.store)) - 1]
    begin, size = records(path)[-1]
    flip_bit(path, begin + (2 if where == "length" else size // 2))
    assert_refuses_or_leaves(servers, path, begin)


def assert_refuses_or_leaves(servers, path, begin):
    """A start that notices refuses; one that has no reason to read so far back leaves the log as it is. After a crash of
    the system the last record may be one that never got to the disk: the log may then end before it.
    """
    before = log_bytes(servers.store)
    log = run(servers)
    if log is not None:
        assert_is_one_clear_line(log, str(path), str(int(path.name) + begin))
        assert log_bytes(servers.store) == before
        return
    assert servers.processes[-1].stop() == 0
    after = log_bytes(servers.store)
    if servers.left == "crashed" and begin == records_of(before[path.name])[-1][0]:
        after[path.name], before[path.name] = after[path.name][:begin], before[path.name][:begin]
    assert after == before


# ---------------------------------------------------------------- files that the log can restore


def test_missing_consume_queues(servers, good):
    shutil.rmtree(servers.store / "consumequeue")
    assert_serves_everything(servers, good[1])


def repair(servers, *options):
    """Repair a store whose damage a start does not notice without the notes of the files, as after Apache's broker."""
    (servers.store / "rocketd-files").unlink()
    config = servers._write("broker", servers.broker_config)
    command = [sys.executable, "-m", "rocketd", "store", "repair", str(servers.store), "--write", *options]
    command += ["--config", str(config)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=os.environ | {"PYTHONPATH": SOURCES}
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_one_missing_consume_queue(servers, good):
    shutil.rmtree(servers.store / "consumequeue" / TOPIC / "2")
    repair(servers)
    assert_serves_everything(servers, good[1])


def test_a_missing_file_of_a_consume_queue(servers, good):
    sorted((servers.store / "consumequeue" / TOPIC / "1").iterdir())[0].unlink()
    repair(servers)
    assert_serves_everything(servers, good[1])


def test_a_missing_index(servers, good):
    shutil.rmtree(servers.store / "index")
    repair(servers, "--index")
    assert_serves_everything(servers, good[1])


def test_a_missing_checkpoint(servers, good):
    (servers.store / "checkpoint").unlink()
    assert_serves_everything(servers, good[1])


def test_store_with_only_the_log_is_repaired(servers, good):
    shutil.rmtree(servers.store / "consumequeue")
    shutil.rmtree(servers.store / "index")
    (servers.store / "checkpoint").unlink()
    assert_serves_everything(servers, good[1])


@pytest.mark.parametrize("entries", [(3, 4), (0, 100), (60, 99)])
def test_garbage_in_a_consume_queue(entries, servers, good):
    """Readers get whole records or none, and the log stays as it is, whether the start notices or not."""
    first, end = entries
    path = sorted((servers.store / "consumequeue" / TOPIC / "0").iterdir())[-1]
    with path.open("r+b") as file:
        file.seek(first * 20)
        file.write(bytes(range(7, 27)) * (end - first))
    before = log_bytes(servers.store)
    log = run(servers)
    if log is None:
        for queue_id in range(QUEUES):
            for number in range(0, COUNT // QUEUES, 10):
                assert_whole_records(pull(servers.broker_address, queue_id, number).body)
        assert servers.processes[-1].stop() == 0
    else:
        assert "rocketd store" in log
    # The log may have grown: a group that is moved to another offset is told so by a message.
    after = log_bytes(servers.store)
    for name, data in before.items():
        kept = data.rstrip(b"\0")
        assert after[name][: len(kept)] == kept, name


# ---------------------------------------------------------------- disks


def test_full_disk_refuses_sends_and_recovers_with_room(tmp_path):
    """Sends are refused with Apache's codes, stored messages are served, and with space again sends succeed."""
    sent = Sent("p")
    with broker_on_small_disk(tmp_path) as (servers, space, broker):
        address = servers.broker_address
        while not sent.refused:
            send(address, sent, 500)
            assert len(sent.acknowledged) < 20_000, "more than fits on the disk was taken"
        codes = {code for code, _ in sent.refused}
        assert codes <= {ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE}, sent.refused[:3]
        for code, remark in sent.refused:
            if code == ResponseCode.SERVICE_NOT_AVAILABLE:
                assert remark.startswith("service not available now"), remark
            else:
                assert "create mapped file failed" in remark, remark

        space.run("mount", "-o", "remount,size=64m", str(servers.store))
        sent.refused.clear()
        await_service_again(broker, address, sent)
        assert broker.stop() == 0
        assert "Traceback" not in broker.log.read_text()


def test_disk_full_for_queues_and_index_recovers_with_room(tmp_path):
    """The log still has space, so that messages are taken that cannot be entered."""
    sent = Sent("p")
    with broker_on_small_disk(tmp_path, warmMapedFileEnable="true") as (servers, space, broker):
        address = servers.broker_address
        send(address, sent, 50)
        ballast = fill_up(space.seen)
        while not sent.refused:
            send(address, sent, 50)
        log = broker.log.read_text()
        assert "cannot write queue" in log or "cannot write the index" in log

        ballast.unlink()
        sent.refused.clear()
        await_service_again(broker, address, sent)
        assert broker.stop() == 0
        assert "Traceback" not in broker.log.read_text()


def test_a_read_only_directory(good, tmp_path):
    """It ends with one line that names the directory."""
    servers = ServerProcesses(tmp_path, **SMALL)
    shutil.copytree(good[0], servers.store)
    before = {path: path.read_bytes() for path in servers.store.rglob("*") if path.is_file()}
    store = servers.store
    with namespace(store, f"mount --bind {store} {store} && mount -o remount,bind,ro {store}") as space:
        process = start_in(space, servers)
        try:
            process.wait_for("its end", lambda: process.exit_code is not None, START_LIMIT)
        except ServerError:
            pass  # its end is the awaited event
        finally:
            servers.kill_all()
        assert process.exit_code == 1
        last = process.tail(1)
        assert last.startswith("rocketd-broker: "), process.tail()
        assert "Read-only file system" in last
        assert str(store) in last
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before


def test_store_without_its_tables_names_the_missing_ones(good, tmp_path):
    servers = ServerProcesses(tmp_path, **SMALL)
    shutil.copytree(good[0], servers.store)
    kept = servers.store / "config"
    shutil.rmtree(kept)
    try:
        broker = servers.start_broker(registered=False)
        broker.wait_for("it serves", lambda: serves(servers.broker_address), START_LIMIT)
        log = broker.log.read_text()
    finally:
        servers.kill_all()
    (line,) = [line for line in log.splitlines() if "the store has messages of 1 topics, but" in line]
    for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json"):
        assert str(kept / name) in line
    assert "1 topics have lost their settings" in line
    assert (
        f"1 topics have messages in the store, but no entry in {kept / 'topics.json'}: {TOPIC} ({QUEUES} queues)" in log
    )
