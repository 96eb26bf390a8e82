"""``rocketd produce``: send messages from the arguments or the lines of standard input.

Answers to mqadmin sendMessage.
"""

import os
import sys
from collections.abc import AsyncIterator
from itertools import cycle, islice
from select import select
from threading import Thread
from typing import Any, ClassVar

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import LogLevel
from twisted.python import usage

from rocketd.client.codec import BYTES
from rocketd.client.errors import BrokerError, RocketMQError, UsageError
from rocketd.client.message import Message, SendResult
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.outgoing import encode_body
from rocketd.client.producer.producer import Producer
from rocketd.remoting.codes import ResponseCode
from rocketd.tools.console import CommandError, run, show, show_log
from rocketd.tools.options import ClientOptions, positive

GROUP = "rocketd-produce"

_BUSY_TIMES = 50
_BUSY_SECONDS = 0.2
"""How often, and how long after, a message is sent again to a broker that is busy: for 10 s."""

_CHUNK = 1 << 16
"""Most bytes of standard input that are read at once."""


class ProduceOptions(ClientOptions):
    """Options of ``rocketd produce``."""

    synopsis = "Usage: rocketd produce [options] TOPIC [MESSAGE...]"
    longdesc = (
        "Send each MESSAGE, or each line of standard input, and print where it is. Empty lines are passed over: the "
        "protocol has no messages without a body."
    )

    optParameters: ClassVar[list[list[Any]]] = [
        ["tag", None, None, "Tag of the messages."],
        ["key", None, None, "Keys of the messages, separated by blanks."],
        ["count", None, None, "Number of messages; the given ones are repeated until it is reached.", positive],
    ]

    def __init__(self) -> None:
        super().__init__()
        self.topic = ""
        self.messages: list[bytes] = []

    def parseArgs(self, topic: str | None = None, *messages: str) -> None:
        """Take the topic and the messages."""
        if topic is None:
            raise usage.UsageError("TOPIC is missing")
        self.topic = topic
        self.messages = [os.fsencode(text) for text in messages]

    def postOptions(self) -> None:
        """Refuse what no broker would take, before anything is sent."""
        try:
            for body in self.messages or [b"a line to come"]:
                message = self._message(body)
                message.check()
                encode_body(message, BYTES, ProducerOptions.max_message_size)
        except UsageError as error:
            raise usage.UsageError(str(error)) from None

    def _message(self, body: bytes) -> Message[bytes]:
        return Message(self.topic, body, self["tag"], [key for key in (self["key"] or "").split(" ") if key])

    def run(self) -> int:
        """Send all; return the exit status."""
        show_log(LogLevel.critical)
        return run("rocketd produce", self._produce, (CommandError, RocketMQError))

    async def _produce(self, reactor: Any) -> int:
        client = self.make_client(reactor)
        producer: Producer[bytes] = Producer(client, GROUP)
        client.startService()
        await producer.start()
        try:
            async for body in self._bodies(reactor):
                result = await self._send(producer, self._message(body), reactor)
                queue = result.queue
                show(f"{result.msg_id} {queue.broker_name} queue {queue.queue_id} offset {result.queue_offset}")
        finally:
            await producer.stop()
            await client.stopService()
        return 0

    async def _send(self, producer: Producer[bytes], message: Message[bytes], reactor: Any) -> SendResult:
        """Send; what a busy broker refuses, it has not stored, and may take a moment later."""
        for _ in range(_BUSY_TIMES):
            try:
                return await producer.send(message)
            except BrokerError as error:
                if error.code != ResponseCode.SYSTEM_BUSY:
                    raise
            await deferLater(reactor, _BUSY_SECONDS, lambda: None)
        return await producer.send(message)

    async def _bodies(self, reactor: Any) -> AsyncIterator[bytes]:
        count = self["count"]
        if self.messages:
            for body in islice(cycle(self.messages), len(self.messages) if count is None else count):
                yield body
            return
        if sys.stdin is None:
            raise CommandError("standard input is closed: give the messages as arguments, or as its lines")
        lines = LineReader(reactor, sys.stdin.fileno())
        while count is None or count > 0:
            line = await lines.next_line()
            if line is None:
                return
            if line:
                yield line
                count = count and count - 1


class LineReader:
    """Reads lines of a file descriptor in threads: a file, a pipe and a terminal are all the same. Reactor thread.

    It reads past Python's buffered files: what waits in one of these holds its lock, without which the interpreter cannot
    end.
    """

    def __init__(self, reactor: Any, descriptor: int) -> None:
        self._reactor = reactor
        self._descriptor = descriptor
        self._buffer = bytearray()
        self._searched = 0
        self._ended = False

    async def next_line(self) -> bytes | None:
        """Return the next line without its end, or None after the last. Raises CommandError when nothing can be read."""
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._searched = 0
                return line.rstrip(b"\r")
            if self._ended:
                rest = bytes(self._buffer)
                self._buffer.clear()
                self._searched = 0
                return rest.rstrip(b"\r") if rest else None
            self._searched = len(self._buffer)
            try:
                chunk = await self._next_chunk()
            except OSError as error:
                raise CommandError(f"standard input: {error.strerror}") from None
            self._buffer += chunk
            self._ended = not chunk

    def _next_chunk(self) -> Deferred[bytes]:
        chunk: Deferred[bytes] = Deferred()
        # A daemon thread: waiting for a terminal's next line does not keep the process from ending.
        Thread(target=self._read_chunk, args=(chunk,), daemon=True).start()
        return chunk

    def _read_chunk(self, chunk: Deferred[bytes]) -> None:
        """Thread of its own."""
        try:
            data = self._wait_and_read()
        except OSError as error:
            self._reactor.callFromThread(chunk.errback, error)
        else:
            self._reactor.callFromThread(chunk.callback, data)

    def _wait_and_read(self) -> bytes:
        while True:
            try:
                return os.read(self._descriptor, _CHUNK)
            except BlockingIOError:  # another process has set its file to non-blocking
                select([self._descriptor], [], [])
