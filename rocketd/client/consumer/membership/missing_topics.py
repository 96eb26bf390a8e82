"""The subscribed topics that have no route yet: a consumer looks for them until they come.

Counterpart: Apache's consumer logs a missing route at its start, and asks again every 30 s.

A consumer may start before its topics, brokers and name servers. The log names the missing topics at once and then every
30 s. The first looks follow each other quickly, because a topic is often created a moment later.
"""

from collections.abc import Awaitable, Iterable
from typing import Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketd.client.consumer.options.member_options import MemberOptions
from rocketd.client.errors import NoBrokerError, NoNameServerError, RocketMQError, TopicNotFoundError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.queries.topics import create_topic
from rocketd.common.event_loop import timers
from rocketd.common.names import RETRY_PREFIX
from rocketd.remoting.bodies.tables import SubscriptionData

FIRST_LOOK_SECONDS = 0.5
LOOK_SECONDS = 5.0
"""Longest pause between two looks."""

TELL_SECONDS = 30.0

ROUTE_LOOKS = 5
"""Number of times a look asks again for a topic unknown to the name servers."""

ROUTE_LOOK_SECONDS = 0.1


class Waits(Protocol):
    """The methods of a consumer needed here."""

    instance: ClientInstance
    group: str
    subscriptions: dict[str, SubscriptionData]

    @property
    def options(self) -> MemberOptions:
        """The options of the consumer."""

    def topics_found(self, topics: list[str]) -> Awaitable[None]:
        """Begin with topics that were missing."""


class MissingTopics:
    """The missing topics of one consumer. Reactor thread."""

    log = Logger()

    def __init__(self, consumer: Waits) -> None:
        self._consumer = consumer
        self._missing: set[str] = set()
        self._error: RocketMQError | None = None
        self._told_at = 0.0
        self._pause = FIRST_LOOK_SECONDS
        self._timer: IDelayedCall | None = None
        self._looking: Deferred[None] | None = None
        self._stopped = False

    def covers(self, topic: str) -> bool:
        """Whether a topic has no route yet. The retry topic counts as missing while all others are."""
        if topic in self._missing:
            return True
        others = [other for other in self._consumer.subscriptions if not other.startswith(RETRY_PREFIX)]
        return topic.startswith(RETRY_PREFIX) and bool(others) and all(other in self._missing for other in others)

    async def find(self, topics: Iterable[str]) -> None:
        """Look for topics. Wait for those that are missing, unless the options say otherwise.

        Raises NoRouteError for a missing topic with ``missing="raise"``, and if the addresses of the name servers are
        wrong. A topic unsubscribed meanwhile is left out.
        """
        error: RocketMQError | None = None
        raises = self._consumer.options.missing == "raise"
        subscriptions = self._consumer.subscriptions
        added = False
        for topic in topics:
            if topic not in subscriptions:
                continue
            if not isinstance(error, NoNameServerError | NoBrokerError):  # those concern all topics
                try:
                    await self._find(topic)
                    continue
                except RocketMQError as found:
                    if (raises and topic in subscriptions) or self._consumer.instance.is_misled(found):
                        raise
                    error = found
                    if topic not in subscriptions:
                        continue
            added = True
            self._missing.add(topic)
        if added:
            self._error = error
            self._pause = FIRST_LOOK_SECONDS
            self._tell()
            self._look_later()

    async def _find(self, topic: str) -> None:
        """Look for a topic, and create it if the options say so.

        A topic created by its first message is registered a little later, so it is waited for a moment.
        """
        consumer = self._consumer
        routes = consumer.instance.routes
        created = consumer.options.missing != "create"
        for _ in range(ROUTE_LOOKS):
            try:
                await routes.subscribe_queues(topic)
                return
            except TopicNotFoundError:
                if not created and topic in consumer.subscriptions:
                    created = True
                    await create_topic(consumer.instance, topic)
                    self.log.info("group {group}: created topic {topic}", group=consumer.group, topic=topic)
                await timers.deferLater(consumer.instance.reactor, ROUTE_LOOK_SECONDS, lambda: None)
        await routes.subscribe_queues(topic)

    def forget(self, topic: str) -> None:
        """Wait for a topic no longer."""
        self._missing.discard(topic)

    def stop(self) -> None:
        """Wait for nothing more."""
        self._stopped = True
        self._missing.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._looking is not None:
            self._looking.cancel()

    # ------------------------------------------------------------ within

    def _tell(self) -> None:
        reactor = self._consumer.instance.reactor
        self._told_at = reactor.seconds()
        self.log.warn(
            "group {group} waits for topic {topics}: {error}",
            group=self._consumer.group,
            topics=", ".join(sorted(self._missing)),
            error=self._error,
        )

    def _look_later(self) -> None:
        if self._missing and self._timer is None and self._looking is None and not self._stopped:
            self._timer = self._consumer.instance.reactor.callLater(self._pause, self._look)
            self._pause = min(2 * self._pause, LOOK_SECONDS)

    def _look(self) -> None:
        self._timer = None
        self._looking = Deferred.fromCoroutine(self._look_once())
        self._looking.addErrback(self._failed)
        self._looking.addCallback(self._looked)

    def _failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self.log.failure("looking for missing topics failed", failure)

    def _looked(self, _: object) -> None:
        self._looking = None
        self._look_later()

    async def _look_once(self) -> None:
        consumer = self._consumer
        found: list[str] = []
        for topic in sorted(self._missing):
            if topic not in self._missing:  # unsubscribed meanwhile
                continue
            try:
                await self._look_for(topic)
            except RocketMQError as error:
                self._error = error
                if isinstance(error, NoNameServerError | NoBrokerError):
                    break
                continue
            if topic in self._missing and topic in consumer.subscriptions:
                found.append(topic)
            self._missing.discard(topic)
        if found:
            self.log.info("group {group}: found topic {topics}", group=consumer.group, topics=", ".join(found))
            await consumer.topics_found(found)
        if self._missing and consumer.instance.reactor.seconds() - self._told_at >= TELL_SECONDS:
            self._tell()

    async def _look_for(self, topic: str) -> None:
        consumer = self._consumer
        routes = consumer.instance.routes
        try:
            await routes.subscribe_queues(topic)
        except TopicNotFoundError:
            if consumer.options.missing != "create" or topic not in consumer.subscriptions:
                raise
            await create_topic(consumer.instance, topic)
            await routes.subscribe_queues(topic)
