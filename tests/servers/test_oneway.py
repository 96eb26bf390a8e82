"""One-way sends of several producers while the broker is stopped for longer than a send may wait: none is lost."""

import threading
import time

import pytest

from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import ONEWAY_FLAG, RemotingCommand
from tests.servers.load import Connection, await_dispatched, message
from tests.support.server_processes import QUEUES, TOPIC, ServerProcesses

PRODUCERS = 6
SENDS = 4_000
"""One-way sends of each producer."""
PAUSES = 4
PAUSE_SECONDS = 0.6
APACHE_DEFAULTS = {
    "brokerFastFailureEnable": "true",
    "waitTimeMillsInSendQueue": "200",
    "osPageCacheBusyTimeOutMills": "1000",
}


def oneway_sends(producer: str, first: int, count: int) -> list[RemotingCommand]:
    commands = [message(producer, first + n) for n in range(count)]
    for command in commands:
        command.flag |= ONEWAY_FLAG
    return commands


class Flood:
    """Producers that send without waiting for anything but the socket."""

    def __init__(self, address: str) -> None:
        self.sent = 0
        self._lock = threading.Lock()
        self.threads = [threading.Thread(target=self._run, args=(address, f"p{number}")) for number in range(PRODUCERS)]

    def _run(self, address: str, producer: str) -> None:
        connection = Connection(address)
        for first in range(0, SENDS, 50):
            connection.send(*oneway_sends(producer, first, 50))
            with self._lock:
                self.sent += 50
        # Its answer says that all before it was read.
        connection.ask(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
        connection.close()


def stored(address: str) -> int:
    connection = Connection(address)
    try:
        count = 0
        for queue_id in range(QUEUES):
            fields = {"topic": TOPIC, "queueId": str(queue_id)}
            answer = connection.ask(RemotingCommand(RequestCode.GET_MAX_OFFSET, fields))
            count += int((answer.ext_fields or {})["offset"])
        return count
    finally:
        connection.close()


@pytest.mark.long
@pytest.mark.parametrize("capacity", ["10000", "300"])
def test_oneway_sends_survive_pauses_of_the_broker(capacity, tmp_path):
    servers = ServerProcesses(tmp_path, **APACHE_DEFAULTS, sendThreadPoolQueueCapacity=capacity)
    try:
        servers.start_namesrv()
        broker = servers.start_broker(registered=False)
        Connection(servers.broker_address).ask(message("first", 0))
        flood = Flood(servers.broker_address)
        for thread in flood.threads:
            thread.start()
        for pause in range(PAUSES):
            deadline = time.monotonic() + 60
            while flood.sent < (pause + 1) * PRODUCERS * SENDS // (PAUSES + 2) and time.monotonic() < deadline:
                threading.Event().wait(0.001)
            with broker.paused():
                threading.Event().wait(PAUSE_SECONDS)
        for thread in flood.threads:
            thread.join(120)
            assert not thread.is_alive()
        assert broker.stop() == 0
        broker = servers.start_broker(registered=False)
        await_dispatched(servers.broker_address)
        assert stored(servers.broker_address) == PRODUCERS * SENDS + 1
        assert "one-way requests are lost" not in "".join(process.log.read_text() for process in servers.processes)
    finally:
        servers.kill_all()
