"""Refuses requests that wait too long while the threads of their pool are held up.

Without it, a hanging disk would leave every sender to its timeout. With it, senders learn within milliseconds to try
another broker. One-way requests get no answer and are never repeated. They stay in the queue, and its limits slow their
senders down.

Counterpart: `BrokerFastFailure`, `rejectRequest` (Apache).
"""

from collections.abc import Callable
from typing import NamedTuple

from rocketd.broker.base import problems
from rocketd.broker.base.settings import BrokerConfig
from rocketd.broker.send.answers import send_too_old
from rocketd.broker.transaction.processor import EndTransactionProcessor
from rocketd.remoting.errors import RequestError
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.serving.pools import Job, Pool
from rocketd.remoting.wire.command import cannot_be_refused
from rocketd.store.interfaces import IMessageStore

CHECK_SECONDS = 0.02


class _Limit(NamedTuple):
    """The time limit of a pool's requests, and the error for those beyond it. ``wanted`` selects the jobs."""

    pool: Pool
    limit_ms: Callable[[], int]
    error: Callable[[int, int], RequestError]
    wanted: Callable[[Job], bool] = lambda _: True


class FastFailure:
    """Checks the pools. Reactor thread only. ``clock_ms`` is the clock of the jobs' ``received_ms``."""

    def __init__(
        self,
        settings: BrokerConfig,
        dispatcher: Dispatcher,
        store: IMessageStore,
        clock_ms: Callable[[], int],
        slowest_recent_step: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._dispatcher = dispatcher
        self._store = store
        self._clock_ms = clock_ms
        self._slowest_recent_step = slowest_recent_step
        self._send = dispatcher.pool("send")
        self._limits = (
            _Limit(
                self._send,
                lambda: settings.wait_time_mills_in_send_queue,
                self._send_too_old,
                lambda job: not isinstance(job.handler, EndTransactionProcessor),
            ),
            # These wait in the storage thread's queue too. They may wait longer, because they are not repeated.
            self._limit("send", lambda: settings.wait_time_mills_in_transaction_queue)._replace(
                wanted=lambda job: isinstance(job.handler, EndTransactionProcessor)
            ),
            self._limit("pull", lambda: settings.wait_time_mills_in_pull_queue),
            self._limit("heartbeat", lambda: settings.wait_time_mills_in_heartbeat_queue),
        )
        self._send.refusal = self._refusal

    def check(self) -> None:
        """Refuse the requests that waited too long. Call it every CHECK_SECONDS."""
        if not self._settings.broker_fast_failure_enable:
            return
        now = self._clock_ms()
        if self._send.queued_requests and self._store.is_os_page_cache_busy():
            self._answer(self._send, now + 1, self._store_busy_in_queue)
        for pool, limit_ms, error, wanted in self._limits:
            limit = limit_ms()
            if pool.head_wait_ms(now) > limit:
                self._answer(pool, now - limit, error, wanted)

    def _answer(
        self,
        pool: Pool,
        received_before_ms: int,
        error: Callable[[int, int], RequestError],
        wanted: Callable[[Job], bool] = lambda _: True,
    ) -> None:
        now = self._clock_ms()
        queued = pool.queued_requests
        for job in pool.take_waiting(received_before_ms, wanted, cannot_be_refused):
            self._dispatcher.answers.refuse(job, error(now - job.received_ms, queued), pool.name)

    def _refusal(self) -> RequestError | None:
        if not self._store.is_os_page_cache_busy():
            return None
        return problems.STORE_BUSY.error(append=int(self._store.append_lock_ms()))

    def _store_busy_in_queue(self, period: int, queued: int) -> RequestError:
        append = int(self._store.append_lock_ms())
        return problems.STORE_BUSY_IN_QUEUE.error(period=period, queued=queued, append=append)

    def _send_too_old(self, period: int, queued: int) -> RequestError:
        return send_too_old(self._settings, period, queued, self._slowest_recent_step())

    def _limit(self, name: str, limit_ms: Callable[[], int]) -> _Limit:
        def error(period: int, queued: int) -> RequestError:
            return problems.QUEUE_TOO_OLD.error(period=period, queued=queued, limit=limit_ms(), pool=name)

        return _Limit(self._dispatcher.pool(name), limit_ms, error)
