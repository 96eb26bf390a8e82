"""A catalog limited to one broker of a cluster."""

from collections.abc import Mapping

from rocketd.spark.ranges import Catalog, Queue, QueueRange


class OneBroker:
    """A Catalog with only the queues of one broker; see `rocketd.spark.ranges.Catalog`."""

    def __init__(self, whole: Catalog, broker: str) -> None:
        self._whole = whole
        self._broker = broker

    def topics(self) -> list[str]:
        """Return all topics that have queues on this broker, sorted."""
        return [topic for topic in self._whole.topics() if self.queues(topic)]

    def queues(self, topic: str) -> list[Queue]:
        """Return the topic's queues on this broker."""
        return [queue for queue in self._whole.queues(topic) if queue.broker == self._broker]

    def bounds(self, queue: Queue) -> tuple[int, int]:
        """Return the lowest offset, and the offset after the highest."""
        return self._whole.bounds(queue)

    def offset_at(self, queue: Queue, timestamp_ms: int) -> int:
        """Return the first offset stored at or after this time, or the end offset if there is none."""
        return self._whole.offset_at(queue, timestamp_ms)

    def stored_at(self, queue: Queue, offset: int) -> int | None:
        """Return the store time (ms) of the message at an offset, or None without a readable one."""
        return self._whole.stored_at(queue, offset)

    def group_offset(self, group: str, queue: Queue) -> int | None:
        """Return the committed offset of the consumer group, or None if it has not committed."""
        return self._whole.group_offset(group, queue)

    def known_groups(self, topic: str) -> list[str]:
        """Return the consumer groups with committed offsets in the topic, sorted."""
        return self._whole.known_groups(topic)

    def commit_group(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Commit offsets for a consumer group."""
        self._whole.commit_group(group, offsets)

    def bytes_of(self, part: QueueRange) -> int | None:
        """Estimate the size of the range's records in bytes; None if unknown."""
        return self._whole.bytes_of(part)

    def close(self) -> None:
        """Close the connections."""
        self._whole.close()
