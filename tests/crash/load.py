"""Producers that note where the broker said each message is."""

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from rocketd.common.names import SCHEDULE_TOPIC
from rocketd.remoting.codes import ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.frame import FrameDecoder
from tests.crash.messages import LEVELS, PLAIN_TOPIC, QUEUES, MessageId, Place, batch, single

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


@dataclass
class Producer:
    """One producer of one round: what it sent, and what of that was acknowledged."""

    name: str
    random: Random
    sent: int = 0
    acknowledged: dict[MessageId, Place] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def next_request(self) -> tuple[RemotingCommand, list[MessageId], str]:
        """The next request, its messages, and the topic they go to in the log."""
        random = self.random
        kind = random.random()
        queue_id = random.randrange(QUEUES)
        count = random.randint(1, _LARGEST_BATCH) if kind < 0.15 else 1
        messages = [(self.name, self.sent + number) for number in range(count)]
        self.sent += count
        if kind < 0.15:
            return batch(messages, queue_id), messages, PLAIN_TOPIC
        level = random.randint(1, LEVELS) if kind > 0.9 else 0
        command = single(messages[0], queue_id, level)
        return command, messages, f"{SCHEDULE_TOPIC} {level - 1}" if level else PLAIN_TOPIC

    def take(self, answer: RemotingCommand, messages: list[MessageId], topic: str) -> None:
        """Note the answer to a request."""
        if answer.code != ResponseCode.SUCCESS:
            self.refused.append(f"{answer.code} {answer.remark}")
            return
        fields = answer.ext_fields or {}
        topic, _, level_queue = topic.partition(" ")
        queue_id = int(level_queue or fields["queueId"])
        first = int(fields["queueOffset"])
        for number, (message, place) in enumerate(zip(messages, fields["msgId"].split(","), strict=True)):
            self.acknowledged[message] = Place(topic, queue_id, first + number, int(place[-16:], 16))


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
        """Return when that many requests were answered, or after ``limit`` seconds."""
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
        under_way: dict[int, tuple[list[MessageId], str]] = {}
        while True:
            commands = []
            while not self._stopping.is_set() and len(under_way) < WINDOW:
                command, messages, topic = producer.next_request()
                under_way[command.opaque] = messages, topic
                commands.append(command)
            if commands:
                connection.send(*commands)
            if not under_way:
                return
            answers = connection.receive()
            if not answers:
                return
            for answer in answers:
                producer.take(answer, *under_way.pop(answer.opaque))
            with self._counted:
                self._count += len(answers)
                self._counted.notify_all()
