"""Administration of a cluster: topics, groups, offsets, dead letters, and searches for messages.

Counterpart: `MQAdminImpl`, and the most used functions of `DefaultMQAdminExtImpl` (Apache). Unlike Apache, a topic can be
created even if brokers do not create topics themselves. A message id counts as a place only if a broker has its address.
"""

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from twisted.logger import Logger

from rocketd.client.errors import (
    ClientClosedError,
    IllegalTopicError,
    NoBrokerError,
    NotStartedError,
    UsageError,
    check_consumer_group,
    check_group,
    check_response,
    check_topic,
)
from rocketd.client.instance.all_of import errors_of, raise_first
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.message import ReceivedMessage
from rocketd.client.messages.namespace import queue_without_namespace, with_namespace
from rocketd.client.queries import accounts as account_queries
from rocketd.client.queries import inspection, name_servers, offset_reset
from rocketd.client.queries import messages as message_search
from rocketd.client.queries import queues as queue_queries
from rocketd.client.queries.accounts import BrokerAccount
from rocketd.client.queries.inspection import GroupClient, QueueEnds, QueueProgress, ServerAnswer
from rocketd.client.queries.masters import Masters
from rocketd.client.queries.offset_reset import Target
from rocketd.common.names import SYSTEM_TOPICS
from rocketd.common.record_host import parse_offset_message_id
from rocketd.protocol import cluster as requests
from rocketd.remoting.bodies.tables import (
    BrokerData,
    MessageQueue,
    SubscriptionGroupConfig,
    TopicRouteData,
)
from rocketd.remoting.headers.client import (
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicInNamesrvRequestHeader,
    Header,
    TopicRequestHeader,
)
from rocketd.remoting.wire.codes import RequestCode

if TYPE_CHECKING:
    from rocketd.client.consumer.retries.dead_letter_reader import DeadLetterFilter, DeadLetterReader
    from rocketd.client.consumer.retries.redrive import RedriveResult, RedriveTarget


class AdminEngine:
    """Administration of a cluster, between ``start`` and ``stop``. All methods belong to the reactor thread.

    Each method raises:

    - NotStartedError: it is not started.
    - ClientClosedError: it is stopped.
    - NoNameServerError: no name server is known or answers.
    - BrokerError: a server refuses. A change at several servers is sent to all, and ``others`` has the other errors.
    - BrokerUnreachableError: only slaves of a broker are registered, so that its master did not take a change.
    - UnreachableError, ConnectionLostError, RequestTimeoutError: the connection failed.
    """

    log = Logger()

    def __init__(self, instance: ClientInstance) -> None:
        self.instance = instance
        self._namespace = instance.config.namespace
        self._state: type[NotStartedError] | type[ClientClosedError] | None = NotStartedError

    async def start(self) -> None:
        """Accept calls from now on."""
        self._state = None

    async def stop(self) -> None:
        """Accept no more calls."""
        self._state = ClientClosedError

    # ------------------------------------------------------------ brokers

    async def brokers(self) -> list[BrokerData]:
        """Return all registered brokers, sorted by name: the cluster of each, and its addresses by broker id."""
        self._check()
        info = await self.instance.answer_of_name_server(requests.cluster_info())
        return [info.broker_addr_table[name] for name in sorted(info.broker_addr_table)]

    async def ask(
        self, server: str, code: int, fields: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> ServerAnswer:
        """Return the answer of a server to a request of any code, such as that of a processor plugin.

        ``server`` is the name of a broker, whose master is asked, or the address of any server. Raises UsageError for an
        unknown name, fields that are not texts, and a body that is not bytes.
        """
        self._check()
        return await inspection.ask(self.instance, server, code, fields, body)

    # ------------------------------------------------------------ topics

    async def topics(self) -> list[str]:
        """Return the names of all topics, including those of the system and of retries."""
        self._check()
        return sorted(await self.instance.answer_of_name_server(requests.topics()))

    async def create_topic(self, topic: str, *, queues: int = 4, cluster: str | None = None) -> None:
        """Create a topic with ``queues`` queues at each broker, or at those of one cluster. Change it if it exists.

        Raises:

        - IllegalTopicError: the name is invalid, or the topic is the system's.
        - UsageError: ``queues`` is not a whole number from 1 on.
        - NoBrokerError: the cluster has no broker.
        """
        self._check()
        if isinstance(queues, bool) or not isinstance(queues, int) or queues < 1:
            raise UsageError(f"queues={queues!r}: a topic has one queue or more")
        name = self._topic(topic)
        request = requests.create_topic(name, queues)
        try:
            await self._tell_masters(cluster, request.code, request.header)
        finally:
            self.instance.routes.forget(name)

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete a topic and its messages at all brokers and name servers, or at those of one cluster.

        Raises IllegalTopicError for a wrong name, and NoBrokerError if the cluster has no broker.
        """
        self._check()
        name = self._topic(topic)
        at_brokers = self._teller(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(topic=name))
        header = DeleteTopicInNamesrvRequestHeader(topic=name, cluster_name=cluster)
        at_name_servers = self._teller(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
        errors = await (await self._masters(cluster)).errors_of(at_brokers)
        errors += await errors_of(self.instance.remoting.name_servers.addresses, at_name_servers)
        self.instance.routes.forget(name)
        raise_first(errors)

    async def fetch_publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the writable queues of a topic. Raises IllegalTopicError and NoRouteError."""
        self._check()
        check_topic(topic)
        name = with_namespace(self._namespace, topic)
        await self.instance.routes.subscribe_queues(name)  # otherwise a missing topic would get its template's queues
        return [queue_without_namespace(self._namespace, q) for q in await self.instance.routes.publish_queues(name)]

    async def fetch_subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic. Raises IllegalTopicError and NoRouteError."""
        self._check()
        return await queue_queries.subscribe_queues(self.instance, topic)

    # ------------------------------------------------------------ queues

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset for a queue's next message."""
        self._check()
        return await queue_queries.max_offset(self.instance, queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of a queue's first message."""
        self._check()
        return await queue_queries.min_offset(self.instance, queue)

    async def search_offset(self, queue: MessageQueue, moment: datetime) -> int:
        """Return the offset of the first message stored at or after a time; the end of the queue if there is none."""
        self._check()
        return await queue_queries.search_offset(self.instance, queue, moment)

    async def earliest_message_time(self, queue: MessageQueue) -> datetime | None:
        """Return the store time of a queue's first message; None if it has none."""
        self._check()
        return await queue_queries.earliest_message_time(self.instance, queue)

    # ------------------------------------------------------------ messages

    async def view_message(self, topic: str, message_id: str) -> ReceivedMessage[bytes] | None:
        """Return the message with this id, a unique key or the id of a place; None if there is none.

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
        """Return messages of a topic with a key, stored between two times, ``max_messages`` of each broker at most.

        An unreachable broker and a damaged message are logged. Raises IllegalTopicError and NoRouteError.
        """
        self._check()
        return await message_search.by_key(self.instance, topic, key, max_messages, begin, end)

    async def query_message_by_unique_key(self, topic: str, unique_key: str) -> ReceivedMessage[bytes] | None:
        """Return the message with a unique key; of several, the first one stored; None if there is none.

        Raises IllegalTopicError and NoRouteError.
        """
        self._check()
        return await message_search.by_unique_key(self.instance, topic, unique_key)

    # ------------------------------------------------------------ groups

    async def create_group(
        self,
        group: str,
        *,
        retry_max_times: int | None = None,
        broadcast: bool | None = None,
        cluster: str | None = None,
    ) -> None:
        """Create a consumer group at all brokers, or at those of one cluster. Change it if it exists.

        ``broadcast`` permits the broadcasting model. A value of None keeps what the group has; a new group has 16 retries
        and may use the broadcasting model. Raises IllegalGroupError and NoBrokerError.
        """
        self._check()
        name = self._group(group)
        check_consumer_group(name)
        await inspection.put_group(self.instance, await self._masters(cluster), name, retry_max_times, broadcast)

    async def delete_group(self, group: str, *, remove_offsets: bool = False, cluster: str | None = None) -> None:
        """Delete a consumer group at all brokers, or at those of one cluster. Its retries and dead letters stay.

        Raises IllegalGroupError and NoBrokerError.
        """
        self._check()
        header = DeleteSubscriptionGroupRequestHeader(group_name=self._group(group), remove_offset=remove_offsets)
        await self._tell_masters(cluster, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def reset_offsets(
        self, group: str, topic: str, to: Target, *, dry_run: bool = False
    ) -> dict[MessageQueue, int]:
        """Move a group to a time, the beginning or the end of a topic's queues, or to an offset. Return the new offsets.

        Brokers tell running consumers. If a group has none, the offsets are stored. An offset outside of a queue becomes
        the nearest end of the queue. With ``dry_run`` nothing changes.

        Raises:

        - IllegalGroupError, IllegalTopicError: a name is invalid.
        - UsageError: ``to`` is invalid, or is an offset while the group has consumers online.
        - NoRouteError: the topic is unknown.
        """
        self._check()
        check_topic(topic)
        name = with_namespace(self._namespace, topic)
        return await offset_reset.reset(self.instance, self._group(group), name, to, dry_run)

    # ------------------------------------------------------------ progress, clients and settings

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Return the route of a topic: its brokers, their addresses, queues and permissions. Raises NoRouteError."""
        self._check()
        check_topic(topic)
        return await inspection.route(self.instance, with_namespace(self._namespace, topic))

    async def topic_stats(self, topic: str) -> dict[MessageQueue, QueueEnds]:
        """Return the ends of a topic's queues, and the times of their last messages. Raises NoRouteError."""
        self._check()
        check_topic(topic)
        return await inspection.topic_stats(self.instance, with_namespace(self._namespace, topic))

    async def topic_groups(self, topic: str) -> list[str]:
        """Return the consumer groups that consume a topic, or have offsets in it. Raises NoRouteError."""
        self._check()
        check_topic(topic)
        return await inspection.groups_of_topic(self.instance, with_namespace(self._namespace, topic))

    async def set_topic_permission(self, topic: str, *, read: bool = True, write: bool = True) -> None:
        """Permit to read and write a topic, or only one of them, at all its brokers.

        Raises UsageError if neither is permitted, and NoRouteError.
        """
        self._check()
        check_topic(topic)
        permission = inspection.permission_of(read, write)
        if not permission:
            raise UsageError("a topic is for reading, for writing, or both: delete it if it is for neither")
        await inspection.set_permission(self.instance, with_namespace(self._namespace, topic), permission)

    async def groups(self) -> dict[str, SubscriptionGroupConfig]:
        """Return all consumer groups with their settings. If brokers differ, one of the settings is returned."""
        self._check()
        return await inspection.groups(self.instance)

    async def group_progress(self, group: str, topic: str | None = None) -> dict[MessageQueue, QueueProgress]:
        """Return the offsets of a group in one topic, or in all its topics and retries, and the ends of the queues.

        The result is empty for an unknown group. Raises IllegalGroupError.
        """
        self._check()
        if topic is not None:
            check_topic(topic)
            topic = with_namespace(self._namespace, topic)
        return await inspection.progress(self.instance, self._group(group), topic)

    async def consumers(self, group: str) -> list[GroupClient]:
        """Return the clients of a consumer group that are online. Raises IllegalGroupError."""
        self._check()
        return await inspection.consumers(self.instance, self._group(group))

    async def producers(self, group: str) -> list[GroupClient]:
        """Return the clients of a producer group that are online. Raises IllegalGroupError."""
        self._check()
        return await inspection.producers(self.instance, self._group(group))

    async def clone_offsets(self, source: str, target: str, topic: str | None = None) -> None:
        """Give the offsets of one consumer group to another, in one topic or in all. The target should be offline.

        Raises IllegalGroupError, NoRouteError for an unknown topic, and UsageError for a group without offsets.
        """
        self._check()
        if topic is not None:
            check_topic(topic)
            topic = with_namespace(self._namespace, topic)
        await inspection.clone_offsets(self.instance, self._group(source), self._group(target), topic)

    async def broker_status(self, broker: str) -> dict[str, str]:
        """Return the state of a master, given by name: version, rates, offsets, disk. Raises UsageError if unknown."""
        self._check()
        return await inspection.broker_status(self.instance, broker)

    async def broker_config(self, broker: str) -> dict[str, str]:
        """Return the settings of a master, given by name, with Apache's names. Raises UsageError if unknown."""
        self._check()
        return await inspection.broker_config(self.instance, broker)

    async def set_broker_config(self, broker: str, settings: Mapping[str, str]) -> None:
        """Change settings of a running master, given by name. Raises UsageError, and BrokerError if it refuses one."""
        self._check()
        await inspection.set_broker_config(self.instance, broker, settings)

    async def wipe_write_permission(self, broker: str) -> int:
        """Let name servers offer no queue of a broker to producers, for example before its stop.

        Return the number of changed topics. It lasts until ``add_write_permission``, or until the broker changes a topic.
        """
        self._check()
        return await inspection.set_writable(self.instance, broker, False)

    async def add_write_permission(self, broker: str) -> int:
        """Let name servers offer the queues of a broker to producers again. Return the number of changed topics."""
        self._check()
        return await inspection.set_writable(self.instance, broker, True)

    async def clean_unused_topics(self, *, cluster: str | None = None) -> None:
        """Let all masters, or those of one cluster, delete the queues of topics that no longer exist."""
        self._check()
        await self._tell_masters(cluster, RequestCode.CLEAN_UNUSED_TOPIC)

    async def clean_expired_queues(self, *, cluster: str | None = None) -> None:
        """Let all masters, or those of one cluster, delete the files of queues whose messages have expired."""
        self._check()
        await self._tell_masters(cluster, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    # ------------------------------------------------------------ name servers

    async def namesrv_config(self) -> dict[str, dict[str, str]]:
        """Return the settings of each name server, with Apache's names, by its address."""
        self._check()
        return await name_servers.configs(self.instance)

    async def set_namesrv_config(self, settings: Mapping[str, str]) -> None:
        """Change settings of all running name servers. Raises UsageError, and BrokerError if one refuses."""
        self._check()
        await name_servers.set_config(self.instance, settings)

    async def kv_values(self, namespace: str) -> dict[str, str]:
        """Return the keys and values of a namespace of the name servers' key-value table. It is empty if unknown.

        They are those of the first name server that answers and has the namespace.
        """
        self._check()
        return await name_servers.kv_values(self.instance, namespace)

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Set a value of the key-value table at all name servers. Raises UsageError for an empty text."""
        self._check()
        await name_servers.put_kv(self.instance, namespace, key, value)

    async def delete_kv(self, namespace: str, key: str) -> None:
        """Delete a key of the key-value table at all name servers. A missing key is not an error."""
        self._check()
        await name_servers.delete_kv(self.instance, namespace, key)

    # ------------------------------------------------------------ accounts

    async def accounts(self, broker: str) -> list[BrokerAccount]:
        """Return the accounts of a master, given by name, without their secrets. Raises UsageError if it is unknown."""
        self._check()
        return await account_queries.accounts(self.instance, await inspection.master_of(self.instance, broker))

    async def set_account(
        self, account: BrokerAccount, *, secret_key: str | None = None, cluster: str | None = None
    ) -> None:
        """Create or change an account at all masters, or at those of one cluster.

        A value of None keeps what the account has. A new account needs a ``secret_key``. It and the name need more than 6
        characters. Raises UsageError and NoBrokerError, and BrokerError if a broker refuses, for example without access
        control.
        """
        self._check()
        await account_queries.set_account(self.instance, await self._masters(cluster), account, secret_key)

    async def delete_account(self, access_key: str, *, cluster: str | None = None) -> None:
        """Delete an account at all masters that have it, or at those of one cluster.

        Raises NoBrokerError, and BrokerError if a broker refuses or none has the account.
        """
        self._check()
        await account_queries.delete_account(self.instance, await self._masters(cluster), access_key)

    async def white_addresses(self, broker: str) -> list[str]:
        """Return the addresses whose requests need no account at a master, given by name. Raises UsageError."""
        self._check()
        return await account_queries.white_addresses(self.instance, await inspection.master_of(self.instance, broker))

    async def set_white_addresses(self, addresses: Sequence[str], *, cluster: str | None = None) -> None:
        """Set the addresses whose requests need no account, at all masters or at those of one cluster.

        Raises UsageError if there is none, NoBrokerError, and BrokerError if a broker refuses.
        """
        self._check()
        await account_queries.set_white_addresses(self.instance, await self._masters(cluster), addresses)

    # ------------------------------------------------------------ dead letters

    def dead_letters(self, group: str, wanted: "DeadLetterFilter") -> "DeadLetterReader":
        """Return a reader of a group's dead letters. Any thread. Raises IllegalGroupError."""
        # Not at the top: it imports the consumers, which other administration does without.
        from rocketd.client.consumer.retries.dead_letter_reader import DeadLetterReader

        self._check()
        check_group(group)
        return DeadLetterReader(self.instance, group, wanted)

    async def redrive(
        self,
        group: str,
        *,
        to: "RedriveTarget" = "group",
        exception: str | type[BaseException] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        ids: Collection[str] | None = None,
    ) -> "RedriveResult":
        """Send the dead letters of a group again, with their bodies, tags, keys and properties. Return their numbers.

        With ``to="group"`` only this group gets them; with ``to="topic"`` all groups of their original topics. The other
        arguments select dead letters, as those of ``dead_letters``. If this is interrupted, call it again: those sent
        before are not sent twice, as long as brokers have the sent message and its index entry. Do not run two calls for
        one group at the same time. Dead letters stay where they are until they expire.

        Raises:

        - IllegalGroupError, UsageError: an argument is invalid.
        - NoRouteError: the dead letters may not be read, or a broker is not registered.
        - RocketMQError: a broker has too many messages with one unique key to find out if a dead letter was sent before.
        """
        from rocketd.client.consumer.retries.dead_letter_reader import DeadLetterFilter
        from rocketd.client.consumer.retries.redrive import Redriver

        self._check()
        check_group(group)
        wanted = DeadLetterFilter(exception, since, until, ids)
        return await Redriver(self.instance, to).redrive_all(group, wanted)

    # ------------------------------------------------------------ helpers

    def _check(self) -> None:
        if self._state is NotStartedError:
            raise NotStartedError("this admin is not started: start it, or use it in a with block")
        if self._state is not None:
            raise ClientClosedError("this admin is stopped: make a new one")

    def _topic(self, topic: str) -> str:
        check_topic(topic)
        if topic in SYSTEM_TOPICS:
            raise IllegalTopicError(f"topic {topic!r}: it is a system topic")
        return with_namespace(self._namespace, topic)

    def _group(self, group: str) -> str:
        check_group(group)
        return with_namespace(self._namespace, group)

    async def _tell_masters(
        self, cluster: str | None, code: RequestCode, header: Header | None = None, body: bytes | None = None
    ) -> None:
        await (await self._masters(cluster)).tell_each(self._teller(code, header, body))

    async def _masters(self, cluster: str | None) -> Masters:
        """Return the masters of all brokers, or of those of one cluster. Raises NoBrokerError."""
        brokers = [broker for broker in await self.brokers() if cluster in (None, broker.cluster)]
        if not brokers:
            where = "no broker" if cluster is None else f"no broker of cluster {cluster}"
            raise NoBrokerError(f"{where} is registered at the name servers")
        return Masters.of(brokers)

    def _teller(
        self, code: RequestCode, header: Header | None = None, body: bytes | None = None
    ) -> Callable[[str], Coroutine[Any, Any, None]]:
        """Return a function that sends a request to an address."""

        async def tell(address: str) -> None:
            check_response(address, await self.instance.ask(address, code, header, body))

        return tell
