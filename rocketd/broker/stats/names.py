"""Names and keys of the statistics. Clients ask by these names.

Counterpart: `Stats`, `BrokerStatsManager.buildStatsKey` (Apache).
"""

from typing import Final

SEPARATOR: Final = "@"

TOPIC_PUT_NUMS: Final = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE: Final = "TOPIC_PUT_SIZE"
GROUP_GET_NUMS: Final = "GROUP_GET_NUMS"
GROUP_GET_SIZE: Final = "GROUP_GET_SIZE"
GROUP_GET_LATENCY: Final = "GROUP_GET_LATENCY"
SNDBCK_PUT_NUMS: Final = "SNDBCK_PUT_NUMS"
BROKER_PUT_NUMS: Final = "BROKER_PUT_NUMS"
BROKER_GET_NUMS: Final = "BROKER_GET_NUMS"
QUEUE_PUT_NUMS: Final = "QUEUE_PUT_NUMS"
QUEUE_PUT_SIZE: Final = "QUEUE_PUT_SIZE"
QUEUE_GET_NUMS: Final = "QUEUE_GET_NUMS"
QUEUE_GET_SIZE: Final = "QUEUE_GET_SIZE"

COUNTED: Final = (
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    GROUP_GET_LATENCY,
    SNDBCK_PUT_NUMS,
    BROKER_PUT_NUMS,
    BROKER_GET_NUMS,
    QUEUE_PUT_NUMS,
    QUEUE_PUT_SIZE,
    QUEUE_GET_NUMS,
    QUEUE_GET_SIZE,
)
"""The statistics counted here.

Apache declares more: GROUP_GET_FROM_DISK_*, BROKER_GET_FROM_DISK_* and COMMERCIAL_*. Its code counts none of them, and
answers that they do not exist, as for any unknown name.
"""


def topic_group(topic: str, group: str) -> str:
    """Return the key of a group's reading of a topic."""
    return f"{topic}{SEPARATOR}{group}"


def topic_queue(topic: str, queue_id: int) -> str:
    """Return the key of a queue."""
    return f"{topic}{SEPARATOR}{queue_id}"


def topic_queue_group(topic: str, queue_id: int, group: str) -> str:
    """Return the key of a group's reading of a queue."""
    return f"{topic}{SEPARATOR}{queue_id}{SEPARATOR}{group}"


def queue_topic_group(queue_id: int, topic: str, group: str) -> str:
    """Return the key of a group's latency in a queue, which Apache builds in the opposite order."""
    return f"{queue_id}{SEPARATOR}{topic}{SEPARATOR}{group}"
