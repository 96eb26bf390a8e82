"""The outcome of a delivery: consumed, to be redelivered, or a dead letter.

Counterpart: `ConsumeConcurrentlyStatus` (Apache), set by FastStream's acknowledgements.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rocketd.client.consumer.retries.handler_results import Reject, Retry
from rocketd.client.errors import StopConsuming

Answer = Retry | Reject | None
"""None means consumed."""


class Settlement:
    """The awaitable outcome of one delivery. The first decision counts. Belongs to the thread of the event loop."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._error: BaseException | None = None

    @property
    def decided(self) -> bool:
        """Whether an outcome is set."""
        return self._answer.done()

    def decide(self, answer: Answer) -> None:
        """Set the outcome."""
        if not self._answer.done():
            self._answer.set_result(answer)

    def fail(self, error: BaseException) -> None:
        """Request redelivery, unless an outcome is set. The error of the handler is the reason of either."""
        self._error = error
        self.decide(Retry())

    def leave(self) -> None:
        """Give the delivery up without an outcome: it is not handled here any more."""
        if not self._answer.done():
            self._answer.set_exception(StopConsuming())

    async def answer(self) -> Answer:
        """Wait for the outcome. Raises StopConsuming if the delivery was given up."""
        answer = await self._answer
        if answer is not None and self._error is not None:
            answer.__cause__ = self._error
        return answer


_current: ContextVar[Settlement | None] = ContextVar("rocketd_settlement", default=None)


def current_settlement() -> Settlement | None:
    """Return the settlement of the current delivery; None outside of one."""
    return _current.get()


@contextmanager
def settling(settlement: Settlement) -> Iterator[None]:
    """Tie messages parsed within this block to this settlement."""
    token = _current.set(settlement)
    try:
        yield
    finally:
        _current.reset(token)
