"""The broker as the subpackages above its tables see it."""

from typing import Protocol

from rocketd.broker.base.parts import CoreParts
from rocketd.broker.tables.filters.consumer_filters import ConsumerFilterManager
from rocketd.broker.tables.groups import SubscriptionGroupManager
from rocketd.broker.tables.offsets import ConsumerOffsetManager
from rocketd.broker.tables.topics import TopicConfigManager


class TableParts(CoreParts, Protocol):
    """The core and the tables: topics, groups, offsets, and SQL92 filters."""

    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    filters: ConsumerFilterManager


class QueueWatch(Protocol):
    """The guard of consumer groups, as processors of consumer requests see it. Any thread."""

    def queue_used(self, group: str, topic: str, queue_id: int) -> None:
        """Record that a member of a group read from a queue, or committed an offset of it."""

    def begun_at_first(self, group: str, topic: str, queue_id: int) -> None:
        """Record that a group without an offset in a queue was told to begin at 0."""
