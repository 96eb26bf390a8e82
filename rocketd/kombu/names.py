"""Names of topics and groups for Kombu's queues. Pure functions."""

import re

from rocketd.common.names import TOPIC_MAX_LENGTH, retry_topic

GROUP_PREFIX = "kombu_"

_OTHERS = re.compile(r"[^a-zA-Z0-9_-]")


def topic_of(queue: str) -> str:
    """Return the topic of a queue: its name, with each other character as ``%`` and the hexadecimal numbers of its bytes.

    Raises ValueError if the name is too long, or empty.
    """
    topic = _OTHERS.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), queue)
    longest = TOPIC_MAX_LENGTH - len(retry_topic(GROUP_PREFIX))
    if not 0 < len(topic) <= longest:
        raise ValueError(
            f"queue {queue!r} would be a topic of {len(topic)} characters: accepted are 1 to {longest}; characters other "
            "than letters, digits, - and _ count as three for each byte"
        )
    return topic


def group_of(queue: str) -> str:
    """Return the consumer group of a queue's workers. Raises ValueError as ``topic_of``."""
    return GROUP_PREFIX + topic_of(queue)
