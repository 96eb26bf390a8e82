"""The time at which a stored message may be acknowledged: at once, on disk, on a slave, or both.

Flush and replication run side by side. If both fail, the answer names the slave's failure.

Counterpart: `CommitLog.submitFlushRequest`, `CommitLog.submitReplicaRequest` (Apache).
"""

import threading

from twisted.logger import Logger

from rocketd.broker.send.parts import SendParts
from rocketd.common.logs.throttle import LogThrottle, ThrottledLog
from rocketd.store.format.message import PutStatus
from rocketd.store.log.flush import FlushCallback
from rocketd.store.message_store import SLOW_PUT_MS

LOG_SECONDS = 1.0
"""The interval of log lines about slow puts: with a slow disk or slave, every put is slow."""


class Durability:
    """Waits for flush and replication as ``flushDiskType`` and ``brokerRole`` require, for messages with WAIT set."""

    _log = Logger()

    def __init__(self, broker: SendParts) -> None:
        self._broker = broker
        store = broker.settings.store
        self._sync_flush: bool = store.flush_disk_type == "SYNC_FLUSH"
        self._sync_replica: bool = store.broker_role == "SYNC_MASTER"
        self._slow = ThrottledLog(self._log, LogThrottle(lambda: broker.clock_ms() / 1000, interval=LOG_SECONDS))

    @property
    def needed(self) -> bool:
        """Whether acknowledgements have to wait for a flush or a slave. Any thread."""
        return self._sync_flush or self._sync_replica

    def when_safe(self, end_offset: int, callback: FlushCallback, puts: int = 1) -> None:
        """Call back once: with PUT_OK when the log is durable up to ``end_offset``, otherwise with the failure.

        Storage thread, right after the append of ``puts`` messages; their time is measured. The callback runs in the
        storage, flush or reactor thread.
        """
        callback = self._measured(callback, puts)
        if self._sync_flush and self._sync_replica:
            both = _Both(callback)
            self._broker.store.when_flushed(end_offset, both.flushed)
            self._broker.replication.when_replicated(end_offset, both.replicated)
        elif self._sync_flush:
            self._broker.store.when_flushed(end_offset, callback)
        else:
            self._broker.replication.when_replicated(end_offset, callback)

    def _measured(self, callback: FlushCallback, puts: int) -> FlushCallback:
        """Wrap a callback so that the statistics get the duration of the puts, measured from the start of their append."""
        broker = self._broker
        append_ms = broker.store.last_append_ms
        began_ms = broker.clock_ms() - append_ms

        def measured(status: PutStatus) -> None:
            took_ms = broker.clock_ms() - began_ms
            broker.stats.puts_took(puts, took_ms)
            if took_ms > SLOW_PUT_MS:
                self._complain(took_ms, append_ms, status)
            callback(status)

        return measured

    def _complain(self, took_ms: float, append_ms: float, status: PutStatus) -> None:
        waits = [text for text, is_on in (("flush", self._sync_flush), ("replication", self._sync_replica)) if is_on]
        self._slow.warn(
            "slow put",
            "a put took {took} ms, more than {limit}, {append} of them in the append, the rest until its {what}: {status}",
            took=int(took_ms),
            limit=SLOW_PUT_MS,
            append=int(append_ms),
            what=" and ".join(waits),
            status=status.value,
        )


class _Both:
    """Combines the flush and replication statuses, which arrive from two threads."""

    def __init__(self, callback: FlushCallback) -> None:
        self._callback = callback
        self._guard = threading.Lock()
        self._flush: PutStatus | None = None
        self._replica: PutStatus | None = None

    def flushed(self, status: PutStatus) -> None:
        with self._guard:
            self._flush = status
            replica = self._replica
        if replica is not None:
            self._answer(status, replica)

    def replicated(self, status: PutStatus) -> None:
        with self._guard:
            self._replica = status
            flush = self._flush
        if flush is not None:
            self._answer(flush, status)

    def _answer(self, flush: PutStatus, replica: PutStatus) -> None:
        self._callback(flush if replica is PutStatus.PUT_OK else replica)
