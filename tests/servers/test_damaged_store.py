"""Brokers on damaged stores, full disks and read-only directories: a status, or one line that says what to run; and
nothing that was stored is destroyed."""

import os
import shutil
import struct
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from load import Connection, Sent, check_everything_is_there, message
from server_processes import QUEUES, SOURCES, TOPIC, ServerProcesses

from benchmarks.peers import wire
from benchmarks.peers.process import ServerError, ServerProcess
from rocketd.remoting.codes import ResponseCode

LOG_FILE = 65_536
COUNT = 700
"""Messages of the store that is damaged: six files of the log, four queues, two index files."""
SMALL = {
    "mappedFileSizeCommitLog": str(LOG_FILE),
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "200",
    "maxIndexNum": "500",
}
START_LIMIT = 120.0  # seconds
GET_BROKER_RUNTIME_INFO = 28
RECOVERY_LIMIT = 90.0  # seconds: the disk is looked at every ten


def send(address, sent, count):
    """Send messages one window at a time; notes what is acknowledged and what is refused."""
    connection = Connection(address)
    try:
        for _ in range(0, count, 50):
            waiting = {}
            for _ in range(50):
                command = message(sent.producer, sent.next_number)
                waiting[command.opaque] = sent.next_number
                sent.next_number += 1
                connection.send(command)
            while waiting:
                answers = connection.receive()
                assert answers, "the broker closed the connection"
                for answer in answers:
                    number = waiting.pop(answer.opaque)
                    if answer.code == ResponseCode.SUCCESS:
                        fields = answer.ext_fields
                        sent.acknowledged[number] = (int(fields["queueId"]), int(fields["queueOffset"]))
                    else:
                        sent.refused.append((answer.code, answer.remark))
    finally:
        connection.close()


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A store with messages, stopped cleanly, and what was sent."""
    servers = ServerProcesses(tmp_path_factory.mktemp("good"), **SMALL)
    sent = Sent("p")
    try:
        broker = servers.start_broker(registered=False)
        send(servers.broker_address, sent, COUNT)
        assert broker.stop() == 0
    finally:
        servers.kill_all()
    assert len(sent.acknowledged) == COUNT
    assert len(list((servers.store / "commitlog").iterdir())) >= 6
    return servers.store, sent


@pytest.fixture(scope="module")
def left_by_a_kill(good, tmp_path_factory):
    """The file that a broker leaves when it is killed while it has the store open, and what is in it."""
    servers = ServerProcesses(tmp_path_factory.mktemp("killed"), **SMALL)
    shutil.copytree(good[0], servers.store)
    broker = servers.start_broker(registered=False)
    broker.wait_for("it serves", lambda: serves(servers.broker_address), START_LIMIT)
    broker.kill()
    path = servers.store / "abort"
    return path, path.read_bytes()


@pytest.fixture(params=["stopped", "killed", "crashed"])
def servers(request, good, left_by_a_kill, tmp_path):
    """Servers on a copy of the store, that was left in one of three ways."""
    made = ServerProcesses(tmp_path, **SMALL)
    made.left = request.param
    shutil.copytree(good[0], made.store)
    abort = made.store / "abort"
    if made.left == "killed":
        # The file tells a mere end of the process by which file it is: so it has to be the same.
        abort.hardlink_to(left_by_a_kill[0])
        abort.write_bytes(left_by_a_kill[1])
    elif made.left == "crashed":
        abort.touch()
    yield made
    made.kill_all()


def serves(address):
    """Whether requests are answered: it accepts connections already while it recovers."""
    try:
        return wire.call(address, GET_BROKER_RUNTIME_INFO).code == 0
    except OSError:
        return False


def run(servers):
    """Start a broker: None when it serves, else its log, once it has ended with status 1."""
    process = servers._spawn("broker", servers.broker_config)
    try:
        process.wait_for("it serves", lambda: serves(servers.broker_address), START_LIMIT)
    except ServerError:
        assert process.exit_code == 1, process.tail()
        return process.log.read_text()
    return None


def log_files(store):
    return sorted((store / "commitlog").iterdir())


def log_bytes(store):
    """Files of the log that are not empty: one made ahead may come and go."""
    return {path.name: data for path in log_files(store) if (data := path.read_bytes()).strip(b"\0")}


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
    """It ends with one line that names the trouble and the command to run, and leaves the log as it was."""
    before = log_bytes(servers.store)
    log = run(servers)
    assert log is not None, "it serves"
    assert_is_one_clear_line(log, *words)
    assert log_bytes(servers.store) == before


def assert_is_one_clear_line(log, *words):
    lines = [line for line in log.splitlines() if line.startswith("rocketd-broker: ")]
    assert len(lines) == 1, log
    assert "Traceback" not in log
    for word in words:
        assert word in lines[0]
    assert "rocketd store verify" in lines[0] or "rocketd store repair" in lines[0], lines[0]


def assert_serves_everything(servers, sent):
    """It starts, serves all there was in its order, takes more, and leaves the log's old bytes as they were."""
    before = log_bytes(servers.store)
    broker = servers.start_broker(registered=False)
    broker.wait_for("it serves", lambda: serves(servers.broker_address), START_LIMIT)
    assert check_everything_is_there(servers.broker_address, [sent]) == COUNT
    assert_found_by_key(servers.broker_address, sent)
    after = log_bytes(servers.store)
    assert after == before
    more = Sent("more")
    send(servers.broker_address, more, 50)
    assert more.refused == []
    assert check_everything_is_there(servers.broker_address, [sent, more]) == COUNT + 50
    assert broker.stop() == 0
    assert "Traceback" not in broker.log.read_text()


def assert_found_by_key(address, sent):
    for number in (0, COUNT // 2, COUNT - 1):
        fields = {"topic": TOPIC, "key": f"{sent.producer}-{number}", "maxNum": "10"}
        answer = wire.call(address, 12, {**fields, "beginTimestamp": "0", "endTimestamp": str(1 << 60)})
        assert answer.code == 0, (number, answer)
        assert f"{sent.producer} {number} ".encode() in answer.body


# ---------------------------------------------------------------- what only a person can mend


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


# ---------------------------------------------------------------- what the log can restore


def test_missing_consume_queues(servers, good):
    shutil.rmtree(servers.store / "consumequeue")
    assert_serves_everything(servers, good[1])


def repair(servers, *options):
    """What a start does not notice without the notes of the files, as after Apache's broker."""
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


def test_nothing_but_the_log(servers, good):
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


def pull(address, queue_id, offset):
    fields = {
        "consumerGroup": "Damage", "topic": TOPIC, "queueId": str(queue_id), "queueOffset": str(offset),
        "maxMsgNums": "10", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
        "subVersion": "0",
    }  # fmt: skip
    return wire.call(address, 11, fields)


def assert_whole_records(body):
    at = 0
    while at < len(body):
        size, magic = struct.unpack_from(">ii", body, at)
        assert magic == -626843481, f"no record at {at} of an answer"
        at += size
    assert at == len(body)


# ---------------------------------------------------------------- disks


class Namespace:
    """A mount namespace of its own with one directory on another disk; it ends with this process."""

    def __init__(self, directory: Path, mount: str) -> None:
        directory.mkdir(exist_ok=True)
        script = f"{mount} && echo ready && exec cat"
        self._holder = subprocess.Popen(
            ["unshare", "-m", "--propagation", "private", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said = self._holder.stdout.readline()
        assert said == "ready\n", said
        self._directory = directory

    @property
    def seen(self) -> Path:
        """The directory as it is in there."""
        return Path(f"/proc/{self._holder.pid}/root{self._directory}")

    def command(self, command):
        return ["nsenter", "-t", str(self._holder.pid), "-m", f"--wd={self._directory.parent}", *command]

    def run(self, *command):
        subprocess.run(self.command(command), check=True)

    def end(self):
        self._holder.stdin.close()
        self._holder.wait()
        self._holder.stdout.close()


@contextmanager
def namespace(directory, mount):
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("nsenter") is None:
        reason = "only root, with unshare and nsenter of util-linux, can mount a disk for this test"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    made = Namespace(directory, mount)
    try:
        yield made
    finally:
        made.end()


def start_in(space, servers):
    command = space.command(servers._command("broker", servers._write("broker", servers.broker_config)))
    log = servers.directory / f"broker-{len(servers.processes)}.log"
    process = ServerProcess("broker", command, log, servers.directory, servers._environment())
    servers.processes.append(process)
    return process


def await_service_again(broker, address, sent):
    """Wait until a broker whose disk was full takes messages, and serves all that it has acknowledged."""
    before = len(sent.acknowledged)

    def takes_messages():
        send(address, sent, 50)
        return len(sent.acknowledged) > before

    broker.wait_for("it takes messages again", takes_messages, RECOVERY_LIMIT)

    def everything_is_there():
        # What found no room in its queue gets there when there is some.
        try:
            return check_everything_is_there(address, [sent]) == len(sent.acknowledged)
        except AssertionError:
            return False

    broker.wait_for("everything is there", everything_is_there, RECOVERY_LIMIT)


def test_a_full_disk(tmp_path):
    """Sends are refused with Apache's codes, what is there is served, and after room was made all goes on."""
    servers = ServerProcesses(tmp_path, **{**SMALL, "mappedFileSizeCommitLog": "262144"})
    address = servers.broker_address
    sent = Sent("p")
    with namespace(servers.store, f"mount -t tmpfs -o size=3m tmpfs {servers.store}") as space:
        try:
            broker = start_in(space, servers)
            broker.wait_for("it serves", lambda: serves(address), START_LIMIT)
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
        finally:
            servers.kill_all()


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
            pass  # it says that it ended, which is what is waited for
        finally:
            servers.kill_all()
        assert process.exit_code == 1
        last = process.tail(1)
        assert last.startswith("rocketd-broker: "), process.tail()
        assert "Read-only file system" in last
        assert str(store) in last
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before


def test_a_store_without_its_tables_says_what_is_missing(good, tmp_path):
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
