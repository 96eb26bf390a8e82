"""The state of a broker: the table shown by mqadmin brokerStatus and dashboards.

Keys and formats are Apache's. Values that are not measured here are left out, not invented. Additional keys:

- ``ha…``: replication, on which Apache's broker reports nothing.
- ``timer…``: timed messages, as in 5.x, once there are some.
- ``limit…``: limits that were reached, and lost one-way requests.

Counterpart: `AdminBrokerProcessor.prepareRuntimeInfo`, and the store's additions to it (Apache).
"""

import shutil

from rocketd.broker.admin.parts import AdminParts
from rocketd.broker.stats.store_stats import StoreStats
from rocketd.broker.transaction.processor import EndTransactionProcessor
from rocketd.remoting.wire.codes import CURRENT_VERSION
from rocketd.store.format.record import store_timestamp_of
from rocketd.store.log.log_paths import named_paths

VERSION_DESCRIPTION = "V4_9_7"

NO_POOL = str(2**31 - 1)
"""The free buffers of a transient store pool that is off."""

_POOLS = ("send", "pull", "query")


class RuntimeInfo:
    """Describes one broker since the creation of this object. Any thread."""

    def __init__(self, broker: AdminParts) -> None:
        self._broker = broker
        self._boot_ms: int = broker.now_ms()
        self._began_ms: int = broker.clock_ms()

    def table(self) -> dict[str, str]:
        """Measure now. All values are text."""
        delays = {
            f"scheduleMessageOffset_{level}": f"{delivered},{end}"
            for level, delivered, end in self._broker.schedule.progress()
        }
        stats: StoreStats = self._broker.stats
        others: dict[str, str] = self._broker.replication.table() | self._broker.timers.table()
        return self._of_broker() | stats.table() | self._of_store() | self._of_disk() | delays | others

    def _of_broker(self) -> dict[str, str]:
        broker = self._broker
        settings = broker.settings.broker
        table = {
            "brokerVersionDesc": VERSION_DESCRIPTION,
            "brokerVersion": str(CURRENT_VERSION),
            "bootTimestamp": str(self._boot_ms),
            "runtime": duration_text(broker.clock_ms() - self._began_ms),
            "startAcceptSendRequestTimeStamp": str(settings.start_accept_send_request_time_stamp),
        }
        for name in _POOLS:
            pool = broker.dispatcher.pool(name)
            table[f"{name}ThreadPoolQueueSize"] = str(pool.queued_requests)
            table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = str(pool.head_wait_ms(broker.clock_ms()))
            table[f"{name}ThreadPoolQueueCapacity"] = str(getattr(settings, f"{name}_thread_pool_queue_capacity"))
        # They wait with the sends.
        ends = broker.dispatcher.pool("send").waiting_requests(EndTransactionProcessor)
        table["EndTransactionQueueSize"] = str(ends)
        table["EndTransactionThreadPoolQueueCapacity"] = str(settings.end_transaction_pool_queue_capacity)
        refused = broker.dispatcher.refused_by_address()
        table |= {counter: str(count) for counter, count in refused.items() if count}
        limits: dict[str, str] = broker.dispatcher.limits.table()
        return table | limits

    def _of_store(self) -> dict[str, str]:
        store = self._broker.store
        first, end = store.min_physical_offset(), store.max_physical_offset()
        record = store.look_message(first) if 0 <= first < end else None
        return {
            # As in Apache's broker, which never reports 0 here.
            "putMessageTimesTotal": str(max(1, store.messages_put)),
            "putMessageSizeTotal": str(store.bytes_put),
            "putMessageAverageSize": str(store.bytes_put / max(1, store.messages_put)),
            "putMessageFailedTimes": str(store.puts_failed),
            "commitLogMinOffset": str(first),
            "commitLogMaxOffset": str(end),
            "dispatchBehindBytes": str(store.dispatch_behind_bytes()),
            "pageCacheLockTimeMills": str(int(store.append_lock_ms())),
            # Nothing is buffered before the dispatch, and this broker has no transient store pool.
            "dispatchMaxBuffer": "0",
            "remainTransientStoreBufferNumbs": NO_POOL,
            "remainHowManyDataToFlush": bytes_text(end - store.flushed_offset()),
            "earliestMessageTimeStamp": str(-1 if record is None else store_timestamp_of(record)),
        }

    def _of_disk(self) -> dict[str, str]:
        settings = self._broker.settings.store
        root = settings.store_path_root_dir
        logs = named_paths(settings)
        try:
            usage = shutil.disk_usage(root)
            log_usages = [shutil.disk_usage(log) for log in logs]
        except OSError:
            return {}
        ratios = [ratio_text(log_usage.used, log_usage.free) for log_usage in log_usages]
        return {
            "commitLogDirCapacity": f"Total : {bytes_text(usage.total)}, Free : {bytes_text(usage.free)}.",
            "commitLogDiskRatio": min(ratios, key=float),
            **{f"commitLogDiskRatio_{log}": ratio for log, ratio in zip(logs, ratios, strict=True)},
            "consumeQueueDiskRatio": ratio_text(usage.used, usage.free),
        }


def ratio_text(used: int, available: int) -> str:
    """Return the used part of a disk as Apache's UtilAll does: in whole percent, rounded up, ``0.27``."""
    percents = -(-used * 100 // (used + available))
    return str(percents / 100)


def bytes_text(count: int) -> str:
    """Return a number of bytes in units of 1024, as Apache's MixAll does: ``512 B``, ``8.4 KiB``."""
    if count < 1024:
        return f"{count} B"
    exponent = (count.bit_length() - 1) // 10
    return f"{count / 1024**exponent:.1f} {'KMGTPE'[exponent - 1]}iB"


def duration_text(milliseconds: int) -> str:
    """Return a duration as Apache's statistics do, with their odd blanks."""
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
