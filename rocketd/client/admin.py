"""Administers a cluster: topics, groups, offsets, and messages that are looked for.

Answers to MQAdminImpl, and to the most used functions of DefaultMQAdminExtImpl. Unlike there, a topic can be created where
no broker makes topics by itself, and an id is taken for a message's place only when a broker is there.
"""

from collections.abc import Iterable
from datetime import datetime

from twisted.logger import Logger

from rocketd.client import message_search, offset_reset, queue_questions
from rocketd.client.errors import (
    ClientClosedError,
    IllegalTopicError,
    NoBrokerError,
    NotStartedError,
    RocketMQError,
    UsageError,
    check_group,
    check_response,
    check_topic,
)
from rocketd.client.gathering import all_of
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.instance.routes import MASTER
from rocketd.client.message import ReceivedMessage
from rocketd.client.namespace import queue_without_namespace, with_namespace
from rocketd.client.offset_reset import Target
from rocketd.common.names import AUTO_CREATE_TOPIC, SYSTEM_TOPICS
from rocketd.common.permission import READ, WRITE
from rocketd.common.record_host import parse_offset_message_id
from rocketd.remoting.bodies import (
    BrokerData,
    ClusterInfo,
    MessageQueue,
    SubscriptionGroupConfig,
    TopicFilterType,
    TopicList,
)
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.headers import (
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicInNamesrvRequestHeader,
    Header,
    TopicRequestHeader,
)


class Admin:
    """Administers a cluster, between ``start`` and ``stop``. All methods belong to the reactor thread.

    Every method raises NotStartedError, ClientClosedError, NoNameServerError, BrokerError for a refusal, and the errors of
    connections.
    """

    log = Logger()

    def __init__(self, instance: ClientInstance) -> None:
        self.instance = instance
        self._namespace = instance.config.namespace
        self._state: type[NotStartedError] | type[ClientClosedError] | None = NotStartedError

    async def start(self) -> None:
        """Take calls from now on."""
        self._state = None

    async def stop(self) -> None:
        """Take no more calls."""
        self._state = ClientClosedError

    # ------------------------------------------------------------ brokers

    async def brokers(self) -> list[BrokerData]:
        """Return all brokers that are registered, by name: the cluster of each, and its addresses by broker id."""
        self._check()
        response = await self.instance.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        info = ClusterInfo.decode(check_response("name server", response).body)
        return [info.broker_addr_table[name] for name in sorted(info.broker_addr_table)]

    # ------------------------------------------------------------ topics

    async def topics(self) -> list[str]:
        """Return the names of all topics, those of the system and of retries included."""
        self._check()
        response = await self.instance.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(TopicList.decode(check_response("name server", response).body).topic_list)

    async def create_topic(self, topic: str, queues: int = 4, *, cluster: str | None = None) -> None:
        """Create a topic with so many queues at each broker, or at those of one cluster; change it where there is one.

        Raises IllegalTopicError, UsageError, and NoBrokerError when there is no such broker.
        """
        self._check()
        if isinstance(queues, bool) or not isinstance(queues, int) or queues < 1:
            raise UsageError(f"queues={queues!r}: a topic has one queue or more")
        name = self._topic(topic)
        header = CreateTopicRequestHeader(
            topic=name,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=READ | WRITE,
            topic_filter_type=TopicFilterType.SINGLE_TAG.value,
            topic_sys_flag=0,
        )
        await self._tell_masters(cluster, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        self.instance.routes.forget(name)

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete a topic and its messages at all brokers and name servers, or at those of one cluster.

        Raises IllegalTopicError, and NoBrokerError when there is no such broker.
        """
        self._check()
        name = self._topic(topic)
        await self._tell_masters(cluster, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(topic=name))
        header = DeleteTopicInNamesrvRequestHeader(topic=name, cluster_name=cluster)
        servers = self.instance.remoting.name_servers.addresses
        await self._tell(servers, RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
        self.instance.routes.forget(name)

    async def fetch_publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that can be written. Raises IllegalTopicError and NoRouteError."""
        self._check()
        check_topic(topic)
        name = with_namespace(self._namespace, topic)
        await self.instance.routes.subscribe_queues(name)  # so that a topic that is missing is no template's
        return [queue_without_namespace(self._namespace, q) for q in await self.instance.routes.publish_queues(name)]

    async def fetch_subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that can be read. Raises IllegalTopicError and NoRouteError."""
        self._check()
        return await queue_questions.subscribe_queues(self.instance, topic)

    # ------------------------------------------------------------ queues

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that a queue's next message gets."""
        self._check()
        return await queue_questions.max_offset(self.instance, queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the first message that a queue has."""
        self._check()
        return await queue_questions.min_offset(self.instance, queue)

    async def search_offset(self, queue: MessageQueue, moment: datetime) -> int:
        """Return the offset of the first message stored at a moment or later, as the broker finds it."""
        self._check()
        return await queue_questions.search_offset(self.instance, queue, moment)

    async def earliest_message_time(self, queue: MessageQueue) -> datetime | None:
        """Return when the first message of a queue was stored; None when it has none."""
        self._check()
        return await queue_questions.earliest_message_time(self.instance, queue)

    # ------------------------------------------------------------ messages

    async def view_message(self, topic: str, message_id: str) -> ReceivedMessage[bytes] | None:
        """Return the message with this id, the unique one or that of its place; None when there is none.

        Raises IllegalTopicError and NoRouteError.
        """
        place = parse_offset_message_id(message_id)
        if place is not None:
            address, physical_offset = place
            for broker in await self.brokers():
                if address in broker.broker_addrs.values():
                    return await message_search.at_place(self.instance, broker.broker_name, address, physical_offset)
        return await self.query_message_by_unique_key(topic, message_id)

    async def query_message(
        self,
        topic: str,
        key: str,
        max_messages: int = 32,
        begin: datetime | None = None,
        end: datetime | None = None,
    ) -> list[ReceivedMessage[bytes]]:
        """Return messages of a topic with a key, stored between two moments, ``max_messages`` of each broker at most.

        A broker that cannot be asked is logged. Raises IllegalTopicError and NoRouteError.
        """
        self._check()
        return await message_search.by_key(self.instance, topic, key, max_messages, begin, end)

    async def query_message_by_unique_key(self, topic: str, unique_key: str) -> ReceivedMessage[bytes] | None:
        """Return the message with a unique key, the one stored first where there are several; None when there is none.

        Raises IllegalTopicError and NoRouteError.
        """
        self._check()
        return await message_search.by_unique_key(self.instance, topic, unique_key)

    # ------------------------------------------------------------ groups

    async def create_group(
        self, group: str, *, retry_max_times: int = 16, broadcast: bool = True, cluster: str | None = None
    ) -> None:
        """Create a consumer group at all brokers, or at those of one cluster; change it where there is one.

        ``broadcast`` says whether it may consume in that model. Raises IllegalGroupError and NoBrokerError.
        """
        self._check()
        config = SubscriptionGroupConfig(
            self._group(group), retry_max_times=retry_max_times, consume_broadcast_enable=broadcast
        )
        await self._tell_masters(cluster, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode())

    async def delete_group(self, group: str, *, remove_offsets: bool = False, cluster: str | None = None) -> None:
        """Delete a consumer group at all brokers, or at those of one cluster; its retries and dead letters stay.

        Raises IllegalGroupError and NoBrokerError.
        """
        self._check()
        header = DeleteSubscriptionGroupRequestHeader(group_name=self._group(group), remove_offset=remove_offsets)
        await self._tell_masters(cluster, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def reset_offsets(self, group: str, topic: str, to: Target) -> dict[MessageQueue, int]:
        """Have a group go on from a moment, the beginning or the end of a topic's queues; return the new offsets.

        Consumers that run are told so by their brokers; for a group without any the offsets are stored. Raises
        IllegalGroupError, IllegalTopicError, UsageError and NoRouteError.
        """
        self._check()
        check_topic(topic)
        return await offset_reset.reset(self.instance, self._group(group), with_namespace(self._namespace, topic), to)

    # ------------------------------------------------------------ within

    def _check(self) -> None:
        if self._state is NotStartedError:
            raise NotStartedError("this admin is not started: start it, or use it in a with block")
        if self._state is not None:
            raise ClientClosedError("this admin is stopped: make a new one")

    def _topic(self, topic: str) -> str:
        check_topic(topic)
        if topic in SYSTEM_TOPICS:
            raise IllegalTopicError(f"topic {topic!r}: it is the system's own")
        return with_namespace(self._namespace, topic)

    def _group(self, group: str) -> str:
        check_group(group)
        return with_namespace(self._namespace, group)

    async def _tell_masters(
        self, cluster: str | None, code: RequestCode, header: Header | None = None, body: bytes | None = None
    ) -> None:
        masters = [
            broker.broker_addrs[MASTER]
            for broker in await self.brokers()
            if MASTER in broker.broker_addrs and cluster in (None, broker.cluster)
        ]
        if not masters:
            where = "no broker" if cluster is None else f"no broker of cluster {cluster}"
            raise NoBrokerError(f"{where} is registered at the name servers")
        await self._tell(masters, code, header, body)

    async def _tell(
        self, addresses: Iterable[str], code: RequestCode, header: Header | None, body: bytes | None = None
    ) -> None:
        """Ask all; what one refuses is raised when all have answered."""

        async def ask(address: str) -> RocketMQError | None:
            try:
                check_response(address, await self.instance.ask(address, code, header, body))
            except RocketMQError as error:
                return error
            return None

        for error in await all_of(ask(address) for address in addresses):
            if error is not None:
                raise error
