"""How far consumer groups are behind, in messages and in time.

Counterpart: `collectConsumerOffset` and `collectTopicOffset` of Apache's exporter, with their names and labels. There, the
labels `countOfOnlineConsumers` and `msgModel` are part of `rocketmq_group_diff`, so they are here.

The lag counts all messages of a queue, as Apache's does. `rocketd lag` counts those that a group wants.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client.metrics_core import Metric

from rocketd.broker.admin.parts import AdminParts
from rocketd.broker.metrics.traffic import GROUP_LABELS, TOPIC_LABELS
from rocketd.broker.tables.offsets import SEPARATOR
from rocketd.common.names import DLQ_PREFIX, RETRY_PREFIX
from rocketd.metrics.families import Families
from rocketd.remoting.bodies.tables import MessageModel

DIFF_LABELS = ("group", "topic", "countOfOnlineConsumers", "msgModel")

_MODELS = tuple(MessageModel)

LOOKUPS = 1000
"""How many messages a measurement looks up for their age. Each may have to come from a disk."""


class _Lag(NamedTuple):
    """One group in one topic: messages behind, age in ms of the oldest of them, and the sum of its offsets."""

    topic: str
    group: str
    behind: int
    age_ms: int
    committed: int
    members: int
    model: str


class GroupMetrics:
    """Offsets of topics, and lag of groups. Any thread."""

    def __init__(self, broker: AdminParts) -> None:
        self._broker = broker
        self._stored: dict[tuple[str, int, int], int] = {}
        """Store times in ms of the messages that groups have to consume next, by topic, queue and offset."""

    def metrics(self, families: Families) -> Iterator[Metric]:
        """See MetricSource."""
        settings = self._broker.settings.broker
        cluster, name = settings.broker_cluster_name, settings.broker_name
        ends: dict[str, int] = defaultdict(int)
        for topic, queue_id in self._broker.store.queue_keys():
            ends[topic] += self._broker.store.get_max_offset(topic, queue_id)
        plain = [(topic, end) for topic, end in ends.items() if not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))]
        yield families.gauge(
            "rocketmq_producer_offset",
            "Sum of the end offsets of a topic's queues.",
            TOPIC_LABELS,
            [((cluster, name, topic), end) for topic, end in plain],
        )
        for metric, prefix, text in (
            ("rocketmq_topic_retry_offset", RETRY_PREFIX, "Sum of the end offsets of a group's retry topic."),
            ("rocketmq_topic_dlq_offset", DLQ_PREFIX, "Dead letters of a group so far: the end offset of their topic."),
        ):
            series = [
                ((cluster, name, topic[len(prefix) :]), end) for topic, end in ends.items() if topic.startswith(prefix)
            ]
            yield families.gauge(metric, text, ("cluster", "broker", "group"), series)
        yield from self._of_groups(families, cluster, name)

    def _of_groups(self, families: Families, cluster: str, name: str) -> Iterator[Metric]:
        lags = list(self._lags())
        yield families.gauge(
            "rocketmq_consumer_offset",
            "Sum of the offsets that a group has committed in a topic.",
            GROUP_LABELS,
            [((cluster, name, lag.topic, lag.group), lag.committed) for lag in lags],
        )
        for metric, text, retries in (
            ("rocketmq_group_diff", "Messages that a group has not consumed.", False),
            ("rocketmq_group_retrydiff", "Messages that wait for another delivery to a group.", True),
        ):
            yield families.gauge(
                metric,
                text,
                DIFF_LABELS,
                [
                    ((lag.group, lag.topic, str(lag.members), lag.model), lag.behind)
                    for lag in lags
                    if lag.topic.startswith(RETRY_PREFIX) == retries
                ],
            )
        yield families.gauge(
            "rocketmq_group_get_latency_by_storetime",
            "Age in milliseconds of the oldest message that a group has not consumed, 0 without one.",
            GROUP_LABELS,
            [((cluster, name, lag.topic, lag.group), lag.age_ms) for lag in lags],
        )
        problems = self._broker.group_guard.counts
        yield families.counter(
            "rocketd_group_problems",
            "Problems found in consumer groups since the start.",
            ("kind",),
            [((str(kind),), count) for kind, count in dict(problems).items()],
        )

    def _lags(self) -> Iterator[_Lag]:
        broker = self._broker
        now_ms = broker.now_ms()
        before, self._stored = self._stored, {}
        left = LOOKUPS
        for key, committed in broker.offsets.snapshot().offset_table.items():
            topic, _, group = key.partition(SEPARATOR)
            behind = age_ms = 0
            for queue_id, offset in committed.items():
                end = broker.store.get_max_offset(topic, queue_id)
                begin = max(offset, broker.store.get_min_offset(topic, queue_id))
                if end > offset:
                    behind += end - offset
                if end > begin:
                    place = (topic, queue_id, begin)
                    stored_ms = self._stored.get(place, before.get(place))
                    if stored_ms is None and left:
                        left -= 1
                        stored_ms = broker.store.get_store_time(topic, queue_id, begin)
                    if stored_ms is not None and stored_ms > 0:
                        self._stored[place] = stored_ms
                        age_ms = max(age_ms, now_ms - stored_ms)
            info = broker.consumers.find(group)
            model = MessageModel.CLUSTERING if info is None or info.message_model is None else info.message_model
            members = 0 if info is None else len(info.client_ids())
            yield _Lag(topic, group, behind, age_ms, sum(committed.values()), members, str(_MODELS.index(model)))
