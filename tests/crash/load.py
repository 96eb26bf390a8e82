"""Producers that record the place of each message as told by the broker."""

import socket
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from rocketd.common.names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from rocketd.remoting.wire.codes import ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from tests.crash.messages import LEVELS, PLAIN_TOPIC, QUEUES, MessageId, Place, batch, end, half, single

ANSWER_LIMIT = 60  # seconds
WINDOW = 24
_LARGEST_BATCH = 8


class Connection:
    """One blocking connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_LIMIT)
        self._decoder = FrameDecoder()

    def send(self, *commands: RemotingCommand) -> None:
        self._socket.sendall(b"".join([command.encode() for command in commands]))

    def receive(self) -> list[RemotingCommand]:
        """Read at least one answer; an empty list when the connection is gone."""
        while data := self._socket.recv(1 << 18):
            if frames := self._decoder.feed(data):
                return [RemotingCommand.decode(frame) for frame in frames]
        return []

    def ask(self, command: RemotingCommand) -> RemotingCommand:
        self.send(command)
        answers = self.receive()
        if not answers:
            raise ConnectionError("the broker closed the connection")
        (answer,) = answers
        return answer

    def close(self) -> None:
        self._socket.close()


class Request(NamedTuple):
    """A request, its messages, and the topic that they go to in the log; none, if it ends the transaction of its message."""

    command: RemotingCommand
    messages: list[MessageId]
    topic: str | None


@dataclass
class Producer:
    """One producer of one round: its sent and its acknowledged messages. It leaves some transactions open."""

    name: str
    random: Random
    sent: int = 0
    acknowledged: dict[MessageId, Place] = field(default_factory=dict)
    ended: set[MessageId] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)
    _to_end: deque[MessageId] = field(default_factory=deque)

    def next_request(self) -> Request:
        """The next thing to ask of the broker."""
        if self._to_end:
            message = self._to_end.popleft()
            return Request(end(message, self.acknowledged[message]), [message], None)
        random = self.random
        kind = random.random()
        queue_id = random.randrange(QUEUES)
        count = random.randint(1, _LARGEST_BATCH) if kind < 0.15 else 1
        messages = [(self.name, self.sent + number) for number in range(count)]
        self.sent += count
        if kind < 0.15:
            return Request(batch(messages, queue_id), messages, PLAIN_TOPIC)
        if kind < 0.25:
            return Request(half(messages[0], queue_id), messages, f"{TRANS_HALF_TOPIC} 0")
        level = random.randint(1, LEVELS) if kind > 0.9 else 0
        topic = f"{SCHEDULE_TOPIC} {level - 1}" if level else PLAIN_TOPIC
        return Request(single(messages[0], queue_id, level), messages, topic)

    def take(self, answer: RemotingCommand, request: Request) -> None:
        """Note the answer to a request."""
        if answer.code != ResponseCode.SUCCESS:
            self.refused.append(f"{answer.code} {answer.remark}")
            return
        if request.topic is None:
            self.ended.update(request.messages)
            return
        fields = answer.ext_fields or {}
        topic, _, queue_of_system_topic = request.topic.partition(" ")
        queue_id = int(queue_of_system_topic or fields["queueId"])
        first = int(fields["queueOffset"])
        for number, (message, place) in enumerate(zip(request.messages, fields["msgId"].split(","), strict=True)):
            self.acknowledged[message] = Place(topic, queue_id, first + number, int(place[-16:], 16))
            if topic == TRANS_HALF_TOPIC and self.random.random() < 0.8:
                self._to_end.append(message)


class Load:
    """Producers at work, each with a connection and a window of requests under way, until told to stop."""

    def __init__(self, port: int, producers: list[Producer]) -> None:
        self._port = port
        self._stopping = threading.Event()
        self._counted = threading.Condition()
        self._count = 0
        self._threads = [threading.Thread(target=self._run, args=(producer,)) for producer in producers]
        for thread in self._threads:
            thread.start()

    def wait_for(self, count: int, limit: float) -> None:
        """Return once this number of requests was answered, or after ``limit`` seconds."""
        with self._counted:
            self._counted.wait_for(lambda: self._count >= count, limit)

    def join(self) -> None:
        """Send no more, and return when all is answered or the connections are gone."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self, producer: Producer) -> None:
        with suppress(OSError):
            connection = Connection(self._port)
            try:
                self._work(producer, connection)
            finally:
                connection.close()

    def _work(self, producer: Producer, connection: Connection) -> None:
        under_way: dict[int, Request] = {}
        while True:
            commands = []
            while not self._stopping.is_set() and len(under_way) < WINDOW:
                request = producer.next_request()
                under_way[request.command.opaque] = request
                commands.append(request.command)
            if commands:
                connection.send(*commands)
            if not under_way:
                return
            answers = connection.receive()
            if not answers:
                return
            for answer in answers:
                producer.take(answer, under_way.pop(answer.opaque))
            with self._counted:
                self._count += len(answers)
                self._counted.notify_all()
