"""A consumer's running info for administrators: options, subscriptions, queues, rates and stacks.

Counterpart: `ConsumerRunningInfo`, as filled by the consumers' Impl classes, and `ConsumerStatsManager` (Apache).
"""

import sys
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from traceback import format_stack

from rocketd.client.consumer.membership.group_member import GroupMember
from rocketd.client.consumer.options.member_options import consume_from_where, message_model
from rocketd.remoting.bodies.admin import ConsumerRunningInfo, ConsumeStatus

WINDOW_SECONDS = 60.0
"""Time span of rates and durations."""

HOUR_SECONDS = 3600.0
"""Time span of failure counts."""


class _Window:
    """Sums over the last ``span`` seconds, in slots of a sixtieth of the span."""

    def __init__(self, span: float) -> None:
        self._span = span
        self._slots: deque[list[float]] = deque()

    def add(self, now: float, number: float, time: float = 0.0) -> None:
        width = self._span / 60
        if not self._slots or now - self._slots[-1][0] >= width:
            self._slots.append([now, 0.0, 0.0])
            self._forget(now)
        self._slots[-1][1] += number
        self._slots[-1][2] += time

    def sums(self, now: float) -> tuple[float, float]:
        """Return the sum of numbers and the sum of times."""
        self._forget(now)
        return sum(slot[1] for slot in self._slots), sum(slot[2] for slot in self._slots)

    def _forget(self, now: float) -> None:
        while self._slots and now - self._slots[0][0] > self._span:
            self._slots.popleft()


class _Topic:
    def __init__(self) -> None:
        self.pulls = _Window(WINDOW_SECONDS)
        self.pulled = _Window(WINDOW_SECONDS)
        self.handled = _Window(WINDOW_SECONDS)
        self.consumed = _Window(WINDOW_SECONDS)
        self.failed = _Window(WINDOW_SECONDS)
        self.failed_hour = _Window(HOUR_SECONDS)


class ConsumeStatistics:
    """Counts by topic. Reactor thread. ``seconds`` is a clock."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._topics: defaultdict[str, _Topic] = defaultdict(_Topic)

    def pulled(self, topic: str, count: int, took_ms: float) -> None:
        """Count a pull with messages. ``took_ms`` is the time from request to answer."""
        now = self._seconds()
        self._topics[topic].pulls.add(now, 1, took_ms)
        self._topics[topic].pulled.add(now, count)

    def handled(self, topic: str, consumed: int, failed: int, took_ms: float, calls: int = 1) -> None:
        """Count calls of the handler, with the consumed messages and those to come again."""
        now, counts = self._seconds(), self._topics[topic]
        counts.handled.add(now, calls, took_ms)
        counts.consumed.add(now, consumed)
        counts.failed.add(now, failed)
        counts.failed_hour.add(now, failed)

    def status(self, topic: str) -> ConsumeStatus:
        """Return a topic's rates."""
        now, counts = self._seconds(), self._topics[topic]
        pulls, pull_ms = counts.pulls.sums(now)
        pulled, _ = counts.pulled.sums(now)
        handled, handled_ms = counts.handled.sums(now)
        consumed, _ = counts.consumed.sums(now)
        failed, _ = counts.failed.sums(now)
        return ConsumeStatus(
            pull_rt=pull_ms / pulls if pulls else 0.0,
            pull_tps=pulled / WINDOW_SECONDS,
            consume_rt=handled_ms / handled if handled else 0.0,
            consume_ok_tps=consumed / WINDOW_SECONDS,
            consume_failed_tps=failed / WINDOW_SECONDS,
            consume_failed_msgs=int(counts.failed_hour.sums(now)[0]),
        )


def running_info(
    consumer: GroupMember, stacks: bool, more: Mapping[str, str], statistics: ConsumeStatistics | None = None
) -> ConsumerRunningInfo:
    """Return the running info of ``consumer``, with ``more`` properties."""
    options = consumer.options
    wall_ms = int(consumer.instance.now_ms() - consumer.instance.clock_ms())
    offsets = {topic: consumer.offsets.clone(topic) for topic in consumer.subscriptions}
    properties = {
        "PROP_NAMESERVER_ADDR": ";".join(consumer.instance.remoting.name_servers.addresses),
        "PROP_CONSUME_TYPE": consumer.consume_type.value,
        "PROP_CLIENT_VERSION": "V4_9_7",
        "PROP_CONSUMER_START_TIMESTAMP": str(consumer.started_ms),
        "consumerGroup": consumer.group,
        "consumeFromWhere": consume_from_where(options).value,
        "messageModel": message_model(options).value,
        "clientLanguage": "PYTHON",
        "pullBatchSize": str(options.pull_batch),
        "pullThresholdForQueue": str(options.limits.messages),
        "pullThresholdSizeForQueue": str(options.limits.size_mib),
        **more,
    }
    return ConsumerRunningInfo(
        properties=properties,
        subscription_set=sorted(consumer.subscriptions.values(), key=lambda subscription: subscription.topic),
        mq_table={
            queue: assigned.held.info(offsets.get(queue.topic, {}).get(queue, 0), wall_ms)
            for queue, assigned in sorted(consumer.assigned.items())
        },
        status_table=(
            {} if statistics is None else {topic: statistics.status(topic) for topic in sorted(consumer.subscriptions)}
        ),
        jstack=_stacks() if stacks else None,
    )


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, ident)}\n{''.join(format_stack(frame))}" for ident, frame in sys._current_frames().items()
    )
