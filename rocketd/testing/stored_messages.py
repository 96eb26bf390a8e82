"""The messages in the stores of running brokers."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from rocketd.broker.service import Broker
from rocketd.client.errors import TopicNotFoundError
from rocketd.client.messages.codec import Codec
from rocketd.client.messages.message import ReceivedMessage
from rocketd.client.messages.received import received_message
from rocketd.common.names import DLQ_PREFIX, RETRY_PREFIX
from rocketd.common.suggest import did_you_mean
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.store.format.record import decode_message
from rocketd.testing.quiescence import wait_for_dispatch

READ_AT_ONCE = 1000

T = TypeVar("T")


def stored_messages(
    brokers: Sequence[Broker],
    topic: str,
    codec: Codec[T],
    *,
    at: str = "",
    others: Mapping[str, Broker] = MappingProxyType({}),
) -> list[ReceivedMessage[T]]:
    """Return the messages of a topic by broker, queue and offset. Any thread.

    ``at`` is the name of a single broker. Raises TopicNotFoundError if no broker has the topic. The error names those of
    ``others`` with the topic. Topics of dead letters and retries are empty before their first message.
    """
    for broker in brokers:
        wait_for_dispatch(broker.store)
    holders = [broker for broker in brokers if _has(broker, topic)]
    if not holders and not topic.startswith((DLQ_PREFIX, RETRY_PREFIX)):
        place = f"at {at}" if at else "in this cluster"
        if elsewhere := [name for name, broker in others.items() if _has(broker, topic)]:
            raise TopicNotFoundError(f"topic {topic!r} is not {place}; it is at {', '.join(elsewhere)}")
        known = sorted({name for broker in brokers for name in _topics_of_users(broker)})
        raise TopicNotFoundError(
            f"topic {topic!r} is not {place}: it was not created, and no message was sent to it; known are "
            f"{', '.join(known) or 'none'}{did_you_mean(topic, known)}"
        )
    return [message for broker in holders for message in _messages(broker, topic, codec)]


def _has(broker: Broker, topic: str) -> bool:
    # A slave may have messages of a topic before it knows the topic.
    return broker.topics.select(topic) is not None or any(known == topic for known, _ in broker.store.queue_keys())


def _topics_of_users(broker: Broker) -> Iterator[str]:
    for config in broker.topics.all_topics():
        name = config.topic_name
        if not broker.topics.is_system_topic(name) and not name.startswith((DLQ_PREFIX, RETRY_PREFIX)):
            yield name


def _messages(broker: Broker, topic: str, codec: Codec[T]) -> Iterator[ReceivedMessage[T]]:
    store, name = broker.store, broker.settings.broker.broker_name
    for queue_id in sorted(number for known, number in store.queue_keys() if known == topic):
        queue = MessageQueue(topic, name, queue_id)
        offset = store.get_min_offset(topic, queue_id)
        while entries := store.queue_entries(topic, queue_id, offset, READ_AT_ONCE):
            offset += len(entries)
            records = [store.look_message(physical_offset) for physical_offset, _, _ in entries]
            for record in records:
                if record is not None:
                    yield received_message(decode_message(record), queue, codec)
