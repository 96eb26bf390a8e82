"""Topics that the log has messages of, though the table lacks them.

No counterpart in Apache. A table is copied to slaves, and written, a moment after a topic was made: what is lost with the
master is found in the queues. A deleted topic does not come back: its last message is older than the table's last change.
"""

from collections.abc import Callable
from time import monotonic
from typing import Any

from rocketd.common import names

LOOK_SECONDS = 1.0


class ImpliedTopics:
    """Finds such topics of a store. Methods belong to one thread at a time."""

    def __init__(self, broker: Any, clock: Callable[[], float] = monotonic) -> None:
        self._broker = broker
        self._clock = clock
        self._looked = float("-inf")

    def make(self) -> None:
        """Make all of them, with as many queues as have messages, to read and write."""
        broker = self._broker
        topics, store = broker.topics, broker.store
        version = topics.data_version
        since = version.timestamp if version.counter else 0
        queues: dict[str, int] = {}
        late: set[str] = set()
        for topic, queue_id in store.queue_keys():
            if topics.select(topic) is not None or topics.is_system_topic(topic) or topic.startswith(names.LMQ_PREFIX):
                continue
            end = store.get_max_offset(topic, queue_id)
            if end > store.get_min_offset(topic, queue_id):
                queues[topic] = max(queues.get(topic, 0), queue_id + 1)
                if store.get_store_time(topic, queue_id, end - 1) >= since:
                    late.add(topic)
        topics.make_implied({topic: queues[topic] for topic in sorted(late)})

    def make_again(self) -> None:
        """As ``make``, but not more often than every LOOK_SECONDS: for requests of topics that are unknown."""
        if self._clock() - self._looked >= LOOK_SECONDS:
            self.make()
            self._looked = self._clock()
