"""Messages stored and read: in total, per second and since midnight; sans-io.

Sampling and texts are Apache's. The store counts puts; reads and durations are counted here. Nothing is estimated: a
span not yet observed has no rate.

Counterpart: `StoreStatsService`, `BrokerStats` (Apache).
"""

from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from twisted.logger import Logger

from rocketd.broker.stats.put_times import PutTimes
from rocketd.common.event_loop.loop_lag import LagHistogram

SAMPLE_SECONDS = 1.0
SPANS = (10, 60, 600)
"""The spans of rates in seconds."""


class Sample(NamedTuple):
    """The totals at one time, in monotonic milliseconds."""

    time_ms: int
    put: int
    found: int
    missed: int
    transferred: int


class StoreStats:
    """The counters of reads, and samples of all totals.

    The counters and ``get_took`` belong to the pull pool's thread, ``sample`` to one thread, the rest to any.
    ``now_ms`` returns Unix milliseconds, used for midnight only, ``clock_ms`` monotonic ones. ``total_put`` returns the
    number of messages stored since the start.
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
        self.get_times = LagHistogram()
        """Durations of reads."""
        self.puts_took = self._put_times.count
        """Called with (puts completed at once, milliseconds). Any thread."""

    def get_took(self, took_ms: int) -> None:
        """Record the duration of one read of a queue in milliseconds."""
        if took_ms > self._max_get_ms:
            self._max_get_ms = took_ms

    def sample(self) -> None:
        """Record the totals.

        Call it every SAMPLE_SECONDS. The first call after midnight also records the start of the day.
        """
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
        """Return rates and totals with Apache's keys. The morning's totals are 0 until the first midnight."""
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
        """Return the rate per second over each span, separated by blanks; ``unknown`` for a span not yet observed."""
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
    """Return the beginning of the next day in this machine's time zone."""
    today = datetime.fromtimestamp(now_ms / 1000).replace(hour=0, minute=0, second=0, microsecond=0)
    return int((today + timedelta(days=1)).timestamp() * 1000)
