"""Shares the queues of a group's topics among its members, again and again.

Answers to RebalanceService and RebalanceImpl. Reactor thread.
"""

from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketd.client.consumer.allocation import sort_client_ids, sort_queues
from rocketd.client.consumer.member_options import MemberOptions
from rocketd.client.errors import (
    BrokerError,
    RequestTimeoutError,
    RocketMQError,
    TopicNotFoundError,
    UnreachableError,
    check_response,
)
from rocketd.client.gathering import all_of
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.common.names import RETRY_PREFIX
from rocketd.remoting.bodies import (
    CheckClientRequestBody,
    GetConsumerListByGroupResponseBody,
    MessageQueue,
    SubscriptionData,
)
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.headers import ConsumerGroupRequestHeader

SQL92 = "SQL92"


class Shares(Protocol):
    """The consumer, as this needs it."""

    instance: ClientInstance
    group: str
    subscriptions: dict[str, SubscriptionData]
    assigned: dict[MessageQueue, Any]

    @property
    def options(self) -> MemberOptions:
        """What it was told."""

    def chosen(self, topic: str) -> set[MessageQueue] | None:
        """Return the queues that the application has chosen itself; None where the group shares them."""

    async def take(self, queue: MessageQueue) -> bool:
        """Begin with a queue; False when that cannot be done now. Raises RequestTimeoutError and UnreachableError."""

    async def give_up(self, queue: MessageQueue) -> None:
        """End with a queue."""


class Rebalance:
    """The sharing of one consumer."""

    log = Logger()

    def __init__(self, consumer: Shares) -> None:
        self._consumer = consumer
        self._running: Deferred[None] | None = None
        self._again = False
        self._stopped = False
        self._asking: set[Deferred[RemotingCommand]] = set()

    def soon(self) -> None:
        """Share anew; once more when that is under way."""
        if self._stopped:
            return
        if self._running is not None:
            self._again = True
            return
        self._running = Deferred.fromCoroutine(self.run())
        self._running.addErrback(self._failed)
        self._running.addBoth(self._ended)

    async def now(self) -> None:
        """Share anew, and wait until that is done."""
        self.soon()
        if self._running is not None:
            await self._running

    async def stop(self) -> None:
        """Share no more; returns when nothing is under way. It does not wait to be told who is in the group."""
        self._stopped = True
        for asking in list(self._asking):
            asking.cancel()
        if self._running is not None:
            await self._running

    def _failed(self, failure: Failure) -> Failure | None:
        if failure.check(CancelledError) is not None:
            return failure  # for who waited for it, and was cancelled
        self.log.failure("rebalancing failed", failure)
        return None

    def _ended(self, result: Failure | None) -> Failure | None:
        self._running = None
        if self._again:
            self._again = False
            self.soon()
        return result

    async def run(self) -> None:
        """Share all topics once. What cannot be shared now stays as it is, and is logged."""
        consumer = self._consumer
        for topic in [queue.topic for queue in consumer.assigned]:
            if topic not in consumer.subscriptions:
                await self._set_share(topic, set())
        for topic in list(consumer.subscriptions):
            if self._stopped:
                return
            try:
                await self._rebalance_topic(topic)
            except RocketMQError as error:
                # The retry topic is made by the broker, after the first heartbeat.
                if not (topic.startswith(RETRY_PREFIX) and isinstance(error, TopicNotFoundError)):
                    self.log.warn("rebalancing {topic}: {error}", topic=topic, error=error)

    async def _rebalance_topic(self, topic: str) -> None:
        share = await self.share_of(topic)
        if share is not None:
            await self._set_share(topic, share)

    async def share_of(self, topic: str) -> set[MessageQueue] | None:
        """Return this member's share of a topic's queues now; None when no broker knows anybody of the group.

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
        # Brokers list a member twice that has connected anew, as long as they do not know that its old connection is dead.
        # Taken for two, one of them would leave its share to nobody.
        once = sort_client_ids(set(members))
        return set(consumer.options.allocation(consumer.group, client_id, queues, once))

    async def _set_share(self, topic: str, share: set[MessageQueue]) -> None:
        consumer = self._consumer
        for queue in [queue for queue in consumer.assigned if queue.topic == topic and queue not in share]:
            self.log.info("{group} gives up {queue}", group=consumer.group, queue=queue)
            await consumer.give_up(queue)
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in sorted(share - consumer.assigned.keys()):
            by_broker.setdefault(queue.broker_name, []).append(queue)
        await all_of(self._take(queues) for queues in by_broker.values())

    async def _take(self, queues: list[MessageQueue]) -> None:
        """Begin with queues of one broker; where it does not answer, the others of its queues wait for the next time."""
        for queue in queues:
            if self._stopped:
                return
            try:
                taken = await self._consumer.take(queue)
            except (RequestTimeoutError, UnreachableError) as error:
                self.log.warn("{queue} and what follows is not taken now: {error}", queue=queue, error=error)
                return
            if taken:
                self.log.info("{group} takes {queue}", group=self._consumer.group, queue=queue)

    async def _members(self, broker_names: list[str]) -> list[str] | None:
        """Ask a broker who is in the group (38); None when none knows anybody."""
        consumer = self._consumer
        header = ConsumerGroupRequestHeader(consumer_group=consumer.group)
        for broker_name in broker_names:
            if self._stopped:
                return None
            address = consumer.instance.master(broker_name)
            asking = Deferred.fromCoroutine(
                consumer.instance.ask(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
            )
            self._asking.add(asking)
            try:
                response = await asking
            except CancelledError:
                if not self._stopped:
                    raise
                return None
            except RocketMQError as error:
                if not getattr(consumer.instance.reactor, "running", True):
                    return None  # the process ends, and its connections with it
                self.log.warn("who is in the group: {error}", error=error)
                continue
            finally:
                self._asking.discard(asking)
            if response.code == ResponseCode.SYSTEM_ERROR:  # it knows nobody
                continue
            check_response(address, response)
            return GetConsumerListByGroupResponseBody.decode(response.body).consumer_id_list
        return None

    async def check_expressions(self) -> None:
        """Have a broker of each topic check its SQL92 expression (46). Raises BrokerError for one that it refuses."""
        consumer = self._consumer
        for topic, subscription in consumer.subscriptions.items():
            if subscription.expression_type != SQL92:
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
