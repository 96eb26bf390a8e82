"""Servers and a Python client with a wall clock set back, or forward, by 300 s: only stored timestamps change."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rocketd.remoting.bodies.tables import ConsumerOffsetSerializeWrapper
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from tests.servers.load import Connection, pull_all
from tests.support.lacking import end_test_lacking
from tests.support.server_processes import QUEUES, SOURCES, TOPIC, ServerProcesses

LIMIT = 100.0
"""Seconds, far below a step, and below the 120 s after which silent peers are dropped."""
LEVEL, DELAY_SECONDS = 2, 5.0
TIMER = f"\x02TIMER_DELAY_SEC\x01{DELAY_SECONDS:.0f}"
HOLD_SECONDS = 3.0
IDLE_CONNECTIONS = 20
LIBRARY = "libfaketimeMT.so.1"

PROGRAM = """
import sys, time
from rocketd.client.sync import LitePullConsumer
with LitePullConsumer("stepped-client", sys.argv[1], topics="FromClient", begin="earliest") as consumer:
    while True:
        began = time.monotonic()
        messages = consumer.poll(timeout=1)
        for message in messages:
            print(message.body.decode(), flush=True)
        if not messages:
            print("nothing for", time.monotonic() - began, flush=True)
"""


def library_path() -> str:
    """Path of libfaketime; the test that needs it is skipped without one, and fails in a complete check."""
    found = sorted(Path("/usr/lib").glob(f"*/faketime/{LIBRARY}"))
    if not found:
        end_test_lacking("libfaketime is missing: apt-get install faketime")
    return str(found[0])


class FakeClock:
    """The wall clock of processes that have ``environment``. Their monotonic clock is the machine's."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "clock"
        self.environment = {
            "LD_PRELOAD": library_path(),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
        self.step_to(0)

    def step_to(self, seconds: int) -> None:
        """Let the wall clock differ by so much from the machine's, at once."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n")
        os.replace(fresh, self._file)


class SteppedProcesses(ServerProcesses):
    """Servers that live by a FakeClock."""

    def __init__(self, directory: Path, reactor: str, **properties: str) -> None:
        super().__init__(directory, **properties)
        self.clock = FakeClock(directory)
        self._reactor = reactor

    def _command(self, name: str, config: Path) -> list[str]:
        python, twistd, *arguments = super()._command(name, config)
        return [python, twistd, "-r", self._reactor, *arguments]

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), **self.clock.environment}


def eventually(what, condition, limit=LIMIT):
    """Return the first true value of a condition."""
    deadline = time.monotonic() + limit
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {limit} s: {what}"
        threading.Event().wait(0.05)
    return value


def delayed(name, level, topic=TOPIC, wanted=""):
    """A message that a delay level or the properties in ``wanted`` delay."""
    fields = {
        "a": "P", "b": topic, "c": "TBW102", "d": str(QUEUES), "e": "0", "f": "0", "g": "1700000000000", "h": "0",
        "i": f"UNIQ_KEY\x01{name}" + (f"\x02DELAY\x01{level}" if level else "") + wanted,
        "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, name.encode())


def held_pull():
    fields = {
        "consumerGroup": "Held", "topic": TOPIC, "queueId": "3", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "6",
        "commitOffset": "0", "suspendTimeoutMillis": str(int(HOLD_SECONDS * 1000)), "subscription": "*", "subVersion": "0",
    }  # fmt: skip
    return RemotingCommand(RequestCode.PULL_MESSAGE, fields)


def heartbeat():
    subscription = {
        "topic": TOPIC,
        "subString": "*",
        "tagsSet": [],
        "codeSet": [],
        "subVersion": 1,
        "expressionType": "TAG",
    }
    consumer = {
        "groupName": "Stays", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [subscription], "unitMode": False,
    }  # fmt: skip
    body = {"clientID": "c1", "consumerDataSet": [consumer], "producerDataSet": [{"groupName": "StaysToo"}]}
    return RemotingCommand(RequestCode.HEART_BEAT, {}, json.dumps(body).encode())


class Answerer:
    """One request on a new connection, asked in a thread; ``seconds`` is its duration."""

    def __init__(self, address, command):
        self.answer = None
        self.seconds = 0.0
        self._connection = Connection(address)
        self._connection.socket.settimeout(LIMIT)
        self._command = command
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        began = time.monotonic()
        self.answer = self._connection.ask(self._command)
        self.seconds = time.monotonic() - began
        self._connection.close()

    def join(self):
        self._thread.join(LIMIT)
        assert self.answer is not None, f"not answered within {LIMIT} s"
        return self.answer


class ClientProcess:
    """A program that consumes with the Python client and prints the messages, line by line."""

    def __init__(self, servers):
        self.lines = []
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, servers.namesrv_address],
            env={**os.environ, **servers.clock.environment, "PYTHONPATH": SOURCES},
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        self.lines.extend(line.strip() for line in self._process.stdout)

    def timeouts(self):
        """How long the polls took that found nothing."""
        return [float(line.split()[-1]) for line in list(self.lines) if line.startswith("nothing for")]

    def kill(self):
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


def names_in_queue_0(address):
    return {message.body.decode() for message in pull_all(address, 0)}


def committed(servers, key):
    path = servers.store / "config" / "consumerOffset.json"
    if not path.exists():
        return {}
    return ConsumerOffsetSerializeWrapper.decode(path.read_bytes()).offset_table.get(key, {})


def check_delivery(address, name, sent_at):
    eventually(f"{name} is delivered", lambda: name in names_in_queue_0(address), LIMIT)
    took = time.monotonic() - sent_at
    assert took > DELAY_SECONDS - 0.5, f"{name} was delivered after {took:.1f} s"


@pytest.mark.long
@pytest.mark.parametrize(("step", "reactor"), [(-300, "default"), (300, "default"), (-300, "asyncio")])
def test_step_of_the_wall_clock_changes_only_stored_timestamps(step, reactor, tmp_path):
    servers = SteppedProcesses(tmp_path, reactor, brokerFastFailureEnable="true", registerNameServerPeriod="10000")
    address = servers.broker_address
    client = None
    try:
        namesrv = servers.start_namesrv()
        broker = servers.start_broker()
        main = Connection(address)
        assert main.ask(delayed("first", 0)).code == ResponseCode.SUCCESS
        assert main.ask(delayed("c0", 0, "FromClient")).code == ResponseCode.SUCCESS
        member = Connection(address)
        member.send(heartbeat())
        eventually("the heartbeat is answered", lambda: any(answer.is_response for answer in member.receive()))
        client = ClientProcess(servers)
        eventually("the client consumes", lambda: "c0" in client.lines)
        idle = [Connection(address) for _ in range(IDLE_CONNECTIONS)]
        for connection in idle:
            assert connection.ask(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO)).code == ResponseCode.SUCCESS
        before_at = time.monotonic()
        assert main.ask(delayed("before", LEVEL)).code == ResponseCode.SUCCESS
        assert main.ask(delayed("timer before", 0, wanted=TIMER)).code == ResponseCode.SUCCESS
        held_before = Answerer(address, held_pull())

        servers.clock.step_to(step)
        polls_before = len(client.timeouts())

        held_after = Answerer(address, held_pull())
        after_at = time.monotonic()
        assert main.ask(delayed("after", LEVEL)).code == ResponseCode.SUCCESS
        assert main.ask(delayed("timer after", 0, wanted=TIMER)).code == ResponseCode.SUCCESS
        assert main.ask(delayed("long", 18)).code == ResponseCode.SUCCESS
        commit = {"consumerGroup": "Stays", "topic": TOPIC, "queueId": "0", "commitOffset": "1"}
        assert main.ask(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code == ResponseCode.SUCCESS
        assert main.ask(delayed("c1", 0, "FromClient")).code == ResponseCode.SUCCESS
        assert main.ask(delayed("c2", 0, "FromClient")).code == ResponseCode.SUCCESS
        for held in (held_before, held_after):
            assert held.join().code == ResponseCode.PULL_NOT_FOUND
            assert held.seconds > HOLD_SECONDS - 0.5
        check_delivery(address, "before", before_at)
        check_delivery(address, "after", after_at)
        check_delivery(address, "timer before", before_at)
        check_delivery(address, "timer after", after_at)
        eventually("offsets are persisted", lambda: committed(servers, f"{TOPIC}@Stays").get(0) == 1)
        eventually("the client consumes on", lambda: "c2" in client.lines)
        eventually("the client's polls end in time", lambda: len(client.timeouts()) > polls_before + 3)
        assert min(client.timeouts()) > 0.9
        eventually("the client's offsets are persisted", lambda: committed(servers, "FromClient@stepped-client").get(0))

        # A name server that knows nothing yet hears of the broker only by its next registration.
        eventually("the name server knows the broker", servers.is_registered)
        namesrv.kill()
        servers.start_namesrv()
        broker.wait_for("it registers again", servers.is_registered, LIMIT)

        for connection in idle:
            assert connection.ask(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO)).code == ResponseCode.SUCCESS
        group = RemotingCommand(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "Stays"})
        assert main.ask(group).code == ResponseCode.SUCCESS
        group = RemotingCommand(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "StaysToo"})
        assert main.ask(group).code == ResponseCode.SUCCESS
        assert "long" not in names_in_queue_0(address)
        stamps = {message.body.decode(): message.store_timestamp for message in pull_all(address, 0)}
        assert stamps["after"] >= stamps["before"] >= stamps["first"]
        if step > 0:
            assert stamps["after"] - stamps["first"] >= step * 1000, "stored timestamps follow the wall clock"
    finally:
        if client is not None:
            client.kill()
        servers.kill_all()
        shutil.rmtree(servers.store, ignore_errors=True)
