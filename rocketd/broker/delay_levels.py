"""The delay levels: how long each waits.

Answers to ScheduleMessageService.parseDelayLevel and computeDeliverTimestamp. Pure values.
"""

from rocketd.common.config import ConfigError

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class DelayLevels:
    """The levels of ``messageDelayLevel``, such as ``1s 5s 10s``; level 1 is the first."""

    def __init__(self, text: str) -> None:
        """Read the levels. Raises ConfigError that names the part which is no time."""
        self.delays_ms: list[int] = []
        for word in text.split():
            number, unit = word[:-1], _UNIT_MS.get(word[-1])
            if unit is None or not number.isdecimal():
                raise ConfigError(f"messageDelayLevel = {text}: {word!r} is no time; write a number and s, m, h or d")
            self.delays_ms.append(int(number) * unit)
        if not self.delays_ms:
            raise ConfigError("messageDelayLevel is empty; write at least one time such as 1s")

    @property
    def highest(self) -> int:
        """The last level; greater ones mean this one."""
        return len(self.delays_ms)

    def deliver_ms(self, level: int, store_ms: int) -> int:
        """When a message of this level that was stored then is due; Unix milliseconds."""
        return store_ms + (self.delays_ms[level - 1] if 0 < level <= self.highest else 1_000)
