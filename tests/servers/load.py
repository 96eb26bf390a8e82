"""A small sender that records acknowledged messages, and a reader that fetches everything back."""

import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from rocketd.remoting.bodies.tables import KVTable
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from rocketd.store.format.record import MessageExt, decode_messages
from tests.support.server_processes import QUEUES, TOPIC

WINDOW = 64
BODY_SIZE = 400
_SUBSCRIPTION_IN_REQUEST = 4


@dataclass
class Sent:
    """Answers to one producer: sequence number to queue and queue offset."""

    producer: str
    acknowledged: dict[int, tuple[int, int]] = field(default_factory=dict)
    next_number: int = 0
    refused: list[str] = field(default_factory=list)


class Connection:
    """One blocking connection."""

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self._decoder = FrameDecoder()

    def send(self, *commands: RemotingCommand) -> None:
        self.socket.sendall(b"".join([command.encode() for command in commands]))

    def receive(self) -> list[RemotingCommand]:
        """Read at least one answer; an empty list when the connection is gone."""
        while data := self.socket.recv(1 << 18):
            if frames := self._decoder.feed(data):
                return [RemotingCommand.decode(frame) for frame in frames]
        return []

    def ask(self, command: RemotingCommand) -> RemotingCommand:
        self.send(command)
        (answer,) = self.receive()
        return answer

    def close(self) -> None:
        self.socket.close()


class Load:
    """Several producers, each with a separate connection and a window of messages under way, until told to stop."""

    def __init__(self, address: str, producers: list[Sent]) -> None:
        self._address = address
        self._producers = producers
        self._stop = threading.Event()
        self._counted = threading.Condition()
        self._count = 0
        self._threads = [threading.Thread(target=self._run, args=(producer,)) for producer in producers]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wait_for(self, count: int, limit: float = 60.0) -> None:
        """Return when that many messages were acknowledged."""
        with self._counted:
            assert self._counted.wait_for(lambda: self._count >= count, limit), f"{self._count} after {limit} s"

    def join(self) -> None:
        """Stop sending and wait for the producers: all sends are answered, or the connection is lost."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _run(self, producer: Sent) -> None:
        with suppress(OSError):
            connection = Connection(self._address)
            try:
                self._send_and_receive(producer, connection)
            finally:
                connection.close()

    def _send_and_receive(self, producer: Sent, connection: Connection) -> None:
        under_way: dict[int, int] = {}
        while True:
            if not self._stop.is_set():
                commands = []
                while len(under_way) < WINDOW:
                    number = producer.next_number
                    producer.next_number += 1
                    command = message(producer.producer, number)
                    under_way[command.opaque] = number
                    commands.append(command)
                if commands:
                    connection.send(*commands)
            if not under_way:
                return
            answers = connection.receive()
            if not answers:
                return
            self._take(producer, under_way, answers)

    def _take(self, producer: Sent, under_way: dict[int, int], answers: list[RemotingCommand]) -> None:
        for answer in answers:
            number = under_way.pop(answer.opaque)
            if answer.code == ResponseCode.SUCCESS:
                fields = answer.ext_fields or {}
                producer.acknowledged[number] = (int(fields["queueId"]), int(fields["queueOffset"]))
            else:
                producer.refused.append(f"{answer.code} {answer.remark}")
        with self._counted:
            self._count += len(answers)
            self._counted.notify_all()


def message(producer: str, number: int) -> RemotingCommand:
    """One send; the queues take turns."""
    fields = {
        "a": producer, "b": TOPIC, "c": "TBW102", "d": str(QUEUES), "e": str(number % QUEUES), "f": "0",
        "g": "1700000000000", "h": "0", "i": f"UNIQ_KEY\x01{producer}-{number}\x02WAIT\x01true", "j": "0", "k": "false",
        "m": "false",
    }  # fmt: skip
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, f"{producer} {number} ".encode().ljust(BODY_SIZE, b"x"))


def is_dispatched(address: str) -> bool:
    """Whether all that is in the broker's log can be pulled: it answers sends before."""
    connection = Connection(address)
    try:
        answer = connection.ask(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
    finally:
        connection.close()
    return KVTable.decode(answer.body or b"").table["dispatchBehindBytes"] == "0"


def await_dispatched(address: str, limit: float = 60.0) -> None:
    """Return once all that is in the broker's log can be pulled."""
    deadline = time.monotonic() + limit
    while not is_dispatched(address):
        assert time.monotonic() < deadline, f"{address} has not dispatched everything after {limit} s"
        threading.Event().wait(0.02)


def pull_all(address: str, queue_id: int) -> Iterator[MessageExt]:
    """Fetch a queue from its beginning to its end; the checksum of each body is compared."""
    connection = Connection(address)
    try:
        offset = 0
        while True:
            fields = {
                "consumerGroup": "ReadAll", "topic": TOPIC, "queueId": str(queue_id), "queueOffset": str(offset),
                "maxMsgNums": "32", "sysFlag": str(_SUBSCRIPTION_IN_REQUEST), "commitOffset": "0",
                "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
            }  # fmt: skip
            answer = connection.ask(RemotingCommand(RequestCode.PULL_MESSAGE, fields))
            if answer.code == ResponseCode.PULL_NOT_FOUND:
                return
            assert answer.code == ResponseCode.SUCCESS, answer
            yield from decode_messages(answer.body or b"")
            offset = int((answer.ext_fields or {})["nextBeginOffset"])
    finally:
        connection.close()


def check_everything_is_there(address: str, producers: list[Sent]) -> int:
    """Check that every acknowledged message is there once, at the place told, in its producer's order; return the count."""
    await_dispatched(address)
    places: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
    count = 0
    for queue_id in range(QUEUES):
        last: dict[str, int] = {}
        for expected_offset, stored in enumerate(pull_all(address, queue_id)):
            assert (stored.queue_id, stored.queue_offset) == (queue_id, expected_offset)
            producer, text, rest = stored.body.decode().split(" ")
            number = int(text)
            assert stored.properties.startswith(f"UNIQ_KEY\x01{producer}-{number}\x02".encode())
            assert set(rest) == {"x"}
            assert number > last.get(producer, -1), (producer, number, last)
            last[producer] = number
            places[producer][number] = (queue_id, expected_offset)
            count += 1
    for sent in producers:
        there = places[sent.producer]
        lost = [number for number, place in sent.acknowledged.items() if there.get(number) != place]
        assert not lost, f"{sent.producer}: of {len(sent.acknowledged)} acknowledged, not there: {lost[:10]}"
    return count
