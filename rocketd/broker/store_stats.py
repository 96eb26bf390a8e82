"""How much is stored and read, in total, a second and since midnight; sans-io.

Answers to StoreStatsService, its sampling and texts, and to BrokerStats. What goes in is counted by the store, what goes out
here, and how long either takes; nothing is estimated, so a span of time that was not watched yet has no rate.
"""

from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from twisted.logger import Logger

from rocketd.broker.stats.put_times import PutTimes

SAMPLE_SECONDS = 1.0
SPANS = (10, 60, 600)
"""Seconds over which rates are told."""


class Sample(NamedTuple):
    """The totals at one time, in monotonic milliseconds."""

    time_ms: int
    put: int
    found: int
    missed: int
    transferred: int


class StoreStats:
    """The counters of reads, and samples of all totals.

    The counters and ``get_took`` belong to the thread of the pull pool, ``sample`` to one thread, the rest to any.
    ``now_ms`` tells Unix milliseconds, for midnight alone, ``clock_ms`` monotonic ones. ``total_put`` tells how many
    messages were stored since the start.
    """

    _log = Logger()

    def __init__(self, now_ms: Callable[[], int], clock_ms: Callable[[], int], total_put: Callable[[], int]) -> None:
        self.found = 0
        self.missed = 0
        self.transferred = 0
        self._now_ms = now_ms
        self._clock_ms = clock_ms
        self._total_put = total_put
        self._samples: deque[Sample] = deque(maxlen=max(SPANS) + 1)
        self._midnight_ms = _next_midnight_ms(now_ms())
        self._this_morning = self._yesterday_morning = (0, 0)
        self._put_times = PutTimes(clock_ms)
        self._max_get_ms = 0
        self.puts_took = self._put_times.count
        """Told how many puts have ended at once, and how many milliseconds they took. Any thread."""

    def get_took(self, took_ms: int) -> None:
        """Note how many milliseconds one look into a queue took."""
        if took_ms > self._max_get_ms:
            self._max_get_ms = took_ms

    def sample(self) -> None:
        """Note the totals, once every SAMPLE_SECONDS; the first time after midnight, the day's beginning as well."""
        now = self._now_ms()
        latest = Sample(self._clock_ms(), self._total_put(), self.found, self.missed, self.transferred)
        self._samples.append(latest)
        if now >= self._midnight_ms:
            self._midnight_ms = _next_midnight_ms(now)
            self._yesterday_morning = self._this_morning
            self._this_morning = (latest.put, latest.transferred)
            self._log.info(
                "yesterday {put} messages were stored and {got} read",
                put=latest.put - self._yesterday_morning[0],
                got=latest.transferred - self._yesterday_morning[1],
            )
        self._put_times.sample()

    def table(self) -> dict[str, str]:
        """Write rates and totals with Apache's keys. The morning's totals are 0 until the first midnight."""
        put, transferred = self._total_put(), self.transferred
        this_morning, yesterday_morning = self._this_morning, self._yesterday_morning
        return self._put_times.table() | {
            "getMessageEntireTimeMax": str(self._max_get_ms),
            "putTps": self._rates(lambda sample: sample.put),
            "getFoundTps": self._rates(lambda sample: sample.found),
            "getMissTps": self._rates(lambda sample: sample.missed),
            "getTotalTps": self._rates(lambda sample: sample.found + sample.missed, unknown="0.0"),
            "getTransferedTps": self._rates(lambda sample: sample.transferred),
            "msgPutTotalYesterdayMorning": str(yesterday_morning[0]),
            "msgPutTotalTodayMorning": str(this_morning[0]),
            "msgPutTotalTodayNow": str(put),
            "msgGetTotalYesterdayMorning": str(yesterday_morning[1]),
            "msgGetTotalTodayMorning": str(this_morning[1]),
            "msgGetTotalTodayNow": str(transferred),
        }

    def _rates(self, total: Callable[[Sample], int], unknown: str = "") -> str:
        """Write what came in a second over each span, with a blank between; ``unknown`` for a span not yet watched."""
        samples = self._samples
        texts = []
        for seconds in SPANS:
            text = unknown
            if len(samples) > seconds:
                first, last = samples[-1 - seconds], samples[-1]
                if last.time_ms > first.time_ms:
                    text = str((total(last) - total(first)) / (last.time_ms - first.time_ms) * 1000)
            texts.append(text)
        return " ".join(texts)


def _next_midnight_ms(now_ms: int) -> int:
    """Return when the next day begins, by this machine's time zone."""
    today = datetime.fromtimestamp(now_ms / 1000).replace(hour=0, minute=0, second=0, microsecond=0)
    return int((today + timedelta(days=1)).timestamp() * 1000)
