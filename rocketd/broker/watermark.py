"""A line a minute about what waits: requests in each pool, and records that are not dispatched yet.

Counterpart: `printWaterMark` and the dispatch-behind task of `BrokerController` (Apache).
"""

from collections.abc import Callable, Mapping

from twisted.logger import Logger

from rocketd.remoting.pools import Pool

SECONDS = 60.0


class WaterMarks:
    """Logs the figures. Reactor thread. ``clock_ms`` is the clock of the jobs' ``received_ms``."""

    _log = Logger()

    def __init__(
        self, pools: Callable[[], Mapping[str, Pool]], behind_bytes: Callable[[], int], clock_ms: Callable[[], int]
    ) -> None:
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
            "requests that wait: {waiting}; dispatch is {behind} bytes behind the log",
            waiting=waiting,
            behind=self._behind_bytes(),
        )
