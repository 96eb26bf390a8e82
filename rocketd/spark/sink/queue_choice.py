"""The choice of a queue for each row.

The order of queues is by broker name and then by queue id, as in the route of Apache's client. A key selects the queue
at the absolute value of Java's `String.hashCode` modulo the number of queues. Counterpart: `SelectMessageQueueByHash`
(Apache).
"""

from collections.abc import Callable, Collection, Sequence

from rocketd.common.java_hash import java_string_hash
from rocketd.spark.ranges import Queue
from rocketd.spark.sink.message import Outgoing
from rocketd.spark.sink.problems import RowError


def place_of_key(key: str, queues: int) -> int:
    """Return the index among `queues` queues (at least one) for a key's messages."""
    return abs(java_string_hash(key)) % queues


class QueueChooser:
    """Chooses among the writable queues of each topic. `queues_of` returns them, at least one, in any order.

    Rows without a key or a queue go to the queues in turn, from place `start` on. The same rows in the same order go to
    the same queues.
    """

    def __init__(self, queues_of: Callable[[str], Sequence[Queue]], start: int = 0) -> None:
        self._queues_of = queues_of
        self._start = start
        self._queues: dict[str, tuple[Queue, ...]] = {}
        self._turns: dict[str, int] = {}

    def choose(self, message: Outgoing, avoided: Collection[str] = ()) -> Queue:
        """Return the queue of a message.

        A message without a fixed queue avoids `avoided` brokers if there is another one.

        Raises RowError if the message names a queue that is not writable.
        """
        queues = self._queues.get(message.topic)
        if queues is None:
            queues = self._queues[message.topic] = tuple(sorted(self._queues_of(message.topic)))
            self._turns[message.topic] = self._start
        if message.queue_id is not None:
            return _named(message, queues)
        if message.key is not None:
            return queues[place_of_key(message.key, len(queues))]
        queue = self._next(message.topic, queues)
        if queue.broker in avoided:
            for _ in queues:
                queue = self._next(message.topic, queues)
                if queue.broker not in avoided:
                    break
        return queue

    def brokers(self, topic: str) -> set[str]:
        """Return the brokers that messages of a topic may go to."""
        return {queue.broker for queue in self._queues.get(topic, ())}

    def _next(self, topic: str, queues: Sequence[Queue]) -> Queue:
        turn = self._turns[topic]
        self._turns[topic] = turn + 1
        return queues[turn % len(queues)]


def _named(message: Outgoing, queues: Sequence[Queue]) -> Queue:
    found = [q for q in queues if q.queue_id == message.queue_id and message.broker in (None, q.broker)]
    if len(found) == 1:
        return found[0]
    name = f"{message.topic}/{message.broker or '*'}/{message.queue_id}"
    if found:
        brokers = ", ".join(queue.broker for queue in found)
        raise RowError(f"a row names queue {name}, which brokers {brokers} have: add a column broker")
    raise RowError(f"a row names queue {name}, which cannot be written; there are {', '.join(map(str, queues))}")
