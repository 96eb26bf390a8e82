"""The common part of the three faces of producers and push consumers, and messages to iterate over."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Generic

from twisted.internet.defer import CancelledError, Deferred

from rocketd.client.consumer import push_consumer
from rocketd.client.consumer.options.kind_options import ConsumerOptions
from rocketd.client.errors import StopConsuming, UsageError, check_consumer_group, check_group
from rocketd.client.faces.lifecycle import Face, RunCoroutine
from rocketd.client.faces.subscribing import SubscribingFace, Topics
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.codec import BYTES, Codec
from rocketd.client.messages.message import ReceivedMessage, T
from rocketd.client.producer import producer
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.transaction import TransactionListener
from rocketd.client.runtime.listeners import check_function
from rocketd.client.settings.config import ClientConfig, Duration, milliseconds
from rocketd.client.stats import ConsumerStats, ProducerStats

Cluster = str | Sequence[str] | ClientConfig | None
"""Addresses of name servers, or a whole ClientConfig. None: NAMESRV_ADDR in the environment."""


@dataclass(eq=False, repr=False)
class ProducerFace(ProducerOptions, Face[producer.ProducerEngine[T]], Generic[T]):
    """A producer of one group. ``cluster`` is the name servers, or a ClientConfig.

    ``codec`` encodes bodies. Sends in transactions need ``transactions``. All other options are those of
    ProducerOptions. Raises IllegalGroupError and IllegalOptionError.
    """

    _kind = "producer"

    group: str
    cluster: Cluster = None
    _: KW_ONLY
    codec: Codec[T] = BYTES  # type: ignore[assignment]
    transactions: TransactionListener[T] | None = None

    # A client equals itself only, and not another one with the same options.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __post_init__(self) -> None:
        check_group(self.group)
        super().__post_init__()
        self._make_life(f"producer of group {self.group}", self.cluster)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} of group {self.group}>"

    def stats(self) -> ProducerStats:
        """Return the numbers of this producer since it was opened. Any thread may call it."""
        return self._engine.stats()

    def _make_engine(self, instance: ClientInstance, run_coroutine: RunCoroutine) -> producer.ProducerEngine[T]:
        """Create the engine. Reactor thread."""
        return producer.ProducerEngine(
            instance,
            self.group,
            options=self,
            codec=self.codec,
            transactions=self.transactions,
            run_coroutine=run_coroutine,
        )


@dataclass(eq=False, repr=False)
class ConsumerFace(ConsumerOptions, SubscribingFace[push_consumer.PushConsumerEngine[T]], Generic[T]):
    """A consumer of one group, with a handler or to iterate over. ``cluster`` is the name servers, or a ClientConfig.

    ``topics`` are the topics to consume; ``subscribe`` adds more. ``handler`` gets each message, or a list of messages
    if ``batch`` is above 1. It may be a coroutine function, or return an awaitable. After an exception of the handler
    the message comes again, as with ``Retry`` and ``Reject``. Without a handler, iterate over the consumer: a message
    is consumed when the next one is requested. ``codec`` decodes bodies. All other options are those of
    ConsumerOptions.

    Raises:

    - IllegalGroupError: the group name is invalid.
    - IllegalTopicError: a topic name is invalid.
    - IllegalOptionError: another option is invalid.
    """

    group: str
    cluster: Cluster = None
    _: KW_ONLY
    topics: Topics = ()
    handler: Callable[..., Any] | None = None
    codec: Codec[T] = BYTES  # type: ignore[assignment]

    # A client equals itself only, and not another one with the same options.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __post_init__(self) -> None:
        check_consumer_group(self.group)
        super().__post_init__()
        self._make_life(f"consumer of group {self.group}", self.cluster)
        self._want_all(self.topics)
        if self.handler is not None:
            check_function("handler", self.handler)
        self._arrivals: Arrivals[T] | None = None
        self._finished = False

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} of group {self.group}>"

    def stats(self) -> ConsumerStats:
        """Return the numbers of this consumer since it was opened. Any thread may call it."""
        return self._engine.stats()

    # ------------------------------------------------------------ while it runs, in the reactor thread

    def suspend(self) -> None:
        """Stop pulling until ``resume``. Messages already held are handled."""
        self._engine.suspend()

    def resume(self) -> None:
        """Pull again."""
        self._engine.resume()

    def set_concurrency(self, concurrency: int) -> None:
        """Handle up to ``concurrency`` messages at once from now on. Raises IllegalOptionError for an invalid number."""
        self._engine.set_concurrency(concurrency)

    def finish(self) -> None:
        """End the iteration. The current message is handled to its end, and the next request gets no message.

        It may be called in a signal handler; with asyncio, in one called by the loop. Raises UsageError if the consumer
        has a handler.
        """
        self._check_iterated()
        self._finished = True
        if self._arrivals is not None:
            self._arrivals.finish()

    def _check_iterated(self) -> None:
        """Raise UsageError if there is a handler, and ForkedClientError."""
        self._life.guard.check()
        if self.handler is not None:
            raise UsageError(f"this {self._life.what} has a handler, which gets the messages")

    async def _next_arrival(self) -> ReceivedMessage[T] | None:
        """Return the next message of the iteration; None after the end. Raises UsageError if there is a handler."""
        if self._arrivals is None or self._life.guard.forked:
            self._check_iterated()
            self._life.check()
        assert self._arrivals is not None
        return await self._arrivals.next()

    async def _receive(self, timeout: Duration | None) -> ReceivedMessage[T] | None:
        """Return the next message; None after ``timeout`` or the end. Raises as ``_next_arrival``. Reactor thread."""
        if timeout is None:
            return await self._next_arrival()
        seconds = milliseconds("timeout", timeout, zero=True) / 1000
        arrival = Deferred.fromCoroutine(self._next_arrival())
        if not arrival.called:
            assert self._made is not None
            arrival.addTimeout(seconds, self._made.instance.reactor, lambda _result, _seconds: None)
        return await arrival

    def _put_back(self, message: ReceivedMessage[T] | None) -> None:
        """Give out again a message whose caller was cancelled before it got the message. Reactor thread."""
        if message is not None and self._arrivals is not None:
            self._arrivals.put_back(message)

    def _make_engine(
        self, instance: ClientInstance, run_coroutine: RunCoroutine
    ) -> push_consumer.PushConsumerEngine[T]:
        """Create the engine. Reactor thread."""
        handler = self.handler
        if handler is None:
            self._arrivals = Arrivals(self.batch)
            if self._finished:
                self._arrivals.finish()
            handler = self._arrivals.offer
            run_handler: RunCoroutine = _run_in_reactor
        else:
            run_handler = run_coroutine
        return self._subscribe_all(
            push_consumer.PushConsumerEngine(
                instance,
                self.group,
                handler,
                options=self,
                codec=self.codec,
                run_coroutine=run_handler,
                run_listener=run_coroutine,
            )
        )

    async def _stop_engine(self, engine: push_consumer.PushConsumerEngine[T]) -> None:
        """Stop the engine. The current message was consumed, unless the with block failed."""
        if self._arrivals is not None:
            self._arrivals.close(consumed=not self._block_failed)
        await engine.stop()


def _run_in_reactor(coroutine: Any) -> Deferred[Any]:
    return Deferred.fromCoroutine(coroutine)


class Arrivals(Generic[T]):
    """Messages waiting for an iteration. Reactor thread.

    A message given out is consumed when the next one is requested, or at ``close`` with ``consumed``.
    """

    def __init__(self, batch: int) -> None:
        if batch > 1:
            raise UsageError(f"batch={batch}: without a handler messages come one by one")
        self._waiting: deque[tuple[ReceivedMessage[T], Deferred[None]]] = deque()
        self._asking: deque[Deferred[ReceivedMessage[T] | None]] = deque()
        self._out: tuple[ReceivedMessage[T], Deferred[None]] | None = None
        self._finished = False
        self._closed = False

    async def offer(self, message: ReceivedMessage[T]) -> None:
        """Be the consumer's handler: return when the message is consumed."""
        if self._closed:
            raise StopConsuming
        consumed: Deferred[None] = Deferred()
        self._waiting.append((message, consumed))
        self._hand_out()
        await consumed

    def next(self) -> Deferred[ReceivedMessage[T] | None]:
        """Return a Deferred for the next message, None after the end. The previous message is now consumed."""
        if self._asking:
            raise UsageError(
                "another call already waits for the next message: give a handler to handle several at once"
            )
        self._end_current(consumed=True)
        asking: Deferred[ReceivedMessage[T] | None] = Deferred(self._leave)
        self._asking.append(asking)
        self._hand_out()
        return asking

    def put_back(self, message: ReceivedMessage[T]) -> None:
        """Give the current message out again, because its caller was cancelled before it got the message."""
        out = self._out
        if out is not None and out[0] is message and not out[1].called:
            self._out = None
            self._waiting.appendleft(out)
            self._hand_out()

    def finish(self) -> None:
        """Give out no more messages, but leave the current one to its owner."""
        self._finished = True
        self._hand_out()

    def close(self, *, consumed: bool = True) -> None:
        """Give out no more messages. Unless ``consumed``, the current message comes again."""
        if self._closed:
            return
        self._closed = self._finished = True
        self._end_current(consumed=consumed)
        for _, waiting in self._waiting:
            waiting.errback(StopConsuming())
        self._waiting.clear()
        self._hand_out()

    def _end_current(self, *, consumed: bool) -> None:
        out, self._out = self._out, None
        if out is not None and not out[1].called:
            out[1].callback(None) if consumed else out[1].errback(StopConsuming())

    def _leave(self, asking: Deferred[Any]) -> None:
        self._asking.remove(asking)
        asking.errback(CancelledError())

    def _hand_out(self) -> None:
        while self._asking and (self._waiting or self._finished):
            asking = self._asking.popleft()
            if self._finished:
                asking.callback(None)
                continue
            self._out = self._waiting.popleft()
            asking.callback(self._out[0])
