"""``rocketd produce``: send messages from the arguments or the lines of standard input.

Counterpart: mqadmin sendMessage (Apache).
"""

import os
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from select import select
from threading import Thread
from typing import Any

import click
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from rocketd.client.errors import BrokerError, NoRouteError, RocketMQError, UsageError
from rocketd.client.messages.codec import BYTES
from rocketd.client.messages.message import Message, SendResult
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.outgoing import encode_body
from rocketd.client.producer.producer import ProducerEngine
from rocketd.common.command_line.commands import command
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.option_types import POSITIVE, key_value, seconds, whole_number
from rocketd.common.command_line.output import complain, show
from rocketd.common.event_loop.reactor import IReactor
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.wire.codes import ResponseCode
from rocketd.tools.base.cluster import ClusterAccess, cluster_options, run_client_command

GROUP = "rocketd-produce"

_ARGUMENT_SECONDS = 10.0
"""How long a message of the command line is sent again, if it is certain that no broker has stored it."""
_INPUT_SECONDS = 60.0
"""How long a line of standard input is sent again: long enough for a broker's restart."""
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 2.0
"""Seconds between two tries: the wait doubles up to the second."""

_SHOWN_QUEUES = 16
"""How many queues the error for a missing one names."""

_CHUNK = 1 << 16
"""Largest read of standard input, in bytes."""


@dataclass(frozen=True)
class Production:
    """The messages to send: `messages`, or the lines of standard input if there are none.

    `count` is the number of messages to send: the given ones are repeated until it is reached. `retry_timeout` is in
    seconds; None chooses it by the kind of error. `queue` is the number of a queue, and the name of its broker or None
    for the first broker that has it. `deliver_after` is a delay in seconds.
    """

    topic: str
    messages: Sequence[bytes]
    tags: str | None = None
    keys: str | None = None
    properties: Sequence[tuple[str, str]] = ()
    delay_level: int = 0
    deliver_after: float | None = None
    queue: tuple[str | None, int] | None = None
    count: int | None = None
    retry_timeout: float | None = None

    def check(self) -> None:
        """Raise UsageError of the client for a message refused by every broker, before anything is sent."""
        for body in self.messages or [b"a line to come"]:
            message = self._message(body)
            message.check()
            encode_body(message, BYTES, ProducerOptions.max_message_size)

    def _message(self, body: bytes) -> Message[bytes]:
        return Message(
            self.topic,
            body,
            self.tags,
            [key for key in (self.keys or "").split(" ") if key],
            dict(self.properties),
            delay_level=self.delay_level,
            deliver_after=self.deliver_after,
        )

    async def _chosen_queue(self, producer: ProducerEngine[bytes]) -> MessageQueue | None:
        """Return the queue to send to, None for the queues in turn. Raises CommandError if the topic does not have it."""
        if self.queue is None:
            return None
        broker, queue_id = self.queue
        queues = await producer.instance.routes.publish_queues(self.topic)
        for queue in sorted(queues):
            if queue.queue_id == queue_id and broker in (None, queue.broker_name):
                return queue
        known = ", ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in sorted(queues)[:_SHOWN_QUEUES])
        more = ", ..." if len(queues) > _SHOWN_QUEUES else ""
        wanted = queue_id if broker is None else f"{broker}:{queue_id}"
        raise CommandError(f"topic {self.topic} does not have queue {wanted}; its queues are {known}{more}")

    async def send_all(self, reactor: IReactor, cluster: ClusterAccess) -> int:
        """Send all messages, print the place of each, and return the exit status.

        Raises CommandError, OutputClosedError and RocketMQError.
        """
        async with cluster.client(reactor) as client:
            producer: ProducerEngine[bytes] = ProducerEngine(client, GROUP)
            await producer.start()
            try:
                async for body in self._bodies(reactor):
                    result = await self._send(producer, self._message(body), reactor)
                    queue = result.queue
                    show(f"{result.msg_id} {queue.broker_name} queue {queue.queue_id} offset {result.queue_offset}")
            finally:
                await producer.stop()
        return 0

    async def _send(self, producer: ProducerEngine[bytes], message: Message[bytes], reactor: IReactor) -> SendResult:
        """Send, and send again until the retry time is over.

        A message whose answer got lost may be stored twice, as with every producer that sends again.
        """
        began = reactor.seconds()
        wait, told = _FIRST_WAIT, False
        while True:
            try:
                # A send would wait for servers that are away. Here the user is told at once.
                await producer.find_queues(message.topic, producer.timeout_ms(None))
                return await producer.send(message, queue=await self._chosen_queue(producer))
            except RocketMQError as error:
                limit = self._retry_seconds(error)
                if reactor.seconds() - began + wait > limit:
                    raise
                if not told and not _is_busy(error):
                    told = True
                    complain(f"{error}; sending again for {limit:g} s")
            await deferLater(reactor, wait, lambda: None)
            wait = min(2 * wait, _LONGEST_WAIT)

    def _retry_seconds(self, error: RocketMQError) -> float:
        """Return how long a message is sent again after an error, 0 if another try would fail in the same way."""
        if not error.retriable:
            return 0.0
        if self.retry_timeout is not None:
            return self.retry_timeout
        if not self.messages:
            return _INPUT_SECONDS
        # A name server that answers with a code is none: another try would find the same.
        no_server_yet = isinstance(error, NoRouteError) and error.code is None
        refused = _is_busy(error) or no_server_yet
        # The error is that of the last try. An earlier one may have stored the message.
        return _ARGUMENT_SECONDS if refused and not any(each.may_be_stored for each in error.attempts) else 0.0

    async def _bodies(self, reactor: IReactor) -> AsyncIterator[bytes]:
        count = self.count
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


_QUEUE_ID = whole_number(0, 2**31 - 1)


def _queue(text: str) -> tuple[str | None, int]:
    broker, _, queue_id = text.rpartition(":")
    return broker or None, _QUEUE_ID(queue_id)


def _read_file(path: str) -> bytes:
    """Return the bytes of a file, or of standard input for ``-``. More than the largest body is not read."""
    limit = ProducerOptions.max_message_size
    if path == "-" and sys.stdin is None:
        raise click.UsageError("--file -: standard input is closed")
    try:
        with open(sys.stdin.fileno() if path == "-" else path, "rb", closefd=path != "-") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise click.UsageError(f"--file {path}: {error.strerror}") from None
    if len(data) > limit:
        raise click.UsageError(f"--file {path}: it is longer than {limit} bytes, the largest body")
    if not data:
        raise click.UsageError(f"--file {path}: it is empty, and a message needs a body")
    return data


@command("produce")
@click.argument("topic")
@click.argument("messages", nargs=-1, metavar="[MESSAGE]...")
@click.option("--tags", metavar="TAG", help="Tag of all messages.")
@click.option("--keys", metavar="KEYS", help="Keys of all messages, separated by blanks.")
@click.option(
    "--property",
    "properties",
    type=key_value,
    multiple=True,
    metavar="NAME=VALUE",
    help="Property of all messages. May be repeated.",
)
@click.option(
    "--file", "path", metavar="PATH", help="File whose bytes are the body of one message. - means standard input."
)
@click.option(
    "--delay-level",
    type=whole_number(0, 2**31 - 1),
    default="0",
    metavar="LEVEL",
    help="Delay level of all messages, such as 3 for 10 s. The broker's messageDelayLevel lists them.",
)
@click.option(
    "--deliver-after",
    type=seconds,
    metavar="SECONDS",
    help="Delay of all messages in seconds. Needs a broker of rocketd or RocketMQ 5.",
)
@click.option(
    "--queue",
    type=_queue,
    metavar="[BROKER:]ID",
    help="Queue of all messages. Default: the queues of the topic in turn.",
)
@click.option(
    "--count",
    type=POSITIVE,
    metavar="N",
    help="Number of messages to send. The given messages are repeated up to this number.",
)
@click.option(
    "--retry-timeout",
    type=seconds,
    metavar="SECONDS",
    help="Time in seconds for retrying a message if no broker accepts it. Default: 60 for lines of standard input. Other "
    "messages are retried only if no server runs yet or the broker is busy, for 10 s.",
)
@cluster_options
def produce_command(cluster: ClusterAccess, messages: tuple[str, ...], path: str | None, **given: Any) -> int:
    """Send each MESSAGE, or each line of standard input, to TOPIC, and print its place on the broker.

    Empty lines are skipped, because a message without a body is not possible. With --file, the whole file is one message.
    """
    bodies = [os.fsencode(text) for text in messages]
    if path is not None:
        if bodies:
            raise click.UsageError("--file and MESSAGE: give only one of them")
        bodies.append(_read_file(path))
    production = Production(messages=bodies, **given)
    try:
        production.check()
    except UsageError as error:
        raise click.UsageError(str(error)) from None
    return run_client_command(lambda reactor: production.send_all(reactor, cluster))


def _is_busy(error: RocketMQError) -> bool:
    """Return whether a broker refused the message for now. It has not stored it then."""
    return isinstance(error, BrokerError) and error.code == ResponseCode.SYSTEM_BUSY


class LineReader:
    """Reads lines of a file descriptor on threads: a file, a pipe or a terminal. Reactor thread.

    It bypasses Python's buffered files: a thread that waits in one holds its lock, and the interpreter cannot end
    without the lock.
    """

    def __init__(self, reactor: IReactor, descriptor: int) -> None:
        self._reactor = reactor
        self._descriptor = descriptor
        self._buffer = bytearray()
        self._searched = 0
        self._ended = False

    async def next_line(self) -> bytes | None:
        """Return the next line without its end, or None after the last. Raises CommandError if reading fails."""
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
        """Read in a separate thread."""
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
