"""One consumer for each group of a broker, however many subscribers the group has.

All members of a group must have the same subscriptions, as the documentation of `DefaultMQPushConsumer` (Apache)
demands. Two consumers for two subscribers would break this rule.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from faststream.exceptions import SetupError

from rocketd.client import aio
from rocketd.client.consumer.options.subscription import Sql
from rocketd.client.consumer.retries.handler_results import Retry
from rocketd.client.errors import BrokerUnreachableError, NoRouteError, TopicNotFoundError
from rocketd.client.faces.lifecycle import engine_of
from rocketd.client.hooks import ConsumerHook
from rocketd.faststream.base.message import Raw
from rocketd.faststream.base.options import ConsumeOptions
from rocketd.faststream.base.settlement import Answer

GONE_SECONDS = 5.0
"""How long a subscriber that leaves while its group goes on waits for the release of its queues."""

GONE_LOOK_SECONDS = 0.02


class Member(Protocol):
    """The view of a subscriber in this module."""

    @property
    def topics(self) -> Sequence[str]:
        """The subscribed topics."""

    @property
    def group(self) -> str:
        """The consumer group."""

    wanted: str | Sql | None
    batch: int
    options: ConsumeOptions

    async def deliver(self, raw: object) -> Answer:
        """Handle a message, or a list of messages, and return the outcome."""


@dataclass(frozen=True, kw_only=True)
class ConsumerSettings:
    """Settings that all consumers of a broker share.

    ``client_options`` locate the cluster; ``grace`` is the time that closing waits for handlers, in seconds. ``admin``
    creates missing topics; None leaves them missing.
    """

    client_options: Mapping[str, Any]
    grace: float
    consume_hooks: Sequence[ConsumerHook] = ()
    admin: aio.Admin | None = None


class _Seat:
    """A member's place in its group. Deliveries wait until the member has started."""

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

        Raises SetupError if they cannot share a consumer, and the errors of the client's ``open``.
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
        if settings.admin is not None:
            options.setdefault("missing", "create")
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
        """Start to deliver messages to a member. A new member gets its share of the queues a moment later."""
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
        """Stop delivering to a member. False if it was the last, so that the caller must close the consumer."""
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
        return bool(self._seats)  # another member may have left meanwhile

    @property
    def closing(self) -> bool:
        """Whether closing has begun."""
        return self._closing is not None

    async def close(self) -> None:
        """Let handlers end, store the offsets and leave the group. Further callers wait for the same close."""
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
                with suppress(BrokerUnreachableError):  # the brokers with a master have it now
                    await admin.create_topic(topic)
            except NoRouteError as error:
                if engine_of(admin).instance.is_misled(error):
                    raise
                return  # the consumer waits for the cluster, and creates the topics then

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
            return Retry(reason=f"this process no longer has a subscriber of {topic}")
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
        """Declare the members that join within this block, so that a consumer starts with all topics of its group."""
        self._expected = list(members)
        try:
            yield
        finally:
            self._expected = ()

    @contextmanager
    def stopping(self) -> Iterator[None]:
        """Mark a stop of all members: within this block, a consumer closes with the first member that leaves."""
        self._stopping = True
        try:
            yield
        finally:
            self._stopping = False

    async def join(self, member: Member, settings: ConsumerSettings) -> None:
        """Start to deliver messages to a member. Raises the errors of ``GroupConsumer.open``."""
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
        """Stop delivering to a member.

        True if this closed the consumer: its handlers have then ended, or their grace time is over.
        """
        consumer = self._consumers.get(member.group)
        if consumer is None or (not self._stopping and await consumer.leave(member)):
            return False
        await self._close(member.group, consumer)
        return True

    async def close(self) -> None:
        """Close all consumers."""
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
