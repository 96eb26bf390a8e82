"""Names of topics and groups within a namespace.

Counterpart: `NamespaceUtil` (Apache). Pure functions: ``space%name``, after the prefix of retry and dead letter topics.
"""

from rocketd.common.names import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS, is_system_group
from rocketd.remoting.bodies.tables import MessageQueue

_SEPARATOR = "%"


def with_namespace(namespace: str, name: str) -> str:
    """Return the name as brokers know it. System names, and names already in the namespace, are unchanged."""
    if not namespace or not name or _is_of_system(name):
        return name
    prefix, bare = _split(name)
    if bare.startswith(namespace + _SEPARATOR):
        return name
    return f"{prefix}{namespace}{_SEPARATOR}{bare}"


def without_namespace(namespace: str, name: str) -> str:
    """Return the name as the application knows it."""
    if not namespace:
        return name
    prefix, bare = _split(name)
    return prefix + bare.removeprefix(namespace + _SEPARATOR)


def queue_with_namespace(namespace: str, queue: MessageQueue) -> MessageQueue:
    """Return the queue as brokers know it."""
    return MessageQueue(with_namespace(namespace, queue.topic), queue.broker_name, queue.queue_id)


def queue_without_namespace(namespace: str, queue: MessageQueue) -> MessageQueue:
    """Return the queue as the application knows it."""
    return MessageQueue(without_namespace(namespace, queue.topic), queue.broker_name, queue.queue_id)


def _is_of_system(name: str) -> bool:
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_TOPIC_PREFIX) or is_system_group(name)


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name
