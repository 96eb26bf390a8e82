"""The numbers of a store that a migration tells."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class StoreNumbers:
    """Numbers of a store. ``messages`` has those of each topic, from the offsets of its queues."""

    records: int = 0
    log_begin: int = 0
    log_end: int = 0
    messages: Counter[str] = field(default_factory=Counter)
    queues: Counter[str] = field(default_factory=Counter)
    topics: int = 0
    groups: int = 0
    offsets: int = 0
    delayed: int = 0
    """Delayed messages that are not delivered yet."""
    some_group: str = ""
    """A group with offsets, for the commands."""
