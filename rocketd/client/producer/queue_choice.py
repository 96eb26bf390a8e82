"""The choice of the queue for the next message, sans-io.

Counterpart: `TopicPublishInfo` and `MQFaultStrategy` (Apache), with the same choices. Queues are used in turn. After a
failure, a queue of another broker comes next, if there is one. With fault tolerance, only available brokers are used.
Belongs to the reactor thread.
"""

from collections.abc import Mapping, Sequence

from rocketd.client.producer.faults import LatencyFaultTolerance, Turn
from rocketd.remoting.bodies.tables import MessageQueue, TopicRouteData


class TopicPublishInfo:
    """The writable queues of one topic, and which is next.

    ``write_queue_nums`` has the number of these queues by broker name. ``start`` is the random start of the round-robin. Any
    thread may ask for the next queue. Raises ValueError without queues.
    """

    def __init__(self, queues: Sequence[MessageQueue], write_queue_nums: Mapping[str, int], start: int) -> None:
        if not queues:
            raise ValueError("a topic without queues that can be written has none to choose from")
        self.queues = tuple(queues)
        self.several_brokers = len({queue.broker_name for queue in queues}) > 1
        self.write_queue_nums = dict(write_queue_nums)
        self.turn = Turn(start)

    def select_one_message_queue(self, last_broker_name: str | None = None) -> MessageQueue:
        """Return the next queue outside the broker that just failed. If there is none, return the next queue."""
        if last_broker_name is not None:
            for _ in self.queues:
                queue = self._next()
                if queue.broker_name != last_broker_name:
                    return queue
        return self._next()

    def _next(self) -> MessageQueue:
        return self.queues[self.turn.advance() % len(self.queues)]


def write_queue_nums_of(route: TopicRouteData) -> dict[str, int]:
    """Return the number of writable queues by broker name. Of two entries for a broker the first counts."""
    return {data.broker_name: data.write_queue_nums for data in reversed(route.queue_datas)}


class QueueChoice:
    """Chooses a producer's queues. Without ``faults`` (the default) latency is ignored."""

    def __init__(self, faults: LatencyFaultTolerance | None = None) -> None:
        self.faults = faults

    def select_one_message_queue(
        self, info: TopicPublishInfo, last_broker_name: str | None, now_ms: float
    ) -> MessageQueue:
        """Return the queue for a try. ``last_broker_name`` is the broker of the previous try, None for a first try.

        With fault tolerance this name is ignored, because a failed broker is unavailable. If no broker is available,
        the least bad one gets the message if it has queues of this topic. Otherwise it is forgotten, and the queues go
        on in turn.
        """
        if self.faults is None:
            return info.select_one_message_queue(last_broker_name)
        count = len(info.queues)
        turn = info.turn.advance()
        for step in range(count):
            queue = info.queues[(turn + step) % count]
            if self.faults.is_available(queue.broker_name, now_ms):
                return queue
        # At least one broker is known, otherwise all would have been available.
        broker_name = self.faults.pick_one_at_least(now_ms)
        queue_count = info.write_queue_nums.get(broker_name, 0)
        queue = info.select_one_message_queue()
        if queue_count <= 0:
            self.faults.remove(broker_name)
            return queue
        # Apache writes the broker and the number into the queue of its list, which then lacks this queue until the
        # route changes. Here the list is unchanged.
        return MessageQueue(queue.topic, broker_name, info.turn.advance() % queue_count)

    def update(self, broker_name: str, latency_ms: float, now_ms: float, *, isolation: bool = False) -> None:
        """Note the end of a send. ``isolation``: it ended with an exception that makes the broker doubtful."""
        if self.faults is not None:
            self.faults.update(broker_name, latency_ms, now_ms, isolation=isolation)
