"""The place at which a group begins in its queues, for consumers with ``begin="latest"``.

"Latest" is one point in time for each topic of the group, not the time at which each queue is found. A queue without a
stored offset can have appeared later, or its offset was lost with its broker. Its end would leave out messages that belong
to the group.

Counterpart: none. Apache's clients begin at the end of each queue, whenever they find it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from twisted.logger import Logger

from rocketd.client.consumer.membership.missing_topics import MissingTopics
from rocketd.client.consumer.offsets.offset_store import OffsetStore
from rocketd.client.consumer.options.member_options import MemberOptions
from rocketd.client.errors import RocketMQError, TopicNotFoundError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.common.names import RETRY_PREFIX
from rocketd.protocol import offsets
from rocketd.remoting.bodies.tables import MessageQueue

CLOCK_SKEW_SECONDS = 10.0
"""Assumed difference between the clocks of this client and of a broker."""

FIRST_OFFSETS_SECONDS = 10.0
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


@dataclass
class TopicBeginning:
    """The beginning of a group in one topic, as far as a consumer knows it."""

    since_ms: float
    """Time of the subscription. All messages stored from then on belong to the group."""
    others_done_at: float
    """Time of the reactor from which on no other member stores the first offset of a queue any more."""
    is_late: bool = False
    """Whether messages may have been sent since the subscription, so that the end of a queue would leave them out."""
    is_consumed: bool | None = None
    """Whether the group had offsets of the topic before this consumer subscribed to it; None if this is not known yet."""


class GroupBeginning:
    """The places at which a consumer begins in queues without an offset of its group. Reactor thread."""

    log = Logger()

    def __init__(self, consumer: Begins) -> None:
        self._consumer = consumer
        self._topics: dict[str, TopicBeginning] = {}

    def add(self, topic: str) -> None:
        """Note the time of the subscription to a topic, unless the consumer has it already."""
        if (
            self._consumer.options.begin == "latest"
            and not topic.startswith(RETRY_PREFIX)
            and topic not in self._topics
        ):
            instance = self._consumer.instance
            self._topics[topic] = TopicBeginning(instance.now_ms(), instance.reactor.seconds() + FIRST_OFFSETS_SECONDS)

    def forget(self, topic: str) -> None:
        """Forget a topic that is no longer subscribed."""
        self._topics.pop(topic, None)

    async def ask(self, topics: Iterable[str]) -> None:
        """Find out whether the group has offsets of topics, before other members know of this one.

        The others still consume all queues then. So a group with an offset of a topic has one of each queue, except the
        later ones. A broker that does not answer counts as one without offsets; this is logged. A missing topic has none.
        """
        for topic in topics:
            beginning = self._topics.get(topic)
            if beginning is None or beginning.is_consumed is not None:
                continue
            beginning.is_late = self._consumer.missing.covers(topic)
            beginning.is_consumed = self._is_shared(topic) and not beginning.is_late and await self._is_consumed(topic)

    def rebalanced(self, topics: Iterable[str]) -> None:
        """Note that a rebalance of topics is over. What it did not take is late, because the application goes on."""
        for topic in topics:
            beginning = self._topics.get(topic)
            if beginning is not None and beginning.is_consumed is not None and self._is_shared(topic):
                beginning.is_late = True

    def place_of(self, topic: str) -> str | datetime:
        """Return the place to begin in a queue of a topic: ``earliest``, ``latest``, or a time.

        - A queue of a topic that the group consumed before is a later one, so all its messages belong to the group.
        - A queue that is taken late belongs to the group from the time of the subscription.

        Raises RocketMQError as long as it is not known whether the group consumed the topic before, and as long as another
        member may be storing the offset of the queue, because the group has begun just now.
        """
        consumer = self._consumer
        beginning = self._topics.get(topic)
        if beginning is None:
            return consumer.options.begin
        if beginning.is_consumed is None:
            raise RocketMQError(f"it is not known yet whether group {consumer.group} has consumed {topic} before")
        if beginning.is_consumed:
            if not consumer.options.broadcast and consumer.instance.reactor.seconds() < beginning.others_done_at:
                raise RocketMQError(f"another member of group {consumer.group} may be storing it")
            return "earliest"
        if beginning.is_late:
            return datetime.fromtimestamp(beginning.since_ms / 1000 - CLOCK_SKEW_SECONDS, UTC)
        return consumer.options.begin

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
        except TopicNotFoundError:
            return False
        except RocketMQError as error:
            self.log.warn(
                "cannot find out whether group {group} has consumed {topic} before: {error}",
                group=consumer.group,
                topic=topic,
                error=error,
            )
        return False
