"""A pulled message not finished yet, and a queue assigned to this consumer.

Counterpart: the entries of `ProcessQueue`, and `PullRequest` (Apache). Reactor thread.
"""

from typing import Any

from rocketd.client.consumer.pulling.process_queue import ProcessQueue
from rocketd.client.messages.lease import Lease
from rocketd.remoting.bodies.tables import MessageQueue, SubscriptionData
from rocketd.store.format.record import MessageExt


class PulledMessage:
    """A pulled record. ``reconsume_times`` includes tries known only to this consumer.

    ``key_error`` is the reason why a required key could not be made. ``lease`` is that of its last handler.
    """

    __slots__ = ("key_error", "lease", "queue_offset", "reconsume_times", "record")

    def __init__(self, record: MessageExt) -> None:
        self.record = record
        self.queue_offset = record.queue_offset
        self.reconsume_times = record.reconsume_times
        self.key_error: Exception | None = None
        self.lease: Lease | None = None


class AssignedQueue:
    """A queue of this consumer's share, its held messages and its puller."""

    def __init__(self, queue: MessageQueue, subscription: SubscriptionData, now_ms: int) -> None:
        self.queue = queue
        self.subscription = subscription
        self.held: ProcessQueue[PulledMessage] = ProcessQueue(now_ms, lambda pulled: len(pulled.record.body))
        self.paused = False
        self.given_up = False
        """It is being released: no further handler starts, and a queue in order is kept until its handler has ended."""
        self.is_reset = False
        """An administrator has reset its offset while it was being released: running handlers no longer count."""
        self.announced = True
        """Whether ``on_assigned`` has ended. The queue is not pulled before."""
        self.is_successor = False
        """Handlers of the same queue may still run that began before a seek, a reset of its offset, or its loss."""
        self.is_deleted = False
        """Its topic was deleted at the broker. The queue is given up, and taken again when there is a new one."""
        self.next_offset = 0
        self.position: int | None = None
        """The offset behind the polled messages; None before the first ``poll``."""
        self.puller: Any = None
        self.order: Any = None

    @property
    def is_ending(self) -> bool:
        """Whether no further handler starts."""
        return self.held.dropped or self.given_up

    def __str__(self) -> str:
        return f"queue {self.queue.queue_id} of {self.queue.topic} at {self.queue.broker_name}"
