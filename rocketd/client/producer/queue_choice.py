"""Which queue of a topic the next message goes to, sans-io.

Answers to TopicPublishInfo and MQFaultStrategy. Promises Apache's choices: the queues in turn; after a failure those of
another broker if there is one; with fault tolerance, those of brokers that are available. Belongs to the reactor thread.
"""

from collections.abc import Mapping, Sequence

from rocketd.client.producer.faults import LatencyFaultTolerance, Turn
from rocketd.remoting.bodies import MessageQueue, TopicRouteData


class TopicPublishInfo:
    """The queues of one topic that can be written, and whose turn it is.

    ``write_queue_nums`` has the number of such queues by broker name; ``start`` is where the turn starts, a random number.
    ValueError when there are no queues.
    """

    def __init__(self, queues: Sequence[MessageQueue], write_queue_nums: Mapping[str, int], start: int) -> None:
        if not queues:
            raise ValueError("a topic without queues that can be written has none to choose from")
        self.queues = tuple(queues)
        self.write_queue_nums = dict(write_queue_nums)
        self.turn = Turn(start)

    def select_one_message_queue(self, last_broker_name: str | None = None) -> MessageQueue:
        """Return the next queue that is not of the broker which just failed; if all are of that one, the next."""
        if last_broker_name is not None:
            for _ in self.queues:
                queue = self._next()
                if queue.broker_name != last_broker_name:
                    return queue
        return self._next()

    def _next(self) -> MessageQueue:
        return self.queues[self.turn.advance() % len(self.queues)]


def write_queue_nums_of(route: TopicRouteData) -> dict[str, int]:
    """Return how many queues can be written at each broker of a route, by its name; of two entries the first counts."""
    return {data.broker_name: data.write_queue_nums for data in reversed(route.queue_datas)}


class QueueChoice:
    """Chooses a producer's queues. Without ``faults`` latency does not matter, as it does not unless asked for."""

    def __init__(self, faults: LatencyFaultTolerance | None = None) -> None:
        self.faults = faults

    def select_one_message_queue(
        self, info: TopicPublishInfo, last_broker_name: str | None, now_ms: float
    ) -> MessageQueue:
        """Return the queue for a try; ``last_broker_name`` is the broker of the try before, None for a first try.

        With fault tolerance that name does not matter: a broker that failed is not available. If none is, the least bad
        one of the producer's brokers gets the message, if it has queues of this topic; if not, it is forgotten and the
        queues go on in turn.
        """
        if self.faults is None:
            return info.select_one_message_queue(last_broker_name)
        count = len(info.queues)
        turn = info.turn.advance()
        for step in range(count):
            queue = info.queues[(turn + step) % count]
            if self.faults.is_available(queue.broker_name, now_ms):
                return queue
        # Some broker is known, otherwise all would have been available.
        broker_name = self.faults.pick_one_at_least(now_ms)
        queue_count = info.write_queue_nums.get(broker_name, 0)
        queue = info.select_one_message_queue()
        if queue_count <= 0:
            self.faults.remove(broker_name)
            return queue
        # Apache writes the broker and the number into the queue of its list, which then lacks that queue until the route
        # changes; here the list stays.
        return MessageQueue(queue.topic, broker_name, info.turn.advance() % queue_count)

    def update(self, broker_name: str, latency_ms: float, now_ms: float, *, isolation: bool = False) -> None:
        """Note a send that has ended now; ``isolation``: with an exception that makes the broker doubtful."""
        if self.faults is not None:
            self.faults.update(broker_name, latency_ms, now_ms, isolation=isolation)
