"""One consumer for each group of a broker, whatever the number of its subscribers.

Answers to what DefaultMQPushConsumer's documents ask for: all members of a group subscribe to the same, which two consumers
for two subscribers would not.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from faststream.exceptions import SetupError

from rocketd.client import aio
from rocketd.client.consumer.outcome import Retry
from rocketd.client.consumer.subscription import Sql
from rocketd.client.errors import TopicNotFoundError
from rocketd.client.hooks import ConsumerHook
from rocketd.faststream.message import Raw
from rocketd.faststream.options import ConsumeOptions
from rocketd.faststream.settlement import Answer

GONE_SECONDS = 5.0
"""How long a subscriber that leaves others of its group behind waits for its queues to be let go."""

GONE_LOOK_SECONDS = 0.02


class Member(Protocol):
    """A subscriber, as this needs it."""

    @property
    def topics(self) -> Sequence[str]:
        """What it consumes."""

    @property
    def group(self) -> str:
        """Its consumer group."""

    wanted: str | Sql | None
    batch: int
    options: ConsumeOptions

    async def deliver(self, raw: Any) -> Answer:
        """Handle a message, or a list of them."""


@dataclass(frozen=True, kw_only=True)
class ConsumerSettings:
    """What the consumers of a broker have in common.

    ``client_options`` say where the cluster is, ``grace`` is how long closing waits for handlers, in seconds. ``admin``
    makes topics that are missing, where they are to be made.
    """

    client_options: Mapping[str, Any]
    grace: float
    consume_hooks: Sequence[ConsumerHook] = ()
    admin: aio.Admin | None = None


class _Seat:
    """A member's place in its group: what comes for it waits until it has started."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.started = asyncio.Event()


class GroupConsumer:
    """The consumer of one group. Loop thread."""

    def __init__(self, group: str, settings: ConsumerSettings) -> None:
        self._group = group
        self._settings = settings
        self._seats: dict[str, _Seat] = {}
        self._consumer: aio.Consumer[bytes] | None = None
        self._opened = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None

    async def open(self, members: Sequence[Member]) -> None:
        """Consume the topics of these members.

        Raises SetupError when these cannot be one consumer, and what the client's ``open`` does.
        """
        try:
            self._consumer = await self._open(members)
        finally:
            self._opened.set()

    async def _open(self, members: Sequence[Member]) -> aio.Consumer[bytes]:
        first = members[0]
        for member in members:
            self._seat(member, first)
        await self._create_topics(self._seats)
        settings = self._settings
        options: dict[str, Any] = dict(first.options)
        options["consume_hooks"] = (*options.get("consume_hooks", ()), *settings.consume_hooks)
        consumer: aio.Consumer[bytes] = aio.Consumer(
            self._group,
            **settings.client_options,
            topics={topic: seat.member.wanted for topic, seat in self._seats.items()},
            handler=self._deliver,
            batch=first.batch,
            grace=settings.grace,
            **options,
        )
        return await consumer.open()

    async def join(self, member: Member) -> None:
        """Begin to give messages to a member; one that is new has its share of the queues a moment later."""
        await self._opened.wait()
        if self._consumer is None:
            raise SetupError(f"the consumer of group {self._group} did not start")
        if all(seat.member is not member for seat in self._seats.values()):
            self._seat(member, next(iter(self._seats.values())).member)
            try:
                await self._create_topics(member.topics)
                for topic in member.topics:
                    self._consumer.subscribe(topic, member.wanted)
            except BaseException:
                self._unseat(member)
                raise
        for topic in member.topics:
            self._seats[topic].started.set()

    async def leave(self, member: Member) -> bool:
        """Give no more messages to a member; False when it was the last, and the consumer has to be closed."""
        seated = [seat.member is member for seat in self._seats.values()]
        if all(seated):
            return False
        if not any(seated):
            return True
        if self._consumer is not None:
            for topic in member.topics:
                self._consumer.unsubscribe(topic)
            await self._until_gone(set(member.topics))
        self._unseat(member)
        return bool(self._seats)  # another may have left meanwhile

    @property
    def closing(self) -> bool:
        """Whether it was closed, or is."""
        return self._closing is not None

    async def close(self) -> None:
        """Let handlers end, store the offsets and leave the group; others who call meanwhile wait as well."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._consumer is not None:
            await self._consumer.close()

    def _seat(self, member: Member, first: Member) -> None:
        differing = _differing(member, first)
        if differing:
            raise SetupError(
                f"subscribers of group {self._group} differ in {', '.join(differing)}: a group has one consumer, give "
                "all of them the same options, or another group"
            )
        for topic in member.topics:
            if topic in self._seats:
                raise SetupError(
                    f"group {self._group} has two subscribers of topic {topic}: give them different groups, or one "
                    "subscriber several handlers with filters"
                )
        self._seats.update(dict.fromkeys(member.topics, _Seat(member)))

    def _unseat(self, member: Member) -> None:
        self._seats = {topic: seat for topic, seat in self._seats.items() if seat.member is not member}

    async def _create_topics(self, topics: Iterable[str]) -> None:
        admin = self._settings.admin
        if admin is None:
            return
        for topic in topics:
            try:
                await admin.fetch_subscribe_queues(topic)
            except TopicNotFoundError:
                await admin.create_topic(topic)

    async def _until_gone(self, topics: set[str]) -> None:
        assert self._consumer is not None
        try:
            async with asyncio.timeout(GONE_SECONDS):
                while any(queue.topic in topics for queue in self._consumer.queues()):
                    await asyncio.sleep(GONE_LOOK_SECONDS)
        except TimeoutError:
            pass

    async def _deliver(self, raw: Raw | list[Raw]) -> Answer:
        topic = raw[0].topic if isinstance(raw, list) else raw.topic
        seat = self._seats.get(topic)
        if seat is None:
            return Retry(reason=f"no subscriber of {topic} is here any more")
        await seat.started.wait()
        return await seat.member.deliver(raw)


class Groups:
    """The consumers of a broker. Loop thread."""

    def __init__(self) -> None:
        self._consumers: dict[str, GroupConsumer] = {}
        self._expected: Sequence[Member] = ()
        self._stopping = False

    @contextmanager
    def starting(self, members: Iterable[Member]) -> Iterator[None]:
        """All of these join in this block, so that a consumer begins with all topics of its group."""
        self._expected = list(members)
        try:
            yield
        finally:
            self._expected = ()

    @contextmanager
    def stopping(self) -> Iterator[None]:
        """All leave in this block."""
        self._stopping = True
        try:
            yield
        finally:
            self._stopping = False

    async def join(self, member: Member, settings: ConsumerSettings) -> None:
        """Begin to give messages to a member. Raises as ``GroupConsumer.open`` does."""
        consumer = self._consumers.get(member.group)
        if consumer is not None and consumer.closing:
            await self._close(member.group, consumer)
            consumer = self._consumers.get(member.group)
        if consumer is None:
            consumer = self._consumers[member.group] = GroupConsumer(member.group, settings)
            mates = [mate for mate in self._expected if mate.group == member.group]
            try:
                await consumer.open(mates if member in mates else [member])
            except BaseException:
                del self._consumers[member.group]
                raise
        await consumer.join(member)

    async def leave(self, member: Member) -> bool:
        """Give no more messages to a member.

        True when that closed the consumer: then its handlers have ended, or their time is over.
        """
        consumer = self._consumers.get(member.group)
        if consumer is None or (not self._stopping and await consumer.leave(member)):
            return False
        await self._close(member.group, consumer)
        return True

    async def close(self) -> None:
        """Close all consumers that there are."""
        for group, consumer in list(self._consumers.items()):
            await self._close(group, consumer)

    async def _close(self, group: str, consumer: GroupConsumer) -> None:
        await consumer.close()
        if self._consumers.get(group) is consumer:
            del self._consumers[group]


def _differing(one: Member, other: Member) -> list[str]:
    theirs = {**other.options, "batch": other.batch}
    ours = {**one.options, "batch": one.batch}
    return sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
