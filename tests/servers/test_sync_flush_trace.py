"""With SYNC_FLUSH the disk has a message before its sender has the answer: seen in the broker's system calls."""

import os
import re
import shutil
import time
from collections import defaultdict
from threading import Event
from typing import NamedTuple

import pytest

from rocketd.remoting.wire.codes import ResponseCode
from tests.servers.load import Connection, message
from tests.support import wire
from tests.support.lacking import end_test_lacking
from tests.support.process import ServerProcess
from tests.support.server_processes import ServerProcesses

START_LIMIT = 120.0  # seconds; a traced process is slow
ONE_BY_ONE = 20
TOGETHER = 60
CALLS = "openat,linkat,pwrite64,fdatasync,fsync,msync,sendto,sendmsg,write,writev"

# strace -f -ttt -xx, with the number of the thread in front; -s: answers to several come in one call.
_LINE = re.compile(r"(?P<pid>\d+)\s+(?P<time>\d+\.\d+)\s+(?P<rest>.*)")
_RESUMED = re.compile(r"<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)")
_CALL = re.compile(r"(?P<name>\w+)\((?P<arguments>.*)\)\s+=\s+(?P<result>-?\d+)")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


class Call(NamedTuple):
    """One system call: the lines of the trace at which it begins and ends, its descriptor and strings."""

    begin: int
    end: int
    name: str
    arguments: str
    result: int

    @property
    def descriptor(self):
        return int(re.match(r"\d+", self.arguments).group())

    @property
    def strings(self):
        return [bytes.fromhex(text.replace("\\x", "")) for text in _STRING.findall(self.arguments)]

    @property
    def data(self):
        return b"".join(self.strings)


def read_trace(lines):
    """Completed calls in the order of their beginnings."""
    calls, unfinished = [], {}
    for number, line in enumerate(lines):
        parts = _LINE.match(line)
        if parts is None:
            continue
        pid, rest = parts["pid"], parts["rest"]
        begin = number
        if rest.endswith("<unfinished ...>"):
            unfinished[pid] = number, rest.removesuffix("<unfinished ...>").rstrip()
            continue
        resumed = _RESUMED.match(rest)
        if resumed is not None and pid in unfinished:
            begin, first = unfinished.pop(pid)
            rest = first + resumed["rest"]
        call = _CALL.match(rest)
        if call is not None:
            calls.append(Call(begin, number, call["name"], call["arguments"], int(call["result"])))
    return sorted(calls)


def test_trace_reader_joins_interrupted_calls():
    lines = [
        "12 1700000000.000001 fdatasync(7 <unfinished ...>",
        '13 1700000000.000002 sendto(9, "\\x61\\x62", 2, 0, NULL, 0) = 2',
        "12 1700000000.000003 <... fdatasync resumed>) = 0",
        "12 1700000000.000004 --- SIGCHLD {si_signo=SIGCHLD} ---",
    ]
    first, second = read_trace(lines)
    assert (first.begin, first.end, first.name, first.descriptor, first.result) == (0, 2, "fdatasync", 7, 0)
    assert (second.begin, second.end, second.descriptor, second.data) == (1, 1, 9, b"ab")


@pytest.fixture
def strace():
    path = shutil.which("strace")
    if path is None:
        end_test_lacking("strace is missing: apt-get install strace")
    return path


def test_answers_follow_the_flush_of_their_records(strace, tmp_path):
    servers = ServerProcesses(tmp_path, flushDiskType="SYNC_FLUSH")
    trace = tmp_path / "trace"
    broker = start_traced(strace, servers, trace)
    try:
        offsets = send_all(servers.broker_address)
    finally:
        assert broker.stop() == 0
    assert len(offsets) == ONE_BY_ONE + TOGETHER
    answered = check(read_trace(whole(trace)), str(servers.store / "commitlog"), offsets)
    assert answered == len(offsets)


def test_without_sync_flush_answers_do_not_wait(strace, tmp_path):
    """The check above can fail: with ASYNC_FLUSH it finds answers before their flush."""
    servers = ServerProcesses(tmp_path, flushDiskType="ASYNC_FLUSH", flushIntervalCommitLog="10000")
    trace = tmp_path / "trace"
    broker = start_traced(strace, servers, trace)
    try:
        offsets = send_all(servers.broker_address)
    finally:
        assert broker.stop() == 0
    with pytest.raises(AssertionError, match="was answered before"):
        check(read_trace(whole(trace)), str(servers.store / "commitlog"), offsets)


def start_traced(strace, servers, trace):
    config = servers._write("broker", servers.broker_config)
    command = [
        strace, "-D", "-f", "-ttt", "-xx", "-s", "65536", "-e", f"trace={CALLS}", "-e", "signal=none", "-o", str(trace),
        *servers._command("broker", config),
    ]  # fmt: skip
    process = ServerProcess(
        "broker", command, servers.directory / "broker.log", servers.directory, servers._environment()
    )
    process.wait_for("it accepts", lambda: wire.accepts(servers.broker_address), START_LIMIT)
    return process


def whole(trace):
    """Return the lines of a trace, once the last is written, which may be after the end of the traced process."""
    deadline = time.monotonic() + START_LIMIT
    while not (text := trace.read_text()).endswith("+++\n"):
        assert time.monotonic() < deadline, text[-500:]
        Event().wait(0.05)
    return text.splitlines()


def send_all(address):
    """Physical offset of each message, by its msgId."""
    ids = []
    connections = [Connection(address) for _ in range(3)]
    try:
        for number in range(ONE_BY_ONE):
            answer = connections[0].ask(message("single", number))
            assert answer.code == ResponseCode.SUCCESS, answer
            ids.append(answer.ext_fields["msgId"])
        for number in range(TOGETHER):
            connections[number % 3].send(message(f"many{number % 3}", number))
        for connection in connections:
            missing = TOGETHER // 3
            while missing:
                for answer in connection.receive():
                    assert answer.code == ResponseCode.SUCCESS, answer
                    ids.append(answer.ext_fields["msgId"])
                    missing -= 1
    finally:
        for connection in connections:
            connection.close()
    return {each: int(each[-16:], 16) for each in ids}


def check(calls, log_directory, offsets):
    """Find for each answer the write of its record and the flush in between; returns how many there are."""
    paths = {}
    writes = []
    flushes = defaultdict(list)
    answers = {}
    for call in calls:
        if call.name == "openat":
            path = call.data.decode()
            if call.result >= 0:
                paths[call.result] = path
        elif call.name == "linkat":
            # A file that was opened without a name gets one: /proc/self/fd/7, and the name.
            source, target = call.strings
            if call.result == 0:
                paths[int(source.rpartition(b"/")[2])] = target.decode()
        elif call.name == "pwrite64":
            path = paths.get(call.descriptor, "")
            if path.startswith(log_directory):
                position = int(call.arguments.rsplit(",", 1)[1])
                begin = int(os.path.basename(path)) + position
                writes.append((begin, begin + call.result, path, call))
        elif call.name in ("fdatasync", "fsync"):
            if call.result == 0:
                flushes[paths.get(call.descriptor, "")].append(call)
        elif call.name in ("sendto", "sendmsg", "write", "writev"):
            for each in re.findall(rb'"msgId":"([0-9A-F]+)"', call.data):
                answers[each.decode()] = call
    for msg_id, offset in offsets.items():
        answer = answers[msg_id]
        ((path, write),) = [(path, write) for begin, end, path, write in writes if begin <= offset < end]
        assert write.end < answer.begin, f"{msg_id} was answered before it was written"
        between = [flush for flush in flushes[path] if write.end < flush.begin and flush.end < answer.begin]
        assert between, f"{msg_id} was answered before a flush of {path} that began behind its write had ended"
    return len(offsets)
