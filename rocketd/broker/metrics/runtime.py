"""The values of brokerStatus as metrics.

Counterpart: `collectBrokerRuntimeStats` of Apache's exporter, with its names and labels.
"""

import re
from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from rocketd.broker.admin.parts import AdminParts
from rocketd.broker.admin.runtime_info import RuntimeInfo
from rocketd.metrics.families import Families

PREFIX = "rocketmq_brokeruntime_"

LABELS = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")

FIGURES = {
    "msgPutTotalTodayNow": "msg_put_total_today_now",
    "msgPutTotalTodayMorning": "msg_puttotal_todaymorning",
    "msgPutTotalYesterdayMorning": "msg_puttotal_yesterdaymorning",
    "msgGetTotalTodayNow": "msg_gettotal_today_now",
    "msgGetTotalTodayMorning": "msg_gettotal_todaymorning",
    "msgGetTotalYesterdayMorning": "msg_gettotal_yesterdaymorning",
    "putMessageTimesTotal": "putmessage_times_total",
    "putMessageSizeTotal": "put_message_size_total",
    "putMessageAverageSize": "put_message_average_size",
    "putMessageEntireTimeMax": "putmessage_entire_time_max",
    "getMessageEntireTimeMax": "getmessage_entire_time_max",
    "putLatency99": "put_latency_99",
    "putLatency999": "put_latency_999",
    "dispatchBehindBytes": "dispatch_behind_bytes",
    "dispatchMaxBuffer": "dispatch_maxbuffer",
    "commitLogMinOffset": "commitlog_minoffset",
    "commitLogMaxOffset": "commitlog_maxoffset",
    "commitLogDiskRatio": "commitlog_disk_ratio",
    "consumeQueueDiskRatio": "consumequeue_disk_ratio",
    "pageCacheLockTimeMills": "pagecache_lock_time_mills",
    "earliestMessageTimeStamp": "earliest_message_timestamp",
    "startAcceptSendRequestTimeStamp": "start_accept_sendrequest_time",
    "remainTransientStoreBufferNumbs": "remain_transientstore_buffer_numbs",
    "sendThreadPoolQueueSize": "send_threadpool_queue_size",
    "sendThreadPoolQueueCapacity": "send_threadpoolqueue_capacity",
    "sendThreadPoolQueueHeadWaitTimeMills": "send_threadpoolqueue_headwait_timemills",
    "pullThreadPoolQueueSize": "pull_threadpoolqueue_size",
    "pullThreadPoolQueueCapacity": "pull_threadpoolqueue_capacity",
    "pullThreadPoolQueueHeadWaitTimeMills": "pull_threadpoolqueue_headwait_timemills",
    "queryThreadPoolQueueSize": "query_threadpoolqueue_size",
    "queryThreadPoolQueueCapacity": "query_threadpool_queue_capacity",
    "queryThreadPoolQueueHeadWaitTimeMills": "query_threadpoolqueue_headwait_timemills",
}
"""The key of a value in brokerStatus, and its name in the exporter."""

RATES = {
    "putTps": "put_tps",
    "getFoundTps": "getfound_tps",
    "getMissTps": "getmiss_tps",
    "getTotalTps": "gettotal_tps",
    "getTransferedTps": "gettransfered_tps",
}
"""Rates over three spans, separated by blanks. The name is followed by the span in seconds."""

SPANS = ("10", "60", "600")

DURATIONS = {
    "<=0ms": "0ms",
    "0~10ms": "0to10ms",
    "10~50ms": "10to50ms",
    "50~100ms": "50to100ms",
    "100~200ms": "100to200ms",
    "200~500ms": "200to500ms",
    "500ms~1s": "500to1s",
    "1~2s": "1to2s",
    "2~3s": "2to3s",
    "3~4s": "3to4s",
    "4~5s": "4to5s",
    "5~10s": "5to10s",
    "10s~": "10stomore",
}
"""The classes of the durations of puts in the last full minute."""

_CLASS = re.compile(r"\[([^\]]+)\]:(\d+)")


class RuntimeMetrics:
    """The values of brokerStatus. Any thread."""

    def __init__(self, broker: AdminParts, info: RuntimeInfo) -> None:
        self._broker = broker
        self._info = info

    def metrics(self, families: Families) -> Iterator[Metric]:
        """See MetricSource."""
        table = self._info.table()
        broker = self._broker
        labels = (
            broker.settings.broker.broker_cluster_name,
            broker.address,
            broker.settings.broker.broker_name,
            table["brokerVersionDesc"],
            table["bootTimestamp"],
            table["brokerVersion"],
        )
        for key, name, text in figures(table):
            yield families.gauge(PREFIX + name, f"{key} of brokerStatus.", LABELS, [(labels, float(text))])


def figures(table: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield key, name and text of each value in the table of brokerStatus."""
    for key, name in FIGURES.items():
        if key in table:
            yield key, name, table[key]
    for key, name in RATES.items():
        for span, text in zip(SPANS, table.get(key, "").split(), strict=False):
            yield key, name + span, text
    for found in _CLASS.finditer(table.get("putMessageDistributeTime", "")):
        if found[1] in DURATIONS:
            yield "putMessageDistributeTime", f"pmdt_{DURATIONS[found[1]]}", found[2]
