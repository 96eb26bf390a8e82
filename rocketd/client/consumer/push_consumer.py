"""Consumes topics as one member of a group: takes its share of the queues and gives it up again.

Answers to DefaultMQPushConsumer and RebalancePushImpl, in the clustering model. Small as yet: each queue is consumed in
order, without pulling ahead; every message is handed over by itself.
"""

from typing import Any

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from rocketd.client.consumer.allocation import AllocateMessageQueueAveragely, sort_client_ids, sort_queues
from rocketd.client.consumer.queue_consumer import MessageListener, QueueConsumer
from rocketd.client.consumer.subscription import subscription_of
from rocketd.client.errors import BrokerError, ClientError, NoRouteError, check_group
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.common.names import retry_topic
from rocketd.remoting.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    GetConsumerListByGroupResponseBody,
    MessageModel,
    MessageQueue,
    SubscriptionData,
)
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.headers import ConsumerGroupRequestHeader, write_header

REBALANCE_SECONDS = 20.0
STORE_OFFSETS_SECONDS = 5.0
TIMEOUT_MS = 3000


class PushConsumer:
    """A consumer of one group. All methods belong to the reactor thread.

    ``from_where`` says where a group begins that has no offsets yet. ``subscribe`` before ``start``. Making it raises
    IllegalGroupError for a name that no group may have.
    """

    log = Logger()

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        listener: MessageListener,
        from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    ) -> None:
        check_group(group)
        self.group = group
        self.queues: dict[MessageQueue, QueueConsumer] = {}
        self._client = client
        self._listener = listener
        self._from_where = from_where
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._loops: list[LoopingCall] = []
        self._rebalancing: Deferred[None] | None = None
        self._again = False
        self._stopped = False

    def subscribe(self, topic: str, expression: str | None = None) -> None:
        """Consume a topic's messages whose tag is in an expression like ``TagA || TagB``; all by default."""
        self._subscriptions[topic] = subscription_of(topic, expression, int(self._client.now_ms()))

    def start(self) -> Deferred[None]:
        """Join the group; fires when the first share of queues is taken.

        Fails with NoRouteError when a topic is not known, and with RemotingError when no name server answers.
        """
        return Deferred.fromCoroutine(self._start())

    def stop(self) -> Deferred[None]:
        """Finish what is being consumed, store the offsets, leave the group."""
        return Deferred.fromCoroutine(self._stop())

    def consumer_data(self) -> ConsumerData:
        """What heartbeats say of this consumer."""
        return ConsumerData(
            self.group,
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING,
            self._from_where,
            list(self._subscriptions.values()),
        )

    def rebalance_soon(self) -> None:
        """Share the queues anew; once more when that is under way."""
        if self._stopped:
            return
        if self._rebalancing is not None:
            self._again = True
            return
        self._rebalancing = ensureDeferred(self._rebalance())
        self._rebalancing.addErrback(lambda failure: self.log.failure("rebalancing failed", failure))
        self._rebalancing.addCallback(self._rebalanced)

    async def _start(self) -> None:
        for topic in list(self._subscriptions):
            await self._client.routes.subscribe_queues(topic)
        self.subscribe(retry_topic(self.group))
        self._client.consumers[self.group] = self
        await self._client.send_heartbeats()
        await self._rebalance()
        if self._stopped:
            return
        for seconds, function in (
            (REBALANCE_SECONDS, self.rebalance_soon),
            (STORE_OFFSETS_SECONDS, lambda: ensureDeferred(self._store_offsets())),
        ):
            self._repeat(seconds, function)

    async def _stop(self) -> None:
        self._stopped = True
        for consumer in self.queues.values():
            consumer.halt()
        for loop in self._loops:
            loop.stop()
        self._loops.clear()
        if self._rebalancing is not None:
            await self._rebalancing
        for consumer in list(self.queues.values()):
            await consumer.stop()
        self.queues.clear()
        if self._client.consumers.pop(self.group, None) is not None:
            await self._client.unregister(consumer_group=self.group)

    def _repeat(self, seconds: float, function: Any) -> None:
        loop = LoopingCall(function)
        loop.clock = self._client.reactor
        loop.start(seconds, now=False)
        self._loops.append(loop)

    async def _store_offsets(self) -> None:
        for consumer in list(self.queues.values()):
            await consumer.store_offset()

    # ------------------------------------------------------------ rebalancing

    def _rebalanced(self, _: object) -> None:
        self._rebalancing = None
        if self._again:
            self._again = False
            self.rebalance_soon()

    async def _rebalance(self) -> None:
        for topic in list(self._subscriptions):
            try:
                await self._rebalance_topic(topic)
            except (RemotingError, ClientError) as error:
                if topic != retry_topic(self.group):  # that one is made by the broker, after the first heartbeat
                    self.log.warn("rebalancing {topic}: {error}", topic=topic, error=error)

    async def _rebalance_topic(self, topic: str) -> None:
        queues = await self._client.routes.subscribe_queues(topic)
        if not queues:
            return
        members = await self._members(queues[0].broker_name)
        if not members:
            return
        share = AllocateMessageQueueAveragely()
        mine = set(share(self.group, self._client.client_id, sort_queues(queues), sort_client_ids(members)))
        for queue, consumer in list(self.queues.items()):
            if queue.topic == topic and queue not in mine:
                del self.queues[queue]
                await consumer.stop()
        for queue in sorted(mine - self.queues.keys()):
            if self._stopped:
                return
            consumer = QueueConsumer(
                self._client, self.group, queue, self._subscriptions[topic], self._from_where, self._listener
            )
            self.queues[queue] = consumer
            consumer.start()

    async def _members(self, broker_name: str) -> list[str] | None:
        """Ask a broker who is in the group (38); None when it knows nobody."""
        address = self._client.routes.address_of(broker_name)
        if address is None:
            raise NoRouteError(f"no address of broker {broker_name} is known")
        request = RemotingCommand(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP, write_header(ConsumerGroupRequestHeader(consumer_group=self.group))
        )
        response = await self._client.remoting.invoke_sync(address, request, TIMEOUT_MS)
        if response.code == ResponseCode.SYSTEM_ERROR:
            return None
        if response.code != ResponseCode.SUCCESS:
            raise BrokerError(address, response)
        return GetConsumerListByGroupResponseBody.decode(response.body).consumer_id_list
