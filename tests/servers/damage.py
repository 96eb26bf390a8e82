"""Stores to damage, and brokers that start on them; `good`, `left_by_a_kill` and `servers` are fixtures."""

import os
import shutil
import struct
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rocketd.remoting.wire.codes import ResponseCode
from tests.servers.load import Connection, Sent, check_everything_is_there, message
from tests.support import wire
from tests.support.lacking import end_test_lacking
from tests.support.process import ServerError, ServerProcess
from tests.support.server_processes import TOPIC, ServerProcesses

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
    """Send messages one window at a time; record acknowledged and refused ones."""
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
    """A store with messages, stopped cleanly, and the sent messages."""
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
    """The file that a broker leaves if it is killed with its store open, and the content of that file."""
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


class Namespace:
    """A new mount namespace with one directory on another disk; it ends with this process."""

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
        end_test_lacking("only root, with unshare and nsenter of util-linux, can mount a disk for this test")
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


@contextmanager
def broker_on_small_disk(directory, **settings):
    """Yield the servers, the disk of 3 MB on which their store lies, and the broker, which serves. All of them end."""
    servers = ServerProcesses(directory, **{**SMALL, "mappedFileSizeCommitLog": "262144", **settings})
    with namespace(servers.store, f"mount -t tmpfs -o size=3m tmpfs {servers.store}") as space:
        try:
            broker = start_in(space, servers)
            broker.wait_for("it serves", lambda: serves(servers.broker_address), START_LIMIT)
            yield servers, space, broker
        finally:
            servers.kill_all()


def fill_up(directory):
    """Leave no page of a disk free. Return the file that takes the space."""
    ballast = directory / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    return ballast


def await_service_again(broker, address, sent):
    """Wait until a broker whose disk was full takes messages, and serves all acknowledged ones."""
    before = len(sent.acknowledged)

    def takes_messages():
        send(address, sent, 50)
        return len(sent.acknowledged) > before

    try:
        broker.wait_for("it takes messages again", takes_messages, RECOVERY_LIMIT)
    except ServerError as error:
        error.add_note(f"{len(sent.refused)} sends were refused, the last with {sent.refused[-1:]}")
        raise

    def everything_is_there():
        # Entries without space in their queue are written once there is space.
        try:
            return check_everything_is_there(address, [sent]) == len(sent.acknowledged)
        except AssertionError:
            return False

    broker.wait_for("everything is there", everything_is_there, RECOVERY_LIMIT)
