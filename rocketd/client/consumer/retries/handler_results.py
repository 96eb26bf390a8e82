"""Results of a handler other than success: try the message again, with a delay, or reject it.

Counterpart: `ConsumeConcurrentlyStatus`, `ConsumeOrderlyStatus`, `delayLevelWhenNextConsume` and `ackIndex` (Apache).
"""

from rocketd.client.consumer.options.option_checks import check_number
from rocketd.client.settings.config import Duration, milliseconds
from rocketd.common.pickling import PickledWhole

LEVEL_SECONDS = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Seconds of the delay levels from 1 on, for a broker with the default messageDelayLevel."""

BROKER_CHOOSES = 0
"""The level to let the broker choose. It chooses a longer delay each time."""

DEAD_LETTER = -1
"""The level for an immediate dead letter."""


class Retry(PickledWhole, Exception):  # noqa: N818 - a result of the handler, not an error
    """The message was not consumed and is to come again, after ``delay``. By default the broker chooses the delay.

    Brokers have 18 delays; the shortest sufficient one is taken. With order ``queue``, the queue waits for exactly this
    time; with order ``key``, the key. A handler of batches sets ``done`` to the number of messages consumed
    nevertheless, from the first on. Only the others come again. ``reason`` is the text of the exception.

    Raises IllegalOptionError if ``delay`` is not a duration from 0 on, or ``done`` not a whole number from 0 on.
    """

    def __init__(self, delay: Duration | None = None, *, done: int = 0, reason: object = None) -> None:
        super().__init__(reason if reason is not None else "the handler asked for a retry")
        check_number("done", done, 0, 2**31 - 1)
        self.done = done
        self.delay_seconds = None if delay is None else milliseconds("delay", delay, zero=True) / 1000

    @property
    def delay_level(self) -> int:
        """The broker's delay level."""
        if self.delay_seconds is None:
            return BROKER_CHOOSES
        for level, seconds in enumerate(LEVEL_SECONDS, 1):
            if seconds >= self.delay_seconds:
                return level
        return len(LEVEL_SECONDS)


class Reject(Exception):  # noqa: N818 - as Retry
    """The message can never be consumed. It becomes a dead letter at once, or is left behind by a broadcasting consumer."""
