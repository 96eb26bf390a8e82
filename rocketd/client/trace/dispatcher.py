"""Collects trace contexts and sends them, many per message, to the trace topic.

Counterpart: `AsyncTraceDispatcher` of client 4.9.7 (Apache). Appending never waits and never raises. Traces that cannot be
sent are dropped and counted.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from rocketd.client.trace.records import (
    DEFAULT_REGION,
    AccessChannel,
    TraceContext,
    encode_context,
)
from rocketd.common.names import SYSTEM_TOPIC_PREFIX, TRACE_TOPIC

QUEUE_SIZE: Final = 2048
"""Records waiting or under way, at most."""
BATCH_SIZE: Final = 100
"""Contexts per message, at most."""
MAX_MESSAGE_SIZE: Final = 128_000
"""Bytes of a trace message's body, at most."""
MAX_KEYS_SIZE: Final = 30_000
"""Bytes of a trace message's keys, at most: all properties together must stay below 32 KiB."""
MAX_WAIT: Final = 0.5
"""Seconds from the first context of a message until it is sent, full or not."""
FLUSH_TIMEOUT: Final = 0.5
"""Seconds for a stop to wait for sends under way."""
SEND_TIMEOUT: Final = 5.0
"""Seconds within which the given ``send`` should end, as in Apache's client."""

CLOUD_TOPIC_PREFIX: Final = SYSTEM_TOPIC_PREFIX + "TRACE_DATA_"
"""Prefix before the region in the trace topic of AccessChannel.CLOUD."""

SendTrace = Callable[[str, bytes, tuple[str, ...]], Awaitable[object]]
"""Sends one message: topic, body, keys. Returns a Deferred or coroutine for the end of the send, successful or not."""


def trace_producer_group(group: str, kind: str, number: int) -> str:
    """Return the producer group for a dispatcher's messages.

    ``group`` is the group of the traced producer or consumer, ``kind`` PRODUCE or CONSUME. ``number`` counts the
    dispatchers of the process from 1.
    """
    return f"_INNER_TRACE_PRODUCER-{group}-{kind}-{number}"


class _Piece(msgspec.Struct):
    """An encoded context, or one message of it. ``keys_size`` is in bytes, with a separator after each key."""

    data: bytes
    keys: tuple[str, ...]
    keys_size: int


class _Batch(msgspec.Struct):
    """The message being filled for a topic."""

    deadline: IDelayedCall
    records: list[bytes] = []
    size: int = 0
    keys: dict[str, None] = {}
    keys_size: int = 0

    def add(self, piece: _Piece) -> None:
        self.records.append(piece.data)
        self.size += len(piece.data)
        self.keys.update(dict.fromkeys(piece.keys))
        self.keys_size += piece.keys_size


class AsyncTraceDispatcher:
    """Sends traces by ``send``. Belongs to the reactor thread.

    ``send`` should use a separate, untraced producer with the group ``trace_producer_group``, and end within SEND_TIMEOUT.
    ``topic`` is the trace topic (None or empty: RMQ_SYS_TRACE_TOPIC). With AccessChannel.CLOUD there is a topic per region
    instead. A message is sent when it has ``batch_size`` contexts, when the next one would make it longer than
    ``max_message_size`` bytes, or ``max_wait`` seconds after its first. A context too long for one message is sent in parts,
    one for each traced message. A part still too long goes alone.

    About ``queue_size`` contexts wait or are under way, at most; further ones are dropped. ``dropped`` counts them,
    those after the stop, and those that could not be encoded. ``failed`` counts those whose message could not be sent.
    Each kind of loss is logged once when it begins, and again only when it begins afresh. A stop logs the sums.
    """

    _log = Logger()

    def __init__(
        self,
        send: SendTrace,
        clock: IReactorTime,
        *,
        topic: str | None = None,
        access_channel: AccessChannel = AccessChannel.LOCAL,
        queue_size: int = QUEUE_SIZE,
        batch_size: int = BATCH_SIZE,
        max_message_size: int = MAX_MESSAGE_SIZE,
        max_wait: float = MAX_WAIT,
    ) -> None:
        self.topic = topic or TRACE_TOPIC
        self.dropped = 0
        self.failed = 0
        self._send = send
        self._clock = clock
        self._access_channel = access_channel
        self._queue_size = queue_size
        self._batch_size = batch_size
        self._max_message_size = max_message_size
        self._max_wait = max_wait
        self._batches: dict[str, _Batch] = {}
        self._under_way: set[Deferred[None]] = set()
        self._pending = 0
        self._idle_waiters: list[Deferred[None]] = []
        self._stopped = False
        self._full = False
        self._failing = False

    def append(self, context: TraceContext | None) -> bool:
        """Accept a context to be sent soon. Return whether it was accepted.

        None and contexts of messages of a trace topic are ignored, and count as accepted.
        """
        if context is None or any(self._is_trace_topic(bean.topic) for bean in context.beans):
            return True
        if self._stopped:
            self.dropped += 1
            return False
        if self._pending >= self._queue_size:
            self._drop_for_lack_of_room()
            return False
        try:
            pieces = self._written(context)
        except Exception as error:  # any error: the traced send or listener must not fail because of it
            self.dropped += 1
            self._log.warn("a trace cannot be written and is dropped: {error}", error=error)
            return False
        topic = self._trace_topic(context.region)
        for piece in pieces:
            self._add(topic, piece)
        return True

    def flush(self) -> None:
        """Send the waiting contexts at once."""
        for topic in list(self._batches):
            self._close(topic)

    async def stop(self, timeout: float = FLUSH_TIMEOUT) -> None:
        """Send the waiting contexts, accept no more, and return when all are sent, or after ``timeout`` seconds.

        Sends still under way then are cancelled and count as failed.
        """
        first = not self._stopped
        self._stopped = True
        self.flush()
        if self._under_way:
            idle: Deferred[None] = Deferred()
            self._idle_waiters.append(idle)
            limit = self._clock.callLater(timeout, self._cancel_all)
            try:
                await idle
            finally:
                if limit.active():
                    limit.cancel()
        if first and (self.dropped or self.failed):
            self._log.warn(
                "traces that were not sent: {dropped} dropped, {failed} by sends that failed",
                dropped=self.dropped,
                failed=self.failed,
            )

    def _is_trace_topic(self, topic: str) -> bool:
        return topic == self.topic or topic.startswith(CLOUD_TOPIC_PREFIX)

    def _trace_topic(self, region: str | None) -> str:
        if self._access_channel is AccessChannel.CLOUD:
            return CLOUD_TOPIC_PREFIX + (region or DEFAULT_REGION)
        return self.topic

    def _drop_for_lack_of_room(self) -> None:
        self.dropped += 1
        if not self._full:
            self._full = True
            self._log.warn(
                "{pending} traces wait to be sent to {topic}: further ones are dropped ({dropped} so far)",
                pending=self._pending,
                topic=self.topic,
                dropped=self.dropped,
            )

    def _written(self, context: TraceContext) -> list[_Piece]:
        whole = _write(context)
        if len(context.beans) == 1 or self._fits(len(whole.data), whole.keys_size):
            return [whole]
        return [_write(replace(context, beans=(bean,))) for bean in context.beans]

    def _fits(self, size: int, keys_size: int) -> bool:
        return size <= self._max_message_size and keys_size <= MAX_KEYS_SIZE

    def _add(self, topic: str, piece: _Piece) -> None:
        batch = self._batches.get(topic)
        if batch is not None and not self._fits(batch.size + len(piece.data), batch.keys_size + piece.keys_size):
            self._close(topic)
            batch = None
        if batch is None:
            batch = self._batches[topic] = _Batch(self._clock.callLater(self._max_wait, self._close, topic))
        batch.add(piece)
        self._pending += 1
        if len(batch.records) >= self._batch_size:
            self._close(topic)

    def _close(self, topic: str) -> None:
        """Send the message being filled for this topic."""
        batch = self._batches.pop(topic)
        if batch.deadline.active():
            batch.deadline.cancel()
        sending = Deferred.fromCoroutine(self._deliver(topic, batch))
        self._under_way.add(sending)
        sending.addBoth(self._delivered, sending)

    async def _deliver(self, topic: str, batch: _Batch) -> None:
        try:
            await self._send(topic, b"".join(batch.records), tuple(batch.keys))
        except Exception as error:  # any error: an unsent trace must not disturb the traced message
            self.failed += len(batch.records)
            if not self._failing:
                self._failing = True
                self._log.warn(
                    "{count} traces could not be sent to {topic}: {error}",
                    count=len(batch.records),
                    topic=topic,
                    error=error,
                )
        else:
            self._failing = False
        finally:
            self._pending -= len(batch.records)
            if self._pending <= self._queue_size // 2:
                self._full = False

    def _delivered(self, _result: object, sending: Deferred[None]) -> None:
        self._under_way.discard(sending)
        if not self._under_way:
            self._release()

    def _cancel_all(self) -> None:
        for sending in list(self._under_way):
            sending.cancel()
        # A send that ignores its cancellation is not waited for.
        self._release()

    def _release(self) -> None:
        waiters, self._idle_waiters = self._idle_waiters, []
        for waiter in waiters:
            waiter.callback(None)


def _write(context: TraceContext) -> _Piece:
    bean = encode_context(context)
    keys_size = sum(len(key.encode("utf-8", "replace")) + 1 for key in bean.trans_key)
    return _Piece(bean.trans_data.encode("utf-8", "replace"), bean.trans_key, keys_size)
