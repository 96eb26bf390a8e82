"""What a handler can say of a message, beside returning: that it is to come again, and when.

Answers to ConsumeConcurrentlyStatus, ConsumeOrderlyStatus, delayLevelWhenNextConsume and ackIndex.
"""

from datetime import timedelta

from rocketd.client.config import Duration
from rocketd.client.consumer.option_checks import check_number
from rocketd.common.pickling import PickledWhole

LEVEL_SECONDS = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Delays of the levels from 1 on, of a broker with the usual messageDelayLevel."""

BROKER_CHOOSES = 0
"""Level with which the broker delays longer from time to time."""

DEAD_LETTER = -1
"""Level with which the broker puts a message among the dead letters at once."""


class Retry(PickledWhole, Exception):  # noqa: N818 - an answer of the handler's, returned or raised, and no error
    """The message was not consumed and is to come again, after ``delay``; without one the broker chooses.

    Brokers know 18 delays: the shortest that is not shorter is taken. Where messages are consumed in order, the queue
    waits for exactly that time. A handler of batches says with ``done`` how many of its messages, from the first on, were
    consumed nevertheless: only the others come again. Raises IllegalOptionError for a ``done`` that is no whole number.
    """

    def __init__(self, delay: Duration | None = None, *, done: int = 0, reason: object = None) -> None:
        super().__init__(reason if reason is not None else "the handler wants it again")
        check_number("done", done, 0, 2**31 - 1)
        self.done = done
        self.delay_seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay

    @property
    def delay_level(self) -> int:
        """The level for the broker."""
        if self.delay_seconds is None:
            return BROKER_CHOOSES
        for level, seconds in enumerate(LEVEL_SECONDS, 1):
            if seconds >= self.delay_seconds:
                return level
        return len(LEVEL_SECONDS)


class Reject(Exception):  # noqa: N818 - as Retry
    """The message can never be consumed: it goes among the dead letters at once, or is left behind when broadcasting."""
