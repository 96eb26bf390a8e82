"""What the three faces of producers and push consumers have in common: how they are made, and messages to iterate over.

No counterpart in Apache.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Generic

from twisted.internet.defer import CancelledError, Deferred

from rocketd.client.codec import BYTES, Codec
from rocketd.client.config import ClientConfig
from rocketd.client.consumer import push_consumer
from rocketd.client.consumer.options import ConsumerOptions
from rocketd.client.errors import StopConsuming, UsageError, check_group
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.life import Face, RunCoroutine
from rocketd.client.listeners import check_function
from rocketd.client.message import ReceivedMessage, T
from rocketd.client.producer import producer
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.transaction import TransactionListener
from rocketd.client.subscribing import SubscribingFace, Topics

Cluster = str | Sequence[str] | ClientConfig | None
"""Addresses of name servers, or a whole ClientConfig; None: those of NAMESRV_ADDR in the environment."""


@dataclass(eq=False, repr=False)
class ProducerFace(ProducerOptions, Face[producer.Producer[T]], Generic[T]):
    """A producer of one group. ``cluster`` are the name servers, or a ClientConfig.

    ``codec`` makes bodies of values, ``transactions`` is needed for sends in transactions. All other options are those of
    ProducerOptions. Raises IllegalGroupError and IllegalOptionError.
    """

    kind = "producer"

    group: str
    cluster: Cluster = None
    _: KW_ONLY
    codec: Codec[T] = BYTES  # type: ignore[assignment]
    transactions: TransactionListener[T] | None = None

    def __post_init__(self) -> None:
        check_group(self.group)
        super().__post_init__()
        self._make_life(f"producer of group {self.group}", self.cluster)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} of group {self.group}>"

    def make_engine(self, instance: ClientInstance, run_coroutine: RunCoroutine) -> producer.Producer[T]:
        """Make the engine. Reactor thread."""
        return producer.Producer(
            instance,
            self.group,
            options=self,
            codec=self.codec,
            transactions=self.transactions,
            run_coroutine=run_coroutine,
        )


@dataclass(eq=False, repr=False)
class ConsumerFace(ConsumerOptions, SubscribingFace[push_consumer.PushConsumer[T]], Generic[T]):
    """A consumer of one group. ``cluster`` are the name servers, or a ClientConfig.

    ``topics`` is what to consume, more comes with ``subscribe``. ``handler`` gets each message (a list of messages where
    ``batch`` is above 1), and may be a coroutine function, or return what is to be awaited: what it raises makes the message
    come again, so do ``Retry`` and ``Reject``. Without a handler the messages come by iterating over the consumer: one is
    consumed when the next is asked for. ``codec`` makes values of bodies. All other options are those of ConsumerOptions.
    Raises IllegalGroupError, IllegalTopicError and IllegalOptionError.
    """

    group: str
    cluster: Cluster = None
    _: KW_ONLY
    topics: Topics = ()
    handler: Callable[..., Any] | None = None
    codec: Codec[T] = BYTES  # type: ignore[assignment]

    def __post_init__(self) -> None:
        check_group(self.group)
        super().__post_init__()
        self._make_life(f"consumer of group {self.group}", self.cluster)
        self._want_all(self.topics)
        if self.handler is not None:
            check_function("handler", self.handler)
        self.arrivals: Arrivals[T] | None = None
        self._finished = False

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} of group {self.group}>"

    # ------------------------------------------------------------ while it runs, in the reactor's thread

    def suspend(self) -> None:
        """Pull nothing until ``resume``; what is held is handled."""
        self.engine.suspend()

    def resume(self) -> None:
        """Pull again."""
        self.engine.resume()

    def set_concurrency(self, concurrency: int) -> None:
        """Handle so many messages at once from now on."""
        self.engine.set_concurrency(concurrency)

    def finish(self) -> None:
        """End the iteration: the message that is out is handled to its end, and whoever asks for the next gets none.

        It may be called in a signal's handler, with asyncio one that the loop calls. Raises UsageError where there is a
        handler for messages.
        """
        self.check_iterated()
        self._finished = True
        if self.arrivals is not None:
            self.arrivals.finish()

    def check_iterated(self) -> None:
        """Raise UsageError where there is a handler, and ForkedClientError."""
        self._life.guard.check()
        if self.handler is not None:
            raise UsageError(f"this {self._life.what} has a handler, which gets the messages")

    async def next_arrival(self) -> ReceivedMessage[T] | None:
        """Return the next message for who iterates; None after the end. Raises UsageError where there is a handler."""
        if self.arrivals is None or self._life.guard.forked:
            self.check_iterated()
            self._life.check()
        assert self.arrivals is not None
        return await self.arrivals.next()

    def make_engine(self, instance: ClientInstance, run_coroutine: RunCoroutine) -> push_consumer.PushConsumer[T]:
        """Make the engine. Reactor thread."""
        handler = self.handler
        if handler is None:
            self.arrivals = Arrivals(self.batch)
            if self._finished:
                self.arrivals.finish()
            handler = self.arrivals.offer
            run_coroutine = _run_in_reactor
        return self._subscribe_all(
            push_consumer.PushConsumer(
                instance, self.group, handler, options=self, codec=self.codec, run_coroutine=run_coroutine
            )
        )

    async def stop_engine(self, engine: push_consumer.PushConsumer[T]) -> None:
        """Stop the engine; the message that is out was consumed, unless the with block failed."""
        if self.arrivals is not None:
            self.arrivals.close(consumed=not self.block_failed)
        await engine.stop()


def _run_in_reactor(coroutine: Any) -> Deferred[Any]:
    return Deferred.fromCoroutine(coroutine)


class Arrivals(Generic[T]):
    """Messages that wait to be iterated over. Reactor thread.

    One that was given out is consumed when the next is asked for, or at ``close`` unless that says otherwise.
    """

    def __init__(self, batch: int) -> None:
        if batch > 1:
            raise UsageError(f"batch={batch}: without a handler messages come one by one")
        self._waiting: deque[tuple[ReceivedMessage[T], Deferred[None]]] = deque()
        self._asking: deque[Deferred[ReceivedMessage[T] | None]] = deque()
        self._out: Deferred[None] | None = None
        self._finished = False
        self._closed = False

    async def offer(self, message: ReceivedMessage[T]) -> None:
        """Be the consumer's handler: ends when the message is consumed."""
        if self._closed:
            raise StopConsuming
        consumed: Deferred[None] = Deferred()
        self._waiting.append((message, consumed))
        self._hand_out()
        await consumed

    def next(self) -> Deferred[ReceivedMessage[T] | None]:
        """Fires with the next message; the one before is consumed now. None after the end."""
        if self._asking:
            raise UsageError("somebody waits for the next message already: give a handler to handle several at once")
        self._settle(consumed=True)
        asking: Deferred[ReceivedMessage[T] | None] = Deferred(self._leave)
        self._asking.append(asking)
        self._hand_out()
        return asking

    def finish(self) -> None:
        """Give out no more, but leave the message that is out to whoever has it."""
        self._finished = True
        self._hand_out()

    def close(self, *, consumed: bool = True) -> None:
        """Give out no more; with ``consumed`` false the message that is out comes again."""
        if self._closed:
            return
        self._closed = self._finished = True
        self._settle(consumed=consumed)
        for _, waiting in self._waiting:
            waiting.errback(StopConsuming())
        self._waiting.clear()
        self._hand_out()

    def _settle(self, *, consumed: bool) -> None:
        out, self._out = self._out, None
        if out is not None and not out.called:
            out.callback(None) if consumed else out.errback(StopConsuming())

    def _leave(self, asking: Deferred[Any]) -> None:
        self._asking.remove(asking)
        asking.errback(CancelledError())

    def _hand_out(self) -> None:
        while self._asking and (self._waiting or self._finished):
            asking = self._asking.popleft()
            if self._finished:
                asking.callback(None)
                continue
            message, self._out = self._waiting.popleft()
            asking.callback(message)
