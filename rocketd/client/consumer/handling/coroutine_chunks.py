"""Chunks of messages for coroutine functions: one task calls the handler for one message after the other.

A task for each message costs more than a short handler. If a handler waits, the rest of its chunk goes to other tasks, so
that it does not hold them up. Everything belongs to the reactor thread, which is that of the handler's loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextvars import Context, copy_context
from types import CoroutineType, coroutine
from typing import Any

from twisted.internet.defer import CancelledError
from twisted.python.failure import Failure

from rocketd.client.consumer.handling.chunks import CHUNK_SECONDS, Chunk, is_failure
from rocketd.client.consumer.pulling.assigned_queue import PulledMessage


class CoroutineChunk(Chunk):
    """Messages for the coroutine function ``handle``, each with its pulled message. ``clock_ms`` returns milliseconds.

    Each message has a copy of the context variables, as if it had a task of its own.
    """

    __slots__ = ("_clock_ms",)

    def __init__(
        self,
        handle: Callable[[Any], Any],
        messages: Sequence[tuple[Any, PulledMessage]],
        clock_ms: Callable[[], float],
    ) -> None:
        super().__init__(handle, messages)
        self._clock_ms = clock_ms

    def now(self) -> float:
        """The time of the clock in seconds."""
        return self._clock_ms() / 1000

    async def work_off_in_loop(self, on_wait: Callable[[], object] = lambda: None) -> None:
        """Handle the messages. The first Retry, Reject or error is the last result.

        ``on_wait`` is called when a handler waits for the first time. It takes back the rest of the messages. The work ends
        after a handler that waited, since the state of its task is its own. It also ends after CHUNK_SECONDS, so that other
        tasks can run. Raises KeyboardInterrupt after a handler has, for the loop.
        """
        handle, left, done, now = self._handle, self._left, self._done, self.now
        first = began = now()
        task = _current_task()
        waited = False
        while left and not waited:
            message, pulled = left.popleft()
            self._running = pulled, began
            context = copy_context()
            result: object = None
            try:
                running = context.run(handle, message)
                if type(running) is not CoroutineType:
                    running = _awaited(running)
                waits_for = context.run(running.send, None)
            except StopIteration as returned:
                result = _consequences(returned.value)
            except BaseException as error:
                result = _failure(error)
            else:
                waited = True
                on_wait()
                try:
                    result = _consequences(await _rest_of(running, context, waits_for))
                except BaseException as error:
                    result = _failure(error)
            ended = now()
            done.append((pulled, result, ended - began))
            last = result is not None
            interrupt = None if result is None or not isinstance(result, Failure) else result.check(KeyboardInterrupt)
            del message, pulled, result, context  # the traceback of a failure refers to this frame
            if interrupt is not None:
                raise KeyboardInterrupt
            if last or ended - first > CHUNK_SECONDS or (task is not None and task.cancelling()):
                return
            began = ended


def _current_task() -> "asyncio.Task[Any] | None":
    """Return the task of asyncio that runs; None in a loop of Twisted."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


async def _awaited(awaitable: Awaitable[object]) -> object:
    return await awaitable


@coroutine
def _rest_of(running: Coroutine[Any, Any, Any], context: Context, waits_for: object) -> Generator[Any, Any, Any]:
    """Drive a coroutine that was begun with ``send`` to its end, in its context. Return its result."""
    while True:
        try:
            value = yield waits_for
        except GeneratorExit:
            context.run(running.close)
            raise
        except BaseException as error:
            step: Callable[[Any], object] = running.throw
            given: object = error
        else:
            step, given = running.send, value
        try:
            waits_for = context.run(step, given)
        except StopIteration as returned:
            return returned.value


def _consequences(result: object) -> object:
    """Return the returned value if it means anything but success."""
    return result if is_failure(result) else None


def _failure(error: BaseException) -> Failure:
    """Return the failure for an error, with the CancelledError of Twisted for that of asyncio."""
    return Failure(CancelledError()) if isinstance(error, asyncio.CancelledError) else Failure()
