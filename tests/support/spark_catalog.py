"""A catalog in memory for tests of planning, with answers set by hand."""

from rocketd.spark.errors import NoAnswerError
from rocketd.spark.ranges import Queue


class MemoryCatalog:
    """`spans` are the bounds of queues, `away` the brokers that do not answer, `times` offset by time."""

    def __init__(self, spans):
        self.spans = dict(spans)
        self.away = set()
        self.hidden = set()
        self.groups = {}
        self.step_ms = 10
        self.remade_ms = {}
        self.record = 100
        self.asked = 0

    def topics(self):
        self._check("namesrv")
        return sorted({queue.topic for queue in self.spans if queue.broker not in self.hidden})

    def queues(self, topic):
        self._check("namesrv")
        return sorted(queue for queue in self.spans if queue.topic == topic and queue.broker not in self.hidden)

    def bounds(self, queue):
        self.asked += 1
        self._check(queue.broker)
        return self.spans[queue]

    def offset_at(self, queue, timestamp_ms):
        low, end = self.spans[queue]
        return min(max(low, -(-timestamp_ms // self.step_ms)), end)

    def stored_at(self, queue, offset):
        self._check(queue.broker)
        low, end = self.spans[queue]
        return offset * self.step_ms + self.remade_ms.get(queue, 0) if low <= offset < end else None

    def group_offset(self, group, queue):
        return self.groups.get((group, queue))

    def known_groups(self, topic):
        return sorted({group for group, queue in self.groups if queue.topic == topic})

    def commit_group(self, group, offsets):
        self.groups.update({(group, queue): offset for queue, offset in offsets.items()})

    def bytes_of(self, part):
        return part.count * self.record

    def close(self):
        pass

    def _check(self, name):
        if name in self.away:
            raise NoAnswerError(f"{name} is away", retriable=True)


def queue(number, topic="t", broker="a"):
    return Queue(topic, broker, number)
