"""Rebalance: shares the queues of a group's topics among its members, at intervals.

Counterpart: `RebalanceService` and `RebalanceImpl` (Apache). Reactor thread.
"""

from collections.abc import Coroutine, Iterable
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketd.client.consumer.allocation import sort_client_ids, sort_queues
from rocketd.client.consumer.membership.missing_topics import MissingTopics
from rocketd.client.consumer.options.member_options import MemberOptions
from rocketd.client.errors import (
    BrokerError,
    RequestTimeoutError,
    RocketMQError,
    TopicNotFoundError,
    UnreachableError,
    check_response,
)
from rocketd.client.instance.all_of import all_of
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.settings.config import milliseconds
from rocketd.common.event_loop import timers
from rocketd.common.names import RETRY_PREFIX
from rocketd.remoting.bodies.tables import (
    CheckClientRequestBody,
    GetConsumerListByGroupResponseBody,
    MessageQueue,
    SubscriptionData,
)
from rocketd.remoting.headers.client import ConsumerGroupRequestHeader
from rocketd.remoting.wire.codes import RequestCode, ResponseCode

SQL92 = "SQL92"

HANDOVER_SECONDS = 0.5
"""Pause before queues of a group with other members are taken.

All members hear of a change at the same time. Meanwhile the ones that give up queues let handlers end and store the offsets,
or the next member would handle the same messages again.
"""

MAX_HANDOVER_SECONDS = 3.0
"""Time from the first pause on after which queues are taken without another one, however many changes follow."""

R = TypeVar("R")


class Shares(Protocol):
    """The methods of a consumer needed here."""

    instance: ClientInstance
    group: str
    subscriptions: dict[str, SubscriptionData]
    assigned: dict[MessageQueue, Any]
    missing: MissingTopics

    @property
    def options(self) -> MemberOptions:
        """The options of the consumer."""

    def chosen(self, topic: str) -> set[MessageQueue] | None:
        """Return the queues chosen by the application; None if the group shares them."""

    async def take(self, queue: MessageQueue) -> bool:
        """Begin with a queue. Return False if this is impossible now. Raises RequestTimeoutError and UnreachableError."""

    async def announce(self) -> None:
        """Tell the application about its new queues, and begin to pull them."""

    async def give_up(self, queues: list[MessageQueue]) -> None:
        """End with queues."""

    def rebalanced(self, topics: Iterable[str]) -> None:
        """Note that a rebalance of these topics is over, whether they have a share or not."""


class Rebalance:
    """The rebalances of one consumer."""

    log = Logger()

    def __init__(self, consumer: Shares) -> None:
        self._consumer = consumer
        self._running: Deferred[None] | None = None
        self._again = False
        self._stopped = False
        self._asking: set[Deferred[Any]] = set()
        self._pause: Deferred[None] | None = None
        self._listed: set[str] = set()
        """The members last listed by a broker."""
        self._awaited: dict[str, float] = {}
        """Members not listed since a broker lost its connections, and the time since when they are missing."""
        self._planned: IDelayedCall | None = None
        self._losses: dict[str, int] = {}
        """The number of lost connections of each broker at its last list."""

    def soon(self) -> None:
        """Start a rebalance. If one is running, another follows it; if it pauses, it begins again."""
        if self._stopped:
            return
        if self._running is not None:
            self._again = True
            self._end_pause()
            return
        self._running = Deferred.fromCoroutine(self.run())
        self._running.addErrback(self._failed)
        self._running.addBoth(self._ended)

    async def now(self) -> None:
        """Rebalance, and wait for the end."""
        self.soon()
        if self._running is not None:
            await self._running

    async def stop(self) -> None:
        """Stop, and return when nothing is under way. A pending request for the members is cancelled."""
        self._stopped = True
        if self._planned is not None and self._planned.active():
            self._planned.cancel()
        for asking in list(self._asking):
            asking.cancel()
        self._end_pause()
        if self._running is not None:
            await self._running

    def _failed(self, failure: Failure) -> Failure | None:
        if failure.check(CancelledError) is not None:
            return failure  # for the waiter, which was cancelled
        self.log.failure("rebalancing failed", failure)
        return None

    def _ended(self, result: Failure | None) -> Failure | None:
        self._running = None
        if self._again:
            self._again = False
            self.soon()
        return result

    async def run(self) -> None:
        """Rebalance all topics once. A topic without a new share keeps the old one; the reason is logged.

        If another rebalance is asked for before queues of other members are taken, the shares are computed again.
        """
        consumer = self._consumer
        topics: list[str] = []
        try:
            shares: dict[str, set[MessageQueue]] = {}
            latest: float | None = None
            while True:
                self._again = False
                topics = list(consumer.subscriptions)
                shares = await self._shares(topics)
                if self._stopped:
                    return
                await self._give_up_all_but(shares)
                if not self._takes_from_others(shares):
                    break
                now = consumer.instance.reactor.seconds()
                if latest is None:
                    latest = now + MAX_HANDOVER_SECONDS
                if now >= latest:
                    break
                if not self._again:
                    await self._await_handover()
                if not self._again:
                    break
            for share in shares.values():
                if self._stopped:
                    return
                await self._take_all(share)
        finally:
            consumer.rebalanced(topics)

    async def _shares(self, topics: list[str]) -> dict[str, set[MessageQueue]]:
        """Return this member's new share of each topic's queues, without topics that keep their share."""
        consumer = self._consumer
        shares: dict[str, set[MessageQueue]] = {}
        for topic in topics:
            if self._stopped:
                break
            if consumer.missing.covers(topic):
                continue
            try:
                share = await self.share_of(topic)
            except RocketMQError as error:
                # The broker creates the retry topic after the first heartbeat.
                if not (topic.startswith(RETRY_PREFIX) and isinstance(error, TopicNotFoundError)):
                    self.log.warn("rebalancing {topic}: {error}", topic=topic, error=error)
                continue
            if share is not None:
                shares[topic] = share
        return shares

    def _takes_from_others(self, shares: dict[str, set[MessageQueue]]) -> bool:
        """Whether queues are to be taken that another member may still have."""
        return len(self._listed) > 1 and any(share - self._consumer.assigned.keys() for share in shares.values())

    async def _await_handover(self) -> None:
        """Wait until other members have given up the queues that this one takes, or until ``soon`` or ``stop``."""
        self._pause = timers.deferLater(self._consumer.instance.reactor, HANDOVER_SECONDS, lambda: None)
        try:
            await self._pause
        except CancelledError:
            if not (self._stopped or self._again):
                raise
        finally:
            self._pause = None

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()

    async def share_of(self, topic: str) -> set[MessageQueue] | None:
        """Return this member's current share of a topic's queues; None if brokers know no member of the group.

        Raises RocketMQError.
        """
        consumer = self._consumer
        queues = sort_queues(await consumer.instance.routes.subscribe_queues(topic))
        chosen = set(queues) if consumer.options.broadcast else consumer.chosen(topic)
        if chosen is not None:
            return chosen
        members = await self._members(sorted({queue.broker_name for queue in queues}))
        if members is None:
            return None
        client_id = consumer.instance.client_id
        # Brokers list a reconnected member twice until they notice the end of its old connection. Counted twice, it would
        # leave one of the two shares unread.
        once = sort_client_ids(set(members))
        return set(consumer.options.allocation(consumer.group, client_id, queues, once))

    async def _give_up_all_but(self, shares: dict[str, set[MessageQueue]]) -> None:
        """Give up the queues outside of the shares, and those of topics deleted or no longer subscribed, all at once.

        For each call, handlers get time to end. Other members do not wait for several calls.
        """
        consumer = self._consumer
        gone = [
            queue
            for queue in consumer.assigned
            if queue.topic not in consumer.subscriptions
            or queue not in shares.get(queue.topic, {queue})
            or consumer.assigned[queue].is_deleted
        ]
        if not gone:
            return
        for queue in gone:
            self.log.info("{group} gives up {queue}", group=consumer.group, queue=queue)
        await consumer.give_up(gone)

    async def _take_all(self, share: set[MessageQueue]) -> None:
        """Begin with the queues of a topic's share that are new."""
        consumer = self._consumer
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in sorted(share - consumer.assigned.keys()):
            by_broker.setdefault(queue.broker_name, []).append(queue)
        await all_of(self._take(queues) for queues in by_broker.values())
        await consumer.announce()

    async def _take(self, queues: list[MessageQueue]) -> None:
        """Begin with queues of one broker. If it does not answer, the rest of its queues waits for the next rebalance."""
        for queue in queues:
            if self._stopped:
                return
            try:
                taken = await self._consumer.take(queue)
            except (RequestTimeoutError, UnreachableError) as error:
                what = f"taking queue {queue.queue_id} of {queue.topic} and the ones after it"
                if not self._consumer.instance.outages.covers(what, error):
                    self.log.warn("{what}: {error}", what=what, error=error)
                return
            if taken:
                self.log.info("{group} takes {queue}", group=self._consumer.group, queue=queue)

    async def _members(self, broker_names: list[str]) -> list[str] | None:
        """Ask the brokers for the members of the group; None if they know no member, or not this one now."""
        for broker_name in broker_names:
            if self._stopped:
                return None
            try:
                members = await self._members_at(broker_name)
            except CancelledError:
                if not self._stopped:
                    raise
                return None
            except RocketMQError as error:
                if not getattr(self._consumer.instance.reactor, "running", True):
                    return None  # the process ends, and its connections with it
                if not self._consumer.instance.outages.covers("getting the members of the group", error):
                    self.log.warn("cannot get the members of the group: {error}", error=error)
                continue
            if members is not None:
                return members
        return None

    async def _members_at(self, broker_name: str) -> list[str] | None:
        """Ask a broker for the members of the group; None if it knows no member, or not this one now.

        A broker forgets this member with its connection. It then gets a heartbeat, and is asked again.
        """
        instance = self._consumer.instance
        members = await self._list_of(broker_name)
        if members is None or instance.client_id in members:
            return self._with_missing(broker_name, members)
        address = instance.routes.group_address(broker_name)
        if address is None or not await self._interruptible(instance.greet_again(address)):
            return None
        return self._with_missing(broker_name, await self._list_of(broker_name))

    async def _list_of(self, broker_name: str) -> list[str] | None:
        """Return a broker's members of the group (request code 38); None if it knows no member. Raises RocketMQError."""
        consumer = self._consumer
        header = ConsumerGroupRequestHeader(consumer_group=consumer.group)
        address = consumer.instance.group_broker(broker_name)
        response = await self._interruptible(
            consumer.instance.ask(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        )
        if response.code == ResponseCode.SYSTEM_ERROR:
            return None
        check_response(address, response)
        return GetConsumerListByGroupResponseBody.decode(response.body).consumer_id_list

    async def _interruptible(self, asking: Coroutine[Any, Any, R]) -> R:
        """Wait for a request, which ``stop`` cancels."""
        running = Deferred.fromCoroutine(asking)
        self._asking.add(running)
        try:
            return await running
        finally:
            self._asking.discard(running)

    def _with_missing(self, broker_name: str, members: list[str] | None) -> list[str] | None:
        """Return the members, with those that had no time to return after a broker lost its connections.

        If this member was disconnected, others were, too: perhaps the broker has begun again. Until their next
        heartbeat they still pull their queues. A member that was listed since then, and is no longer, has left.
        """
        if members is None:
            return None
        instance = self._consumer.instance
        now = instance.reactor.seconds()
        listed = set(members)
        address = instance.routes.group_address(broker_name)
        if address is None or instance.are_members_back(address):
            self._awaited.clear()
            self._losses.clear()
        elif self._losses.get(address) != (losses := instance.losses(address)):
            self._losses[address] = losses
            for member in self._listed - listed:
                self._awaited.setdefault(member, now)
        patience = milliseconds("heartbeat_interval", instance.config.heartbeat_interval) / 1000
        self._awaited = {
            member: since for member, since in self._awaited.items() if member not in listed and now - since < patience
        }
        self._listed = listed
        if self._awaited:
            self.later(min(self._awaited.values()) + patience - now)
        return [*members, *self._awaited]

    def later(self, seconds: float) -> None:
        """Start a rebalance after this time, or keep an earlier one."""
        reactor = self._consumer.instance.reactor
        if self._stopped:
            return
        if self._planned is not None and self._planned.active():
            if self._planned.getTime() <= reactor.seconds() + seconds:
                return
            self._planned.cancel()
        self._planned = reactor.callLater(seconds, self.soon)

    async def check_expressions(self, topics: Iterable[str]) -> None:
        """Have a broker of each topic check its SQL92 expression (request code 46). Raises BrokerError if it refuses.

        Missing topics are left out.
        """
        consumer = self._consumer
        for topic in list(topics):
            subscription = consumer.subscriptions.get(topic)
            if subscription is None or subscription.expression_type != SQL92 or consumer.missing.covers(topic):
                continue
            queues = await consumer.instance.routes.subscribe_queues(topic)
            body = CheckClientRequestBody(consumer.instance.client_id, consumer.group, subscription)
            for broker_name in {queue.broker_name for queue in queues}:
                try:
                    await consumer.instance.ask_broker(broker_name, RequestCode.CHECK_CLIENT_CONFIG, body=body.encode())
                except BrokerError:
                    raise
                except RocketMQError as error:
                    self.log.warn("the filter of {topic} was not checked: {error}", topic=topic, error=error)
