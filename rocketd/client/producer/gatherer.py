"""Gathers single messages of one topic into batches. Reactor thread.

A batch is sent when it is full, or when its first message has waited for the linger time. A batch costs the broker and the
client little more than one message. Each message has its own result. If the batch fails, all its messages get the error.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from rocketd.client.messages.message import Message, SendResult
from rocketd.client.producer.outgoing import BatchPart, OutgoingMessage, batch_of
from rocketd.common.event_loop.reactor import IReactor
from rocketd.common.names import RETRY_PREFIX

MAX_GATHERED_BYTES: Final = 256 << 10
"""Size in bytes from which a batch is sent without waiting for more messages."""

SendBatch = Callable[[OutgoingMessage, float], Awaitable[list[SendResult]]]
"""Sends a batch within a time in ms, and returns a result for each message."""


class _Batch:
    def __init__(self) -> None:
        self.parts: dict[Deferred[SendResult], BatchPart] = {}
        self.size = 0
        self.deadline = float("inf")
        self.timer: IDelayedCall | None = None


class Gatherer:
    """The batches of one producer. ``linger`` is in seconds, ``limit`` is the maximum number of messages of a batch.

    ``pending`` is the number of messages that wait or are being sent.
    """

    def __init__(self, reactor: IReactor, send: SendBatch, linger: float, limit: int) -> None:
        self._reactor = reactor
        self._send = send
        self.pending = 0
        self._linger = linger
        self._limit = limit
        self._batches: dict[tuple[str, bool], _Batch] = {}
        self._sending: set[Deferred[None]] = set()

    def takes(self, message: Message[Any]) -> bool:
        """Return whether a message may be part of a batch: it is neither delayed nor for a retry topic."""
        return (
            not message.delay_level
            and message.deliver_at is None
            and message.deliver_after is None
            and not message.topic.startswith(RETRY_PREFIX)
        )

    def add(self, topic: str, part: BatchPart, timeout_ms: float) -> Deferred[SendResult]:
        """Add a message, and return its result. ``topic`` has the namespace. The timeout includes the linger time."""
        key = topic, part.message.wait_stored
        batch = self._batches.get(key)
        if batch is not None and batch.size + len(part.entry) > MAX_GATHERED_BYTES:
            self._flush(key, batch)
            batch = None
        if batch is None:
            batch = self._batches[key] = _Batch()
            batch.timer = self._reactor.callLater(self._linger, self._flush, key, batch)
        gathered = batch

        def leave(result: Deferred[SendResult]) -> None:
            if gathered.parts.pop(result, None) is not None:  # otherwise it is being sent
                self.pending -= 1

        result: Deferred[SendResult] = Deferred(leave)
        self.pending += 1
        batch.parts[result] = part
        batch.size += len(part.entry)
        batch.deadline = min(batch.deadline, self._reactor.seconds() + timeout_ms / 1000)
        if len(batch.parts) >= self._limit or batch.size >= MAX_GATHERED_BYTES:
            self._flush(key, batch)
        return result

    async def stop(self) -> None:
        """Send all messages that wait, and return when all batches are answered."""
        for key, batch in list(self._batches.items()):
            self._flush(key, batch)
        for sending in list(self._sending):
            await sending

    def _flush(self, key: tuple[str, bool], batch: _Batch) -> None:
        if self._batches.get(key) is batch:
            del self._batches[key]
        if batch.timer is not None and batch.timer.active():
            batch.timer.cancel()
        parts, batch.parts = batch.parts, {}
        if not parts:
            return
        left_ms = max(0.0, batch.deadline - self._reactor.seconds()) * 1000
        outgoing = batch_of(key[0], list(parts.values()))
        sending: Deferred[None] = Deferred.fromCoroutine(self._deliver(outgoing, left_ms, list(parts)))
        if not sending.called:
            self._sending.add(sending)
            sending.addCallback(lambda _: self._sending.discard(sending))

    async def _deliver(self, outgoing: OutgoingMessage, left_ms: float, waiting: list[Deferred[SendResult]]) -> None:
        try:
            results = await self._send(outgoing, left_ms)
        except BaseException:
            self.pending -= len(waiting)
            failure = Failure()
            for one in waiting:
                if not one.called:
                    one.errback(failure)
        else:
            self.pending -= len(waiting)
            for one, result in zip(waiting, results, strict=True):
                if not one.called:
                    one.callback(result)
