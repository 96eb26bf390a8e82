"""Reading the state of a broker: 28, 43, 45, 202, 203, 204, 300, 305, 328, 351, 352.

- 28: runtime information. 43, 45: offsets. 202: queues of a topic. 203, 204, 328: clients.
- 300: groups of a topic. 305: system topics. 351, 352: one topic, one group, as tools of 5.x ask.

Counterpart: the reading requests of `AdminBrokerProcessor` (Apache).
"""

from collections.abc import Callable

from zope.interface import implementer

from rocketd.broker.admin.parts import AdminParts
from rocketd.broker.admin.runtime_info import RuntimeInfo
from rocketd.broker.clients.client import ClientChannelInfo
from rocketd.remoting.bodies.admin import (
    ConnectionInfo,
    ConsumerConnection,
    GroupList,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    TopicOffset,
    TopicStatsTable,
)
from rocketd.remoting.bodies.tables import (
    Body,
    KVTable,
    MessageQueue,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicList,
)
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers.client import (
    ConsumerGroupRequestHeader,
    GroupRequestHeader,
    ProducerGroupRequestHeader,
    TopicRequestHeader,
    read_header,
)
from rocketd.remoting.interfaces import IRequestContext, IRequestProcessor
from rocketd.remoting.wire.codes import LanguageCode, RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand


@implementer(IRequestProcessor)
class AdminStateProcessor:
    """Reads the broker's tables. ``process`` may run in several threads at once."""

    def __init__(self, broker: AdminParts) -> None:
        self._broker = broker
        self._runtime_info = RuntimeInfo(broker)
        self._methods: dict[int, Callable[[RemotingCommand], Body]] = {
            RequestCode.GET_BROKER_RUNTIME_INFO: lambda _: KVTable(self._runtime_info.table()),
            RequestCode.GET_ALL_CONSUMER_OFFSET: lambda _: broker.offsets.snapshot(),
            RequestCode.GET_ALL_DELAY_OFFSET: lambda _: broker.delay_offsets(),
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: lambda _: TopicList(sorted(broker.topics.system_topics)),
            RequestCode.GET_TOPIC_STATS_INFO: self._topic_stats,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self._producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self._all_producers,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._groups_of_topic,
            RequestCode.GET_TOPIC_CONFIG: self._topic,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._group,
        }

    def process(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        """Handle one request; see IRequestProcessor."""
        return RemotingCommand.response(body=self._methods[request.code](request).encode())

    def _topic_stats(self, request: RemotingCommand) -> TopicStatsTable:
        topic = read_header(TopicRequestHeader, request).topic
        config = self._broker.topics.select(topic)
        if config is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        store, broker_name = self._broker.store, self._broker.settings.broker.broker_name
        table = {}
        for queue_id in range(config.write_queue_nums):
            first = max(0, store.get_min_offset(topic, queue_id))
            end = max(0, store.get_max_offset(topic, queue_id))
            last_update = store.get_store_time(topic, queue_id, end - 1) if end else 0
            table[MessageQueue(topic, broker_name, queue_id)] = TopicOffset(first, end, last_update)
        return TopicStatsTable(table)

    def _consumer_connections(self, request: RemotingCommand) -> ConsumerConnection:
        group = read_header(ConsumerGroupRequestHeader, request).consumer_group
        info = self._broker.consumers.find(group)
        if info is None:
            raise RequestError(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
        return ConsumerConnection(
            connection_set=_connections(info.clients()),
            subscription_table=dict(info.subscriptions),
            consume_type=info.consume_type,
            message_model=info.message_model,
            consume_from_where=info.consume_from_where,
        )

    def _producer_connections(self, request: RemotingCommand) -> ProducerConnection:
        group = read_header(ProducerGroupRequestHeader, request).producer_group
        clients = self._broker.producers.clients(group)
        if not clients:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        return ProducerConnection(_connections(clients))

    def _all_producers(self, request: RemotingCommand) -> ProducerTableInfo:
        wall_ms = self._broker.now_ms() - self._broker.clock_ms()
        return ProducerTableInfo(
            {
                group: [
                    ProducerInfo(
                        client.client_id,
                        f"/{client.connection.address}",
                        LanguageCode(client.language),
                        client.version,
                        wall_ms + client.last_update,
                    )
                    for client in clients
                ]
                for group, clients in self._broker.producers.all_clients().items()
            }
        )

    def _topic(self, request: RemotingCommand) -> TopicConfig:
        topic = read_header(TopicRequestHeader, request).topic
        config = self._broker.topics.select(topic)
        if config is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        return config

    def _group(self, request: RemotingCommand) -> SubscriptionGroupConfig:
        config = self._broker.groups.get(read_header(GroupRequestHeader, request).group)
        if config is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return config

    def _groups_of_topic(self, request: RemotingCommand) -> GroupList:
        topic = read_header(TopicRequestHeader, request).topic
        online = self._broker.consumers.groups_of_topic(topic)
        return GroupList(sorted(online | self._broker.offsets.groups_of(topic)))


def _connections(clients: list[ClientChannelInfo]) -> list[ConnectionInfo]:
    return [
        ConnectionInfo(client.client_id, client.connection.address, LanguageCode(client.language), client.version)
        for client in clients
    ]
