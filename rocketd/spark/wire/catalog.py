"""A live cluster as planning sees it."""

from collections.abc import Mapping
from contextlib import suppress

from rocketd.spark.errors import ClusterError
from rocketd.spark.ranges import Queue, QueueRange, groups_of
from rocketd.spark.wire import offsets as asked
from rocketd.spark.wire.cluster import ClusterClient
from rocketd.spark.wire.connection import close_connections
from rocketd.spark.wire.faults import UnknownTopicError
from rocketd.spark.wire.options import ClusterOptions


class BrokerCatalog:
    """A Catalog over name servers and brokers; see `rocketd.spark.ranges.Catalog`. All methods raise ClusterError.

    Only masters are asked, because a slave may be behind. It holds no socket, so it can be pickled for tasks.
    """

    def __init__(self, options: ClusterOptions) -> None:
        self.cluster = ClusterClient(options)

    def topics(self) -> list[str]:
        """Return all topics of applications and groups, sorted, without the system topics of brokers."""
        return self.cluster.topics()

    def queues(self, topic: str) -> list[Queue]:
        """Return the topic's queues, sorted; empty if the topic does not exist."""
        try:
            return self.cluster.queues(topic)
        except UnknownTopicError:
            return []

    def bounds(self, queue: Queue) -> tuple[int, int]:
        """Return the lowest offset, and the offset after the highest."""
        return asked.bounds(self.cluster, queue)

    def offset_at(self, queue: Queue, timestamp_ms: int) -> int:
        """Return the first offset stored at or after this time, or the end offset if there is none."""
        return asked.offset_at(self.cluster, queue, timestamp_ms)

    def stored_at(self, queue: Queue, offset: int) -> int | None:
        """Return the store time (ms) of the message at an offset, or None without a readable one."""
        return asked.stored_at(self.cluster, queue, offset)

    def group_offset(self, group: str, queue: Queue) -> int | None:
        """Return the committed offset of the consumer group, or None if it has not committed."""
        return asked.group_offset(self.cluster, group, queue)

    def known_groups(self, topic: str) -> list[str]:
        """Return the consumer groups with committed offsets in the topic, sorted; those that the account may see."""
        keys: list[str] = []
        for broker in {queue.broker for queue in self.queues(topic)}:
            with suppress(ClusterError):
                keys += asked.all_group_offsets(self.cluster, broker)
        return groups_of(topic, keys)

    def commit_group(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Commit offsets for a consumer group, so that lag tools can show them."""
        for queue, offset in sorted(offsets.items()):
            asked.commit_offset(self.cluster, group, queue, offset)

    def bytes_of(self, part: QueueRange) -> int | None:
        """Estimate the size of the range's records in bytes from a sample; None if no message is left."""
        if not part.count:
            return 0
        mean = asked.mean_size(self.cluster, part.queue, part.start, part.end)
        return None if mean is None else round(mean * part.count)

    def close(self) -> None:
        """Close this thread's connections; the next request opens them again."""
        close_connections()
