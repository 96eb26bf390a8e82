"""The delay levels and their durations.

Pure values.

Counterpart: `ScheduleMessageService.parseDelayLevel`, `ScheduleMessageService.computeDeliverTimestamp` (Apache).
"""

from rocketd.common.settings.declaration import ConfigError

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class DelayLevels:
    """The levels of ``messageDelayLevel``, for example ``1s 5s 10s``; level 1 is the first."""

    def __init__(self, text: str) -> None:
        """Parse the levels. Raises ConfigError with the part that is not a duration."""
        self.delays_ms: list[int] = []
        for word in text.split():
            number, unit = word[:-1], _UNIT_MS.get(word[-1])
            if unit is None or not number.isdecimal():
                raise ConfigError(
                    f"messageDelayLevel = {text}: {word!r} is not a time; write a number and s, m, h or d"
                )
            self.delays_ms.append(int(number) * unit)
        if not self.delays_ms:
            raise ConfigError("messageDelayLevel is empty; write at least one time such as 1s")

    @property
    def highest(self) -> int:
        """The last level. Higher ones are treated as this one."""
        return len(self.delays_ms)

    def deliver_ms(self, level: int, store_ms: int) -> int:
        """Return the due time of a message of this level, stored at ``store_ms``. Both are Unix milliseconds."""
        return store_ms + (self.delays_ms[level - 1] if 0 < level <= self.highest else 1_000)
