"""A cluster of which only one broker is looked at."""

from collections.abc import Mapping

from rocketd.spark.ranges import Catalog, Queue, QueueRange


class OneBroker:
    """A Catalog with the queues of one broker of another one; see `rocketd.spark.ranges.Catalog`."""

    def __init__(self, whole: Catalog, broker: str) -> None:
        self._whole = whole
        self._broker = broker

    def topics(self) -> list[str]:
        """All topics that have queues on this broker, sorted."""
        return [topic for topic in self._whole.topics() if self.queues(topic)]

    def queues(self, topic: str) -> list[Queue]:
        """The topic's queues on this broker."""
        return [queue for queue in self._whole.queues(topic) if queue.broker == self._broker]

    def bounds(self, queue: Queue) -> tuple[int, int]:
        """Lowest offset, and the one behind the highest."""
        return self._whole.bounds(queue)

    def offset_at(self, queue: Queue, timestamp_ms: int) -> int:
        """The first offset that was stored at or after this time, the end when there is none."""
        return self._whole.offset_at(queue, timestamp_ms)

    def group_offset(self, group: str, queue: Queue) -> int | None:
        """What the consumer group has committed, None when it has not."""
        return self._whole.group_offset(group, queue)

    def commit_group(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Commit for a consumer group."""
        self._whole.commit_group(group, offsets)

    def bytes_of(self, part: QueueRange) -> int | None:
        """About how many bytes the range's records have."""
        return self._whole.bytes_of(part)

    def close(self) -> None:
        """Let go of connections."""
        self._whole.close()
