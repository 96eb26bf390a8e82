"""Which queue of its topic a row goes to.

Answers to Apache's client: queues stand in the order of its route, by broker name and then by queue id, and a key goes
where SelectMessageQueueByHash puts it, the absolute value of Java's `String.hashCode` modulo the number of queues.
"""

from collections.abc import Mapping, Sequence

from rocketd.common.java_hash import java_string_hash
from rocketd.spark.ranges import Queue
from rocketd.spark.sink.message import Outgoing
from rocketd.spark.sink.problems import RowError


def place_of_key(key: str, queues: int) -> int:
    """Return where among so many queues (at least one) a key's messages go."""
    return abs(java_string_hash(key)) % queues


class QueueChooser:
    """Chooses among the queues of each topic that can be written, given in any order; at least one for each topic.

    Rows without a key or a queue of their own go to the queues in turn, from place `start` on. The same rows in the same
    order go to the same queues.
    """

    def __init__(self, queues: Mapping[str, Sequence[Queue]], start: int = 0) -> None:
        self._queues = {topic: tuple(sorted(some)) for topic, some in queues.items()}
        self._turns = dict.fromkeys(self._queues, start)

    def choose(self, message: Outgoing) -> Queue:
        """Return the queue of a message. Raises RowError when it names one that cannot be written."""
        queues = self._queues[message.topic]
        if message.queue_id is not None:
            return self._named(message, queues)
        if message.key is not None:
            return queues[place_of_key(message.key, len(queues))]
        turn = self._turns[message.topic]
        self._turns[message.topic] = turn + 1
        return queues[turn % len(queues)]

    def _named(self, message: Outgoing, queues: Sequence[Queue]) -> Queue:
        found = [
            queue
            for queue in queues
            if queue.queue_id == message.queue_id and message.broker in (None, queue.broker)
        ]  # fmt: skip
        if len(found) == 1:
            return found[0]
        name = f"{message.topic}/{message.broker or '*'}/{message.queue_id}"
        if found:
            brokers = ", ".join(queue.broker for queue in found)
            raise RowError(f"a row names queue {name}, which brokers {brokers} have: add a column broker")
        raise RowError(
            f"a row names queue {name}, which cannot be written; there are {', '.join(map(str, queues))}"
        )
