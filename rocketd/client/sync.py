"""The client for scripts, web workers and all that has no loop: methods block, and may be called from any thread.

All clients of a process live in one thread in the background, which begins when the first one starts.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from twisted.internet.defer import ensureDeferred, maybeDeferred

from rocketd.client.config import Duration
from rocketd.client.face import ConsumerFace, ProducerFace, Sql
from rocketd.client.hosting.thread_host import ThreadHost
from rocketd.client.message import Message, ReceivedMessage, SendResult, T
from rocketd.client.producer.producer import Selector
from rocketd.client.producer.transaction import TransactionSendResult
from rocketd.remoting.bodies import MessageQueue

R = TypeVar("R")


class Producer(ProducerFace[T]):
    """Sends messages. Its options are described at ProducerFace and ProducerOptions."""

    _host: ThreadHost

    def _call(self, function: Callable[..., Awaitable[R]], *arguments: Any, **keywords: Any) -> R:
        return self._host.call(partial(function, **keywords), *arguments)

    def open(self) -> Self:
        """Begin; return the producer."""
        self._life.begin()
        host = self._host = ThreadHost.acquire()
        try:
            host.call(self.bring_up, host.reactor, ensureDeferred)
        except BaseException:
            self._life.fail()
            host.release()
            raise
        return self

    def close(self) -> None:
        """Let what is under way end, and leave."""
        self._life.guard.check()
        if self._life.begun and not self._life.ended:
            self._host.call(self.bring_down)
            self._host.release()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def send(
        self,
        message: Message[T],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: Any = None,
        timeout: Duration | None = None,
    ) -> SendResult:
        """Send a message to ``queue``, to the one that ``selector`` chooses by ``key``, or to the queues in turn."""
        return self._call(self.engine.send, message, queue=queue, selector=selector, key=key, timeout=timeout)

    def send_oneway(
        self,
        message: Message[T],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: Any = None,
    ) -> None:
        """Send a message and do not wait for an answer: whether it is stored is not known."""
        return self._call(self.engine.send_oneway, message, queue=queue, selector=selector, key=key)

    def send_batch(
        self, messages: Sequence[Message[T]], *, queue: MessageQueue | None = None, timeout: Duration | None = None
    ) -> list[SendResult]:
        """Send messages of one topic together, in as many requests as the size limit needs."""
        return self._call(self.engine.send_batch, messages, queue=queue, timeout=timeout)

    def send_in_transaction(self, message: Message[T], arg: Any = None) -> TransactionSendResult:
        """Send a half message, do the local transaction, and commit or roll back as it ended."""
        return self._call(self.engine.send_in_transaction, message, arg)

    def request(
        self,
        message: Message[T],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: Any = None,
        timeout: Duration | None = None,
    ) -> ReceivedMessage[T]:
        """Send a message and wait for a consumer's reply; ``timeout`` is for both together."""
        return self._call(self.engine.request, message, queue=queue, selector=selector, key=key, timeout=timeout)

    def reply(self, request: ReceivedMessage[Any], body: T, *, timeout: Duration | None = None) -> SendResult:
        """Send the reply to a request."""
        return self._call(self.engine.reply, request, body, timeout=timeout)

    def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that can be written."""
        return self._call(self.engine.publish_queues, topic)


class Consumer(ConsumerFace[T]):
    """Consumes messages. Its options are described at ConsumerFace and ConsumerOptions."""

    _host: ThreadHost

    def _call(self, function: Callable[..., R], *arguments: Any) -> R:
        if not self._life.begun:
            return function(*arguments)
        done: R = self._host.call(maybeDeferred, function, *arguments)
        return done

    def open(self) -> Self:
        """Begin; return the consumer, when it has its first share of the queues."""
        self._life.begin()
        host = self._host = ThreadHost.acquire()
        try:
            host.call(self.bring_up, host.reactor, ensureDeferred)
        except BaseException:
            self._life.fail()
            host.release()
            raise
        return self

    def close(self) -> None:
        """Pull no more, let handlers end within ``grace``, store the offsets, and leave."""
        self._life.guard.check()
        if self._life.begun and not self._life.ended:
            self._host.call(self.bring_down)
            self._host.release()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.arrivals is not None:
            self._call(partial(self.arrivals.close, consumed=error is None))
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage[T]:
        message = self._host.call(self.next_arrival)
        if message is None:
            raise StopIteration
        return message

    def subscribe(self, topic: str, wanted: str | Sql | None = None) -> None:
        """Consume a topic, too: messages with tags such as ``TagA || TagB``, those an Sql selects, or all."""
        return self._call(super().subscribe, topic, wanted)

    def unsubscribe(self, topic: str) -> None:
        """Consume a topic no more."""
        return self._call(super().unsubscribe, topic)

    def queues(self) -> list[MessageQueue]:
        """Return this consumer's share of the queues."""
        return self._call(super().queues)

    def suspend(self) -> None:
        """Pull nothing until ``resume``; what is held is handled."""
        return self._call(super().suspend)

    def resume(self) -> None:
        """Pull again."""
        return self._call(super().resume)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues no more, until ``unpause``."""
        return self._call(super().pause, queues)

    def unpause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues again."""
        return self._call(super().unpause, queues)

    def set_concurrency(self, concurrency: int) -> None:
        """Handle so many messages at once from now on."""
        return self._call(super().set_concurrency, concurrency)
