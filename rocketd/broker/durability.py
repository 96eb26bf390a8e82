"""When a stored message may be acknowledged: at once, on the disk, at a slave, or both.

Answers to Apache's CommitLog.submitFlushRequest and submitReplicaRequest. Flush and replication run side by side; when
both go wrong, the answer tells of the slave.
"""

import threading
from typing import Any

from rocketd.store.flush import FlushCallback
from rocketd.store.message import PutStatus


class Durability:
    """What ``flushDiskType`` and ``brokerRole`` ask for before a message that wants to wait (WAIT) is acknowledged."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        store = broker.settings.store
        self._sync_flush: bool = store.flush_disk_type == "SYNC_FLUSH"
        self._sync_replica: bool = store.broker_role == "SYNC_MASTER"

    @property
    def needed(self) -> bool:
        """Whether there is anything to wait for. Any thread."""
        return self._sync_flush or self._sync_replica

    def when_safe(self, end_offset: int, callback: FlushCallback) -> None:
        """Call back once with PUT_OK when the log is safe up to an offset, else with what is missing.

        Storage thread; the callback comes from there, from the flush thread or from the reactor's.
        """
        if self._sync_flush and self._sync_replica:
            both = _Both(callback)
            self._broker.store.when_flushed(end_offset, both.flushed)
            self._broker.replication.when_replicated(end_offset, both.replicated)
        elif self._sync_flush:
            self._broker.store.when_flushed(end_offset, callback)
        else:
            self._broker.replication.when_replicated(end_offset, callback)


class _Both:
    """Waits for two statuses, which come from two threads."""

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
