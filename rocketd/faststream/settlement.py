"""What becomes of a message that was delivered: consumed, to come again, or a dead letter.

Answers to ConsumeConcurrentlyStatus, as FastStream's acknowledgements say it.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rocketd.client.consumer.outcome import Reject, Retry
from rocketd.client.errors import StopConsuming

Answer = Retry | Reject | None
"""None where it is consumed."""


class Settlement:
    """The answer for one delivery, to wait for. What is said first counts. Loop thread."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    @property
    def decided(self) -> bool:
        """Whether there is an answer."""
        return self._answer.done()

    def decide(self, answer: Answer) -> None:
        """Say what becomes of it."""
        if not self._answer.done():
            self._answer.set_result(answer)

    def leave(self) -> None:
        """Leave it where it is: nobody handles it here any more."""
        if not self._answer.done():
            self._answer.set_exception(StopConsuming())

    async def answer(self) -> Answer:
        """Wait for the answer. Raises StopConsuming where it is left."""
        return await self._answer


_current: ContextVar[Settlement | None] = ContextVar("rocketd_settlement", default=None)


def current_settlement() -> Settlement | None:
    """Return that of the delivery which is handled here; None outside of one."""
    return _current.get()


@contextmanager
def settling(settlement: Settlement) -> Iterator[None]:
    """Have messages that are parsed in this block answer to this settlement."""
    token = _current.set(settlement)
    try:
        yield
    finally:
        _current.reset(token)
