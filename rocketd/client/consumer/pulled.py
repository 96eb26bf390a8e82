"""A message that was pulled and is not finished yet, and a queue that is consumed here.

Answers to the entries of ProcessQueue and to PullRequest. Reactor thread.
"""

from typing import Any

from rocketd.client.consumer.process_queue import ProcessQueue
from rocketd.remoting.bodies import MessageQueue, SubscriptionData
from rocketd.store.record import MessageExt


class Pulled:
    """A record; ``reconsume_times`` counts also the tries that only this consumer knows of.

    ``key_error`` is why no key could be made of it, where one is needed.
    """

    __slots__ = ("key_error", "queue_offset", "reconsume_times", "record")

    def __init__(self, record: MessageExt) -> None:
        self.record = record
        self.queue_offset = record.queue_offset
        self.reconsume_times = record.reconsume_times
        self.key_error: Exception | None = None


class AssignedQueue:
    """A queue of this consumer's share, what is held of it, and who pulls it."""

    def __init__(self, queue: MessageQueue, subscription: SubscriptionData, now_ms: int) -> None:
        self.queue = queue
        self.subscription = subscription
        self.held: ProcessQueue[Pulled] = ProcessQueue(now_ms, lambda pulled: len(pulled.record.body))
        self.paused = False
        self.next_offset = 0
        self.position: int | None = None
        """How far who polls has got; None where nobody has polled yet."""
        self.puller: Any = None
        self.order: Any = None

    def __str__(self) -> str:
        return f"queue {self.queue.queue_id} of {self.queue.topic} at {self.queue.broker_name}"
