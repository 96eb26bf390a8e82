"""A live cluster as planning sees it."""

from collections.abc import Mapping

from rocketd.spark.ranges import Queue, QueueRange
from rocketd.spark.wire import offsets as asked
from rocketd.spark.wire.cluster import Cluster
from rocketd.spark.wire.connection import close_connections
from rocketd.spark.wire.faults import UnknownTopicError
from rocketd.spark.wire.options import ClusterOptions


class BrokerCatalog:
    """A Catalog over name servers and brokers; see `rocketd.spark.ranges.Catalog`. All methods raise BrokerError.

    Only masters are asked: a slave may be behind. It holds no socket, so it crosses to tasks by pickle.
    """

    def __init__(self, options: ClusterOptions) -> None:
        self.cluster = Cluster(options)

    def topics(self) -> list[str]:
        """All topics of applications and groups, sorted; without those of brokers themselves."""
        return self.cluster.topics()

    def queues(self, topic: str) -> list[Queue]:
        """The topic's queues, sorted; empty when there is no such topic."""
        try:
            return self.cluster.queues(topic)
        except UnknownTopicError:
            return []

    def bounds(self, queue: Queue) -> tuple[int, int]:
        """Lowest offset, and the one behind the highest."""
        return asked.bounds(self.cluster, queue)

    def offset_at(self, queue: Queue, timestamp_ms: int) -> int:
        """The first offset that was stored at or after this time, the end when there is none."""
        return asked.offset_at(self.cluster, queue, timestamp_ms)

    def group_offset(self, group: str, queue: Queue) -> int | None:
        """What the consumer group has committed, None when it has not."""
        return asked.group_offset(self.cluster, group, queue)

    def commit_group(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Commit for a consumer group, for the tools that show its lag."""
        for queue, offset in sorted(offsets.items()):
            asked.commit_offset(self.cluster, group, queue, offset)

    def bytes_of(self, part: QueueRange) -> int | None:
        """About how many bytes the range's records have, by a sample of them; None when none is there."""
        if not part.count:
            return 0
        mean = asked.mean_size(self.cluster, part.queue, part.start, part.end)
        return None if mean is None else round(mean * part.count)

    def close(self) -> None:
        """Close this thread's connections; they are made again when something is asked."""
        close_connections()
