"""Topics with messages in the log that the table lacks.

The table is copied to slaves, and written, a moment after a topic was created. Topics lost with the master are found in
the queues. A deleted topic does not return: the store has recorded its deletion, or its last message is older than the
table's last change. With autoCreateTopicEnable=false, only retry and dead-letter topics are created.
"""

from collections.abc import Callable
from time import monotonic

from rocketd.broker.base.settings import BrokerConfig
from rocketd.broker.tables.parts import TableParts
from rocketd.common import names
from rocketd.common.permission import READ, WRITE

LOOK_SECONDS = 1.0


def is_topic_deleted(broker: TableParts, topic: str, offset: int, stored_ms: int) -> bool:
    """Return whether the topic of a waiting message was deleted after its store, and not recreated. Any thread.

    ``offset`` is the message's place in the log in bytes, ``stored_ms`` its store time in Unix ms.
    """
    if broker.topics.select(topic) is not None:
        return False
    return topic in broker.topics.deleting or broker.store.was_deleted(topic, offset, stored_ms)


def make_topic_of(broker: TableParts, topic: str, queue_id: int, offset: int, stored_ms: int) -> bool:
    """Create the topic of a waiting message if a kill has left it out of the table. Any thread.

    The broker writes a new topic after the append of its first message. A kill in between leaves a delayed or half
    message without its topic. Returns False if the topic is deleted, as in ``is_topic_deleted``: the message must not be
    stored.
    """
    if is_topic_deleted(broker, topic, offset, stored_ms):
        return False
    if broker.topics.select(topic) is None and _may_create(broker, topic):
        queues = max(queue_id + 1, broker.settings.broker.default_topic_queue_nums)
        broker.topics.create_topic_in_send_message_back(topic, queues, READ | WRITE, 0)
    return True


def _may_create(broker: TableParts, topic: str) -> bool:
    if topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX)):
        return True
    settings: BrokerConfig = broker.settings.broker
    return settings.auto_create_topic_enable


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
            if end > store.get_min_offset(topic, queue_id) and _may_create(broker, topic):
                queues[topic] = max(queues.get(topic, 0), queue_id + 1)
                stored_ms = store.get_store_time(topic, queue_id, end - 1)
                if stored_ms >= since:
                    entries = store.queue_entries(topic, queue_id, end - 1, 1)
                    if not (entries and is_topic_deleted(broker, topic, entries[0][0], stored_ms)):
                        late.add(topic)
        topics.make_implied({topic: queues[topic] for topic in sorted(late)})

    def make_again(self) -> None:
        """Like ``make``, at most every LOOK_SECONDS: for requests that name an unknown topic."""
        if self._clock() - self._looked >= LOOK_SECONDS:
            self.make()
            self._looked = self._clock()
