"""The flag words of messages, pulls, topics and subscriptions.

Counterpart: `MessageSysFlag`, `PullSysFlag` and `TopicSysFlag` (Apache): the bits and their operations.
"""

from typing import Final

COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2
TRANSACTION_NOT: Final = 0x0
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
NEED_UNWRAP: Final = 0x40
INNER_BATCH: Final = 0x80
COMPRESSION_LZ4: Final = 0x100
COMPRESSION_ZSTD: Final = 0x200
COMPRESSION_ZLIB: Final = 0x300
COMPRESSION_MASK: Final = 0x700
"""The kind of compression. COMPRESSED without any of these bits means zlib, as sent by clients before 4.9.4."""


def transaction_value(sys_flag: int) -> int:
    """Return the transaction state of a message, one of four."""
    return sys_flag & TRANSACTION_ROLLBACK


def reset_transaction_value(sys_flag: int, value: int) -> int:
    """Return a message's flag word with another transaction state."""
    return sys_flag & ~TRANSACTION_ROLLBACK | value


PULL_COMMIT_OFFSET: Final = 0x1
"""The pull has an offset to commit."""
PULL_SUSPEND: Final = 0x2
"""The pull may be held until a message arrives."""
PULL_SUBSCRIPTION: Final = 0x4
"""The request has the subscription."""
PULL_CLASS_FILTER: Final = 0x8
PULL_LITE: Final = 0x10

TOPIC_UNIT: Final = 0x1
TOPIC_UNIT_SUB: Final = 0x2


def topic_sys_flag(unit: bool, unit_sub: bool) -> int:
    """Return a topic's flag word: whether it belongs to a unit, and whether units subscribe to it."""
    return (TOPIC_UNIT if unit else 0) | (TOPIC_UNIT_SUB if unit_sub else 0)
