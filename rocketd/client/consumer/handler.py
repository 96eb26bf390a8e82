"""Hands messages to the application's handler, and makes an outcome of what it does.

Answers to MessageListenerConcurrently and MessageListenerOrderly as the consume services call them. Reactor thread.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Generic

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketd.client.codec import Codec
from rocketd.client.consumer.hooked import HookedConsumption
from rocketd.client.consumer.outcome import BROKER_CHOOSES, DEAD_LETTER, Reject, Retry
from rocketd.client.consumer.pulled import Pulled
from rocketd.client.errors import StopConsuming
from rocketd.client.hooks import ConsumeMessageContext
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
    """They stay where they are: this consumer has cancelled the handler, as it stops, or the handler takes no more."""


class Outcome:
    """A verdict; with AGAIN, the broker's delay level, and the wait in seconds where the queue waits itself.

    AGAIN is not for the first ``done`` of the messages, which were consumed.
    """

    __slots__ = ("delay_level", "done", "error", "verdict", "wait_seconds")

    def __init__(
        self,
        verdict: Verdict,
        delay_level: int = BROKER_CHOOSES,
        wait_seconds: float | None = None,
        error: BaseException | None = None,
        done: int = 0,
    ) -> None:
        self.verdict = verdict
        self.delay_level = delay_level
        self.wait_seconds = wait_seconds
        self.error = error
        self.done = done


CONSUMED = Outcome(Verdict.CONSUMED)


class Handler(Generic[T]):
    """The application's handler, which ``call`` runs. ``name`` is for the log.

    While ``stopping`` it may be cancelled: then its messages stay where they are. A handler that is cancelled at any other
    time, as it awaited something that was, has failed.
    """

    _log = Logger()

    def __init__(
        self,
        listener: Listener,
        codec: Codec[T],
        namespace: str,
        call: Callable[[Any], Deferred[Any]],
        batch: bool,
        hooks: HookedConsumption | None = None,
    ) -> None:
        self.name = getattr(listener, "__qualname__", None) or type(listener).__qualname__
        self.stopping = False
        self._codec = codec
        self._namespace = namespace
        self._call = call
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

    def consume(self, queue: MessageQueue, pulled: Sequence[Pulled]) -> Deferred[Outcome]:
        """Have messages consumed, with the hooks around it; never fails."""
        return self._consume(queue, pulled, self._hooks)

    def consume_directly(self, queue: MessageQueue, pulled: Sequence[Pulled]) -> Deferred[Outcome]:
        """Have messages consumed because somebody asks for it, which is not for hooks; never fails."""
        return self._consume(queue, pulled, None)

    def _consume(
        self, queue: MessageQueue, pulled: Sequence[Pulled], hooks: HookedConsumption | None
    ) -> Deferred[Outcome]:
        try:
            messages = self.messages(queue, pulled)
        except Exception as error:
            return succeed(self.failed(error, queue, pulled))
        context = None if hooks is None else hooks.begin(queue, messages)
        done = self._call(messages if self._batch else messages[0])
        done.addCallbacks(self._outcome, self._failed, (queue, pulled), errbackArgs=(queue, pulled))
        if hooks is not None and context is not None:
            done.addCallback(_tell, hooks, context)
        return done

    def _failed(self, failure: Failure, queue: MessageQueue, pulled: Sequence[Pulled]) -> Outcome:
        """Take what the handler raised."""
        error = failure.value
        if isinstance(error, StopConsuming) or (self.stopping and isinstance(error, CancelledError)):
            return Outcome(Verdict.LEFT, error=error)
        return self._outcome(error, queue, pulled)

    def _outcome(self, answer: Any, queue: MessageQueue, pulled: Sequence[Pulled]) -> Outcome:
        """Take what the handler returned or raised."""
        if isinstance(answer, Retry):
            if answer.done >= len(pulled):
                return CONSUMED
            return Outcome(Verdict.AGAIN, answer.delay_level, answer.delay_seconds, answer, answer.done)
        if isinstance(answer, Reject):
            return Outcome(Verdict.AGAIN, DEAD_LETTER, None, answer)
        return self.failed(answer, queue, pulled) if isinstance(answer, BaseException) else CONSUMED

    def failed(
        self, error: BaseException, queue: MessageQueue, pulled: Sequence[Pulled], what: str | None = None
    ) -> Outcome:
        """Say in the log that the handler, or ``what`` comes before it, failed; the messages are to come again."""
        self._log.warn(
            "{what} failed on {queue} at {offset}: {error!r}",
            what=self.name if what is None else f"{what} for {self.name}",
            queue=queue,
            offset=pulled[0].queue_offset,
            error=error,
        )
        return Outcome(Verdict.AGAIN, error=error)


def _tell(outcome: Outcome, hooks: HookedConsumption, context: ConsumeMessageContext) -> Outcome:
    hooks.end(context, outcome.verdict is Verdict.CONSUMED, outcome.error)
    return outcome
