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
from rocketd.tools.console import CommandError, complain, run, show, show_log
from rocketd.tools.options import ClientOptions, positive, seconds

GROUP = "rocketd-produce"

_BUSY_SECONDS = 10.0
"""How long a message is sent again to a broker that is busy."""
_INPUT_SECONDS = 60.0
"""How long a line of standard input is sent again: long enough for a broker's restart."""
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 2.0
"""Seconds between two tries: the wait doubles up to the second."""

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
        [
            "retry-timeout",
            None,
            None,
            "Seconds during which a message is sent again while no broker takes it; 60 for lines of standard input, "
            "else only a busy broker is asked again, for 10.",
            seconds,
        ],
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
        """Send, and send again until the retry time is over.

        A message whose answer got lost may be stored twice, as with every producer that sends again.
        """
        began = reactor.seconds()
        wait, told = _FIRST_WAIT, False
        while True:
            try:
                return await producer.send(message)
            except RocketMQError as error:
                limit = self._retry_seconds(error)
                if reactor.seconds() - began + wait > limit:
                    raise
                if not told and not _is_busy(error):
                    told = True
                    complain("rocketd produce", f"{error}; sending again for {limit:g} s")
            await deferLater(reactor, wait, lambda: None)
            wait = min(2 * wait, _LONGEST_WAIT)

    def _retry_seconds(self, error: RocketMQError) -> float:
        """How long a message is sent again after such an error: 0 if another try would end like this one."""
        if not error.retriable:
            return 0.0
        given: float | None = self["retry-timeout"]
        if given is not None:
            return given
        if not self.messages:
            return _INPUT_SECONDS
        return _BUSY_SECONDS if _is_busy(error) else 0.0

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


def _is_busy(error: RocketMQError) -> bool:
    """Whether a broker refused the message for now, which means that it has not stored it."""
    return isinstance(error, BrokerError) and error.code == ResponseCode.SYSTEM_BUSY


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
