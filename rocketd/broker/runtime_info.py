"""What a broker tells of its state: the table that mqadmin brokerStatus and dashboards show.

Answers to AdminBrokerProcessor.prepareRuntimeInfo and the parts of the store that add to it, with Apache's keys and
formats. What is not measured here is left out, not invented. Apache's broker tells nothing of replication: its keys are
ours, and begin with ``ha``. Those of messages with times of their own, once there are some, begin with ``timer`` as in 5.x.
"""

import shutil
from typing import Any

from rocketd.broker.processors.end_transaction import EndTransactionProcessor
from rocketd.broker.store_stats import StoreStats
from rocketd.remoting.codes import CURRENT_VERSION
from rocketd.store.log_paths import named_paths
from rocketd.store.record import store_timestamp_of

VERSION_DESCRIPTION = "V4_9_7"

NO_POOL = str(2**31 - 1)
"""Free buffers of a transient store pool that is off."""

_POOLS = ("send", "pull", "query")


class RuntimeInfo:
    """Describes one broker, from its making on. May be used from any thread."""

    def __init__(self, broker: Any) -> None:
        """``broker`` is an IBroker."""
        self._broker = broker
        self._boot_ms: int = broker.now_ms()
        self._began_ms: int = broker.clock_ms()

    def table(self) -> dict[str, str]:
        """Measure now; all values are text."""
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
        return table

    def _of_store(self) -> dict[str, str]:
        store = self._broker.store
        first, end = store.min_physical_offset(), store.max_physical_offset()
        record = store.look_message(first) if 0 <= first < end else None
        return {
            # As Apache's, which never says 0 here.
            "putMessageTimesTotal": str(max(1, store.messages_put)),
            "putMessageSizeTotal": str(store.bytes_put),
            "putMessageAverageSize": str(store.bytes_put / max(1, store.messages_put)),
            "putMessageFailedTimes": str(store.puts_failed),
            "commitLogMinOffset": str(first),
            "commitLogMaxOffset": str(end),
            "dispatchBehindBytes": str(store.dispatch_behind_bytes()),
            "pageCacheLockTimeMills": str(int(store.append_lock_ms())),
            # Nothing is buffered before the dispatch, and there is no pool of buffers to write from.
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
    """Write the used part of a disk as Apache's UtilAll does: in whole percents, rounded up, ``0.27``."""
    percents = -(-used * 100 // (used + available))
    return str(percents / 100)


def bytes_text(count: int) -> str:
    """Write a number of bytes in units of 1024, as Apache's MixAll does: ``512 B``, ``8.4 KiB``."""
    if count < 1024:
        return f"{count} B"
    exponent = (count.bit_length() - 1) // 10
    return f"{count / 1024**exponent:.1f} {'KMGTPE'[exponent - 1]}iB"


def duration_text(milliseconds: int) -> str:
    """Write a span of time as Apache's statistics do, with their odd blanks."""
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
