"""The log, the durations of its steps, and replication."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from rocketd.broker.admin.parts import AdminParts
from rocketd.metrics.families import Families


class StoreMetrics:
    """Counters and durations of the store, and how far slaves are behind. Any thread."""

    def __init__(self, broker: AdminParts) -> None:
        self._broker = broker

    def metrics(self, families: Families) -> Iterator[Metric]:
        """See MetricSource."""
        store, stats = self._broker.store, self._broker.stats
        for name, text, count in (
            ("rocketd_messages_stored", "Messages stored since the start.", store.messages_put),
            ("rocketd_bytes_stored", "Bytes of the log used by them.", store.bytes_put),
            ("rocketd_messages_refused", "Messages that the store refused.", store.puts_failed),
            ("rocketd_messages_read", "Messages read by consumers.", stats.transferred),
            ("rocketd_pulls_found", "Reads of a queue that found messages.", stats.found),
            ("rocketd_pulls_missed", "Reads of a queue that found none.", stats.missed),
        ):
            yield families.counter(name, text, (), [((), count)])
        for name, text, histogram in (
            ("rocketd_append_seconds", "Appends to the log, each of a group of messages.", store.append_times),
            ("rocketd_flush_seconds", "Flushes of the log.", store.flush_times),
            ("rocketd_get_seconds", "Reads of a queue.", stats.get_times),
        ):
            yield families.histogram(name, text, (), [((), histogram)])
        end = store.max_physical_offset()
        for name, text, figure in (
            ("rocketd_unflushed_bytes", "Bytes of the log that are not on disk.", end - store.flushed_offset()),
            ("rocketd_undispatched_bytes", "Bytes of the log that readers do not see.", store.dispatch_behind_bytes()),
            ("rocketd_disk_used_ratio", "Used part of the disk of the log, 0 to 1.", store.disk_ratio()),
            ("rocketd_queues", "Queues with messages.", len(store.queue_keys())),
        ):
            yield families.gauge(name, text, (), [((), figure)])
