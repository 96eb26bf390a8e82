"""Hands messages to the application's handler, and makes an outcome of what it does.

Answers to MessageListenerConcurrently and MessageListenerOrderly as the consume services call them. Reactor thread.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Generic

from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from rocketd.client.codec import Codec
from rocketd.client.consumer.hooked import HookedConsumption
from rocketd.client.consumer.outcome import BROKER_CHOOSES, DEAD_LETTER, Reject, Retry
from rocketd.client.consumer.pulled import Pulled
from rocketd.client.errors import StopConsuming
from rocketd.client.listeners import Invoke
from rocketd.client.message import ReceivedMessage, T
from rocketd.client.wire_message import received_message
from rocketd.remoting.bodies import MessageQueue

Listener = Callable[..., Any]
"""Gets a message, or a list of them where ``batch`` is above 1; may be a coroutine function."""


class Verdict(Enum):
    """What becomes of messages."""

    CONSUMED = "consumed"
    AGAIN = "again"
    LEFT = "left"
    """They stay where they are: this consumer is stopping, or its handler takes no more."""


class Outcome:
    """A verdict; with AGAIN, the broker's delay level, and the wait in seconds where the queue waits itself."""

    __slots__ = ("delay_level", "error", "verdict", "wait_seconds")

    def __init__(
        self,
        verdict: Verdict,
        delay_level: int = BROKER_CHOOSES,
        wait_seconds: float | None = None,
        error: BaseException | None = None,
    ) -> None:
        self.verdict = verdict
        self.delay_level = delay_level
        self.wait_seconds = wait_seconds
        self.error = error


CONSUMED = Outcome(Verdict.CONSUMED)


class Handler(Generic[T]):
    """The application's handler. ``name`` is for the log."""

    _log = Logger()

    def __init__(
        self,
        listener: Listener,
        codec: Codec[T],
        namespace: str,
        invoke: Invoke,
        batch: bool,
        hooks: HookedConsumption | None = None,
    ) -> None:
        self.name = getattr(listener, "__qualname__", None) or type(listener).__qualname__
        self._listener = listener
        self._codec = codec
        self._namespace = namespace
        self._invoke = invoke
        self._batch = batch
        self._hooks = hooks

    def messages(self, queue: MessageQueue, pulled: Sequence[Pulled]) -> list[ReceivedMessage[T]]:
        """Make the application's messages. Raises IllegalMessageError for one that cannot be read."""
        messages = []
        for one in pulled:
            message = received_message(one.record, queue, self._codec, self._namespace)
            message.reconsume_times = one.reconsume_times
            messages.append(message)
        return messages

    async def consume(self, queue: MessageQueue, pulled: Sequence[Pulled]) -> Outcome:
        """Have messages consumed, with the hooks around it; never raises."""
        try:
            messages = self.messages(queue, pulled)
        except Exception as error:
            return self._outcome(queue, pulled, error)
        if self._hooks is None:
            return await self._consume(queue, pulled, messages)
        context = self._hooks.begin(queue, messages)
        outcome = await self._consume(queue, pulled, messages)
        self._hooks.end(context, outcome.verdict is Verdict.CONSUMED, outcome.error)
        return outcome

    async def consume_directly(self, queue: MessageQueue, pulled: Sequence[Pulled]) -> Outcome:
        """Have messages consumed because somebody asks for it, which is not for hooks; never raises."""
        try:
            messages = self.messages(queue, pulled)
        except Exception as error:
            return self._outcome(queue, pulled, error)
        return await self._consume(queue, pulled, messages)

    async def _consume(
        self, queue: MessageQueue, pulled: Sequence[Pulled], messages: list[ReceivedMessage[T]]
    ) -> Outcome:
        try:
            answer = await self._invoke(self._listener, messages if self._batch else messages[0])
        except (CancelledError, StopConsuming) as error:
            return Outcome(Verdict.LEFT, error=error)
        except Exception as error:
            answer = error
        return self._outcome(queue, pulled, answer)

    def _outcome(self, queue: MessageQueue, pulled: Sequence[Pulled], answer: Any) -> Outcome:
        """Take what the handler returned or raised."""
        if isinstance(answer, Retry):
            return Outcome(Verdict.AGAIN, answer.delay_level, answer.delay_seconds, answer)
        if isinstance(answer, Reject):
            return Outcome(Verdict.AGAIN, DEAD_LETTER, None, answer)
        if isinstance(answer, Exception):
            self._log.warn(
                "{handler} failed on {queue} at {offset}: {error!r}",
                handler=self.name,
                queue=queue,
                offset=pulled[0].queue_offset,
                error=answer,
            )
            return Outcome(Verdict.AGAIN, error=answer)
        return CONSUMED
