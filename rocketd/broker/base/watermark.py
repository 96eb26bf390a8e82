"""Logs the backlog every minute: requests waiting in each pool, bytes not yet dispatched, and how late event loops are.

Counterpart: `printWaterMark`, and the dispatch-behind task of `BrokerController` (Apache).
"""

from collections.abc import Callable, Mapping

from twisted.logger import Logger

from rocketd.common.event_loop.loop_lag import LagHistogram
from rocketd.remoting.serving.pools import Pool

SECONDS = 60.0


class WaterMarks:
    """Logs the values. Reactor thread. ``clock_ms`` is the clock of the jobs' ``received_ms``."""

    _log = Logger()

    def __init__(
        self,
        pools: Callable[[], Mapping[str, Pool]],
        behind_bytes: Callable[[], int],
        clock_ms: Callable[[], int],
        lags: Callable[[], Mapping[str, LagHistogram]] = dict,
    ) -> None:
        self._lags = lags
        self._pools = pools
        self._behind_bytes = behind_bytes
        self._clock_ms = clock_ms

    def log(self) -> None:
        """Write one line."""
        now = self._clock_ms()
        waiting = ", ".join(
            f"{name} {pool.queued_requests} (oldest {pool.head_wait_ms(now)} ms)"
            for name, pool in self._pools().items()
        )
        self._log.info(
            "requests that wait: {waiting}; dispatch is {behind} bytes behind the log{late}",
            waiting=waiting,
            behind=self._behind_bytes(),
            late=self._late(),
        )

    def _late(self) -> str:
        lags = self._lags()
        for lag in lags.values():
            lag.roll()
        late = ", ".join(f"{name} {lag.summary()}" for name, lag in lags.items())
        return f"; event loops were late by: {late}" if late else ""
