"""The time at which a group begins with its topics, for consumers with ``begin="latest"``.

"Latest" is one point in time for the whole group, not the time at which each queue is found. A queue without a stored offset
can have appeared later, or its offset was lost with its broker. Its end would leave out messages that belong to the group.

Counterpart: none. Apache's clients begin at the end of each queue, whenever they find it.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Protocol

from twisted.logger import Logger

from rocketd.client.consumer.membership.missing_topics import CLOCK_SKEW_SECONDS, MissingTopics
from rocketd.client.consumer.offsets.offset_store import OffsetStore
from rocketd.client.consumer.options.member_options import MemberOptions
from rocketd.client.errors import RocketMQError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.common.names import RETRY_PREFIX
from rocketd.protocol import offsets
from rocketd.remoting.bodies.tables import MessageQueue

SETTLE_SECONDS = 10.0
"""Time for which other members may be storing the first offsets of their queues."""


class Begins(Protocol):
    """The attributes of a consumer needed here."""

    instance: ClientInstance
    group: str
    offsets: OffsetStore
    missing: MissingTopics

    @property
    def options(self) -> MemberOptions:
        """The options of the consumer."""

    def chosen(self, topic: str) -> set[MessageQueue] | None:
        """Return the queues chosen by the application; None if the group shares them."""


class GroupBeginning:
    """The place at which a consumer begins in queues without an offset of its group. Reactor thread."""

    log = Logger()

    def __init__(self, consumer: Begins) -> None:
        self._consumer = consumer
        self._joined_ms = 0.0
        self._settled_at = 0.0
        self._consumed: set[str] = set()
        """Topics with offsets of the group from before this consumer joined."""
        self._shared: set[str] = set()
        """Topics with a first share taken here."""

    async def join(self, topics: Iterable[str]) -> None:
        """Find the topics with offsets of the group, before other members know of this one.

        The others still consume all queues then. So a group with an offset of a topic has one of each queue, except the
        later ones. A broker that does not answer counts as one without offsets; this is logged.
        """
        self._joined_ms = self._consumer.instance.now_ms()
        self._settled_at = self._consumer.instance.reactor.seconds() + SETTLE_SECONDS
        if self._consumer.options.begin != "latest":
            return
        for topic in topics:
            if (
                not topic.startswith(RETRY_PREFIX)
                and self._is_shared(topic)
                and not self._consumer.missing.covers(topic)
                and await self._is_consumed(topic)
            ):
                self._consumed.add(topic)

    def place_of(self, topic: str) -> str | datetime:
        """Return the place to begin in a queue of a topic: ``earliest``, ``latest``, or a time.

        - A queue of a topic that the group consumed before is a later one, so all its messages belong to the group.
        - A queue outside of the first share belongs to the group from the time at which this consumer joined.

        Raises RocketMQError as long as another member may be storing the offset of the queue, because the group has begun
        just now.
        """
        begin = self._consumer.options.begin
        if begin != "latest" or topic.startswith(RETRY_PREFIX):
            return begin
        if topic in self._consumed:
            if not self._consumer.options.broadcast and self._consumer.instance.reactor.seconds() < self._settled_at:
                raise RocketMQError(f"another member of group {self._consumer.group} may be storing it")
            return "earliest"
        late = self._consumer.missing.begin_of(topic)
        if late is not None:
            return late
        if topic in self._shared and self._is_shared(topic):
            return datetime.fromtimestamp(self._joined_ms / 1000 - CLOCK_SKEW_SECONDS, UTC)
        return begin

    def taken(self, queues: Iterable[MessageQueue]) -> None:
        """Note that a share with these queues is taken."""
        self._shared.update(queue.topic for queue in queues)

    def _is_shared(self, topic: str) -> bool:
        """Whether the group shares a topic. Queues that the application chooses have nothing to do with each other."""
        return self._consumer.chosen(topic) is None

    async def _is_consumed(self, topic: str) -> bool:
        consumer = self._consumer
        if consumer.options.broadcast:
            return bool(consumer.offsets.clone(topic))
        instance = consumer.instance
        key = f"{topic}@{consumer.group}"
        try:
            queues = {queue.broker_name: queue for queue in await instance.routes.subscribe_queues(topic)}
            for name, queue in queues.items():
                # The table of all groups may be large. Most groups have an offset here, and do not need it.
                if (await instance.answer_for_group(name, offsets.group_offset(consumer.group, queue)) or 0) > 0:
                    return True
            for name in queues:
                if key in await instance.answer_for_group(name, offsets.group_offsets()):
                    return True
        except RocketMQError as error:
            self.log.warn(
                "cannot find out whether group {group} has consumed {topic} before: {error}",
                group=consumer.group,
                topic=topic,
                error=error,
            )
        return False
