"""Answers requests that wait too long while the threads that should handle them are held up.

Answers to Apache's BrokerFastFailure and to its rejectRequest. Without it a disk that hangs would leave every sender to its
timeout; so they hear within milliseconds that they had better try another broker. One-way requests cannot be told, and
nobody repeats them: they stay in the queue, and its limits slow their senders down.
"""

from collections.abc import Callable
from typing import NamedTuple

from rocketd.broker import problems
from rocketd.broker.processors.end_transaction import EndTransactionProcessor
from rocketd.broker.settings import BrokerConfig
from rocketd.remoting.command import cannot_be_refused
from rocketd.remoting.dispatch import Dispatcher
from rocketd.remoting.errors import RequestError
from rocketd.remoting.pools import Job, Pool
from rocketd.store.message_store import MessageStore

CHECK_SECONDS = 0.02


def send_too_old(settings: BrokerConfig, period: int, queued: int, slowest_step: str) -> RequestError:
    """Refuse a send that has waited for so many ms, with so many requests in its pool. Any thread."""
    return problems.SEND_QUEUE_TOO_OLD.error(
        period=period, queued=queued, cause=slowest_step, limit=settings.wait_time_mills_in_send_queue
    )


class _Limit(NamedTuple):
    """How long requests of a pool may wait, and what those that waited longer are told; ``wanted`` says which jobs."""

    pool: Pool
    limit_ms: Callable[[], int]
    error: Callable[[int, int], RequestError]
    wanted: Callable[[Job], bool] = lambda _: True


class FastFailure:
    """Reactor thread only. `clock_ms` is that of the jobs' ``received_ms``."""

    def __init__(
        self,
        settings: BrokerConfig,
        dispatcher: Dispatcher,
        store: MessageStore,
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
            # They wait in the storage thread's queue too, and may wait longer: nobody repeats them.
            self._limit("send", lambda: settings.wait_time_mills_in_transaction_queue)._replace(
                wanted=lambda job: isinstance(job.handler, EndTransactionProcessor)
            ),
            self._limit("pull", lambda: settings.wait_time_mills_in_pull_queue),
            self._limit("heartbeat", lambda: settings.wait_time_mills_in_heartbeat_queue),
        )
        self._send.refusal = self._refusal

    def check(self) -> None:
        """Answer what has waited too long; to be called every CHECK_SECONDS."""
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
            self._dispatcher.refuse(job, error(now - job.received_ms, queued), pool.name)

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
