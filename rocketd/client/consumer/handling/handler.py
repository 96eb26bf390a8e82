"""Passes messages to the application's handler, and makes an outcome of its result.

Counterpart: the calls of `MessageListenerConcurrently` and `MessageListenerOrderly` in the consume services (Apache).
Reactor thread.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Generic

from msgspec.structs import replace
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketd.client.consumer.handling.chunks import Chunk
from rocketd.client.consumer.handling.coroutine_chunks import CoroutineChunk
from rocketd.client.consumer.handling.hook_calls import HookedConsumption
from rocketd.client.consumer.pulling.assigned_queue import PulledMessage
from rocketd.client.consumer.retries.handler_results import BROKER_CHOOSES, DEAD_LETTER, Reject, Retry
from rocketd.client.errors import StopConsuming
from rocketd.client.hooks import ConsumeMessageContext
from rocketd.client.messages.codec import BYTES, Codec
from rocketd.client.messages.lease import LEASE, Lease
from rocketd.client.messages.message import ReceivedMessage, T
from rocketd.client.messages.received import received_message
from rocketd.client.runtime.listeners import HandlerThreads, is_coroutine_function
from rocketd.client.runtime.tracebacks import LoggedError
from rocketd.common.message_properties import KEYS, UNIQ_KEY
from rocketd.common.record_host import offset_message_id
from rocketd.common.sysflag import COMPRESSED
from rocketd.remoting.bodies.tables import MessageQueue

Listener = Callable[..., Any]
"""Gets a message, or a list of messages if ``batch`` is above 1. May be a coroutine function."""


class Verdict(Enum):
    """The result of a handler for its messages. AGAIN means another delivery, or the dead letters."""

    CONSUMED = "consumed"
    AGAIN = "again"
    LEFT = "left"
    """They stay in place. The stopping consumer cancelled the handler, or the handler takes no more messages."""


class Outcome:
    """A verdict. With AGAIN it has the broker's delay level, and the wait in seconds for a queue in order.

    With AGAIN the first ``done`` messages were consumed nevertheless. With ``is_unreadable`` the handler did not get them.
    """

    __slots__ = ("delay_level", "done", "error", "is_unreadable", "verdict", "wait_seconds")

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
        self.is_unreadable = False


CONSUMED = Outcome(Verdict.CONSUMED)


class Handler(Generic[T]):
    """The application's handler, which ``threads`` run. ``name`` is for the log. ``in_chunks``: use ``chunk``.

    ``on_error`` is called after a failure, with the error and the argument of the handler.
    While ``stopping``, a cancelled handler leaves its messages in place. At any other time, a handler cancelled because of
    something it awaited has failed.
    """

    _log = Logger()

    def __init__(
        self,
        listener: Listener,
        codec: Codec[T],
        namespace: str,
        threads: HandlerThreads,
        batch: bool,
        hooks: HookedConsumption,
        group: str,
        on_error: Listener | None = None,
        clock_ms: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.name = getattr(listener, "__qualname__", None) or type(listener).__qualname__
        self.stopping = False
        self._codec = codec
        self._namespace = namespace
        self.in_chunks = not (batch or hooks.present)
        self._in_loop = is_coroutine_function(listener)
        self._listener = listener
        self._threads = threads
        self._call = threads.caller(listener)
        self._batch = batch
        self._hooks = hooks
        self._group = group
        self._clock_ms = clock_ms
        self._on_error = None if on_error is None else threads.caller(on_error)

    def messages(self, queue: MessageQueue, pulled: Sequence[PulledMessage]) -> list[ReceivedMessage[T]]:
        """Return the application's messages. Raises IllegalMessageError if a message is unreadable."""
        messages = []
        for one in pulled:
            message = received_message(one.record, queue, self._codec, self._namespace)
            message.reconsume_times = one.reconsume_times
            one.lease = message.__dict__[LEASE] = Lease(self._clock_ms)
            messages.append(message)
        return messages

    def consume(self, queue: MessageQueue, pulled: Sequence[PulledMessage]) -> Deferred[Outcome]:
        """Have messages consumed, with the hooks around the handler. Never fails."""
        return self._consume(queue, pulled, self._hooks)

    def consume_directly(self, queue: MessageQueue, pulled: Sequence[PulledMessage]) -> Deferred[Outcome]:
        """Have messages consumed on an administrator's request, without hooks. Never fails."""
        return self._consume(queue, pulled, None)

    def _consume(
        self, queue: MessageQueue, pulled: Sequence[PulledMessage], hooks: HookedConsumption | None
    ) -> Deferred[Outcome]:
        try:
            messages = self.messages(queue, pulled)
        except Exception as error:
            return self.failed(error, queue, pulled).addCallback(_unreadable)
        context = None if hooks is None else hooks.begin(queue, messages)
        done = self._judged(self._call(messages if self._batch else messages[0]), queue, pulled)
        if hooks is not None and context is not None:
            done.addCallback(_tell, hooks, context)
        return done

    def chunk(self, messages: Sequence[tuple[ReceivedMessage[T], PulledMessage]]) -> Chunk:
        """Return a chunk for ``work_off``. Its results with consequences are for ``outcome``; all others mean success."""
        if self._in_loop:
            return CoroutineChunk(self._listener, messages, self._clock_ms)
        return Chunk(self._listener, messages)

    def work_off(self, chunk: Chunk, on_wait: Callable[[], object] = lambda: None) -> Deferred[None]:
        """Run the handler for a chunk, in a thread or as a coroutine.

        The Deferred fires when the thread or the coroutine no longer needs the chunk. ``on_wait`` is called when the
        coroutine of a message waits for the first time.
        """
        if not isinstance(chunk, CoroutineChunk):
            return self._threads.run(chunk.work_off)
        done = self._threads.follow(self._listener, chunk.work_off_in_loop(on_wait))
        return done.addErrback(_stopped_early)

    def outcome(self, result: object, queue: MessageQueue, pulled: Sequence[PulledMessage]) -> Deferred[Outcome]:
        """Return the outcome of a chunk's result for one message. Never fails."""
        return self._judged(self._threads.result(self._listener, result), queue, pulled)

    def _judged(self, done: Deferred[Any], queue: MessageQueue, pulled: Sequence[PulledMessage]) -> Deferred[Outcome]:
        """Return the outcome of a handler's result. Never fails."""
        done.addCallback(self._outcome, queue, pulled)
        done.addErrback(self._failed, queue, pulled)
        return done

    def _failed(
        self, failure: Failure, queue: MessageQueue, pulled: Sequence[PulledMessage]
    ) -> Outcome | Deferred[Outcome]:
        """Return the outcome of an error of the handler."""
        error = failure.value
        if isinstance(error, StopConsuming) or (self.stopping and isinstance(error, CancelledError)):
            return Outcome(Verdict.LEFT, error=error)
        if isinstance(error, BaseException) and error.__traceback__ is None:
            error.__traceback__ = failure.getTracebackObject()
        return self._outcome(error, queue, pulled)

    def _outcome(
        self, answer: object, queue: MessageQueue, pulled: Sequence[PulledMessage]
    ) -> Outcome | Deferred[Outcome]:
        """Return the outcome of a value returned or raised by the handler.

        A class of exceptions stands for one of them, as in ``raise``. Raises the errors of making it.
        """
        if isinstance(answer, type) and issubclass(answer, BaseException):
            answer = answer()
        if isinstance(answer, Retry):
            if answer.done >= len(pulled):
                return CONSUMED
            return Outcome(Verdict.AGAIN, answer.delay_level, answer.delay_seconds, answer, answer.done)
        if isinstance(answer, Reject):
            return Outcome(Verdict.AGAIN, DEAD_LETTER, None, answer)
        return self.failed(answer, queue, pulled) if isinstance(answer, BaseException) else CONSUMED

    def failed(
        self, error: BaseException, queue: MessageQueue, pulled: Sequence[PulledMessage], what: str | None = None
    ) -> Deferred[Outcome]:
        """Log a failure of the handler, or of the step ``what`` before it, and call ``on_error``.

        The messages are to come again. If the stopping consumer cancels ``on_error``, they stay in place instead.
        """
        first = pulled[0]
        table = first.record.properties_map()
        self._log.warn(
            "{what} failed on {queue} at {offset}: {error!r}; message {id}, keys {keys!r}, attempt {attempt}, group "
            "{group}{more}{trace}",
            what=self.name if what is None else f"{what} for {self.name}",
            queue=queue,
            offset=first.queue_offset,
            error=error,
            id=table.get(UNIQ_KEY) or offset_message_id(first.record.store_host, first.record.physical_offset),
            keys=table.get(KEYS, ""),
            attempt=first.reconsume_times + 1,
            group=self._group,
            more=f", with {len(pulled) - 1} more messages" if len(pulled) > 1 else "",
            trace=LoggedError(error),
        )
        outcome = Outcome(Verdict.AGAIN, error=error)
        if self._on_error is None:
            return succeed(outcome)
        messages = [self._readable(queue, one) for one in pulled]
        told = self._on_error(error, messages if self._batch else messages[0])
        return told.addCallbacks(lambda _: outcome, self._not_told, errbackArgs=(outcome,))

    def _readable(self, queue: MessageQueue, pulled: PulledMessage) -> ReceivedMessage[Any]:
        """Return a message for ``on_error``. A body that cannot be read stays as it was stored."""
        message: ReceivedMessage[Any]
        try:
            message = self.messages(queue, [pulled])[0]
        except Exception:
            record = replace(pulled.record, sys_flag=pulled.record.sys_flag & ~COMPRESSED)
            message = received_message(record, queue, BYTES, self._namespace)
            message.sys_flag = pulled.record.sys_flag
            message.reconsume_times = pulled.reconsume_times
        return message

    def _not_told(self, failure: Failure, outcome: Outcome) -> Outcome:
        """Return the outcome after ``on_error`` has failed or was cancelled."""
        error = failure.value
        if self.stopping and isinstance(error, CancelledError):
            return Outcome(Verdict.LEFT, error=outcome.error)
        if error is not None:
            self._log.warn(
                "on_error of group {group} failed: {error!r}{trace}",
                group=self._group,
                error=error,
                trace=LoggedError(error, failure.getTracebackObject()),
            )
        return outcome


def _stopped_early(failure: Failure) -> None:
    """Accept the end of a coroutine that was cancelled before its start, or interrupted. Its chunk has the results."""
    failure.trap(CancelledError, KeyboardInterrupt)


def _unreadable(outcome: Outcome) -> Outcome:
    outcome.is_unreadable = True
    return outcome


def _tell(outcome: Outcome, hooks: HookedConsumption, context: ConsumeMessageContext) -> Outcome:
    hooks.end(context, outcome.verdict is Verdict.CONSUMED, outcome.error)
    return outcome
