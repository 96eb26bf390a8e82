"""Topics with messages in the log that the table lacks.

The table is copied to slaves, and written, a moment after a topic was created. Topics lost with the master are found in
the queues. A deleted topic does not return: its last message is older than the table's last change.
"""

from collections.abc import Callable
from time import monotonic

from rocketd.broker.tables.parts import TableParts
from rocketd.common import names
from rocketd.common.permission import READ, WRITE

LOOK_SECONDS = 1.0


def make_topic_of(broker: TableParts, topic: str, queue_id: int, offset: int, stored_ms: int) -> None:
    """Create the topic of a waiting message if a kill has left it out of the table. Any thread.

    The broker writes a new topic after the append of its first message. A kill in between leaves a delayed or half
    message without its topic. ``offset`` is the message's place in the log, ``stored_ms`` its time. A topic deleted
    after that is not created again.
    """
    topics = broker.topics
    if topics.select(topic) is None and not broker.store.was_deleted(topic, offset, stored_ms):
        queues = max(queue_id + 1, broker.settings.broker.default_topic_queue_nums)
        topics.create_topic_in_send_message_back(topic, queues, READ | WRITE, 0)


class ImpliedTopics:
    """Finds the topics missing in the table. One thread at a time."""

    def __init__(self, broker: TableParts, clock: Callable[[], float] = monotonic) -> None:
        self._broker = broker
        self._clock = clock
        self._looked = float("-inf")

    def make(self) -> None:
        """Create all of them for reading and writing, with as many queues as hold messages."""
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
        """Like ``make``, at most every LOOK_SECONDS: for requests that name an unknown topic."""
        if self._clock() - self._looked >= LOOK_SECONDS:
            self.make()
            self._looked = self._clock()
