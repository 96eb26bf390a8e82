"""Requests about groups, topics and brokers, and changes of permissions and settings.

Counterpart: the other functions of `DefaultMQAdminExtImpl` (Apache). Reactor thread. Groups and topics have their namespace;
results have the application's names.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from rocketd.client.errors import RocketMQError, UsageError, check_response
from rocketd.client.instance.all_of import raise_first, tell_each
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.namespace import queue_without_namespace, without_namespace
from rocketd.client.queries.masters import Masters
from rocketd.client.queries.settings_text import properties_text, settings_of
from rocketd.common.names import AUTO_CREATE_TOPIC, SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS
from rocketd.common.permission import READ, WRITE
from rocketd.protocol import cluster as requests
from rocketd.remoting.bodies.admin import (
    ConnectionInfo,
    ConsumerConnection,
    ConsumeStats,
    GroupList,
    ProducerConnection,
    TopicStatsTable,
)
from rocketd.remoting.bodies.tables import (
    MessageQueue,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
    TopicFilterType,
    TopicList,
    TopicRouteData,
)
from rocketd.remoting.headers.admin import CloneGroupOffsetRequestHeader, GetConsumeStatsRequestHeader
from rocketd.remoting.headers.client import (
    AddWritePermResponseHeader,
    BrokerNameRequestHeader,
    ConsumerGroupRequestHeader,
    CreateTopicRequestHeader,
    ProducerGroupRequestHeader,
    TopicRequestHeader,
    WipeWritePermResponseHeader,
    read_header,
)
from rocketd.remoting.wire.codes import RequestCode, ResponseCode

NO_PRODUCER: Final = "the producer group["
"""Beginning of a broker's remark if it knows no producer of a group. The response code alone is ambiguous."""


class ServerAnswer(msgspec.Struct, frozen=True):
    """The answer of a server to a request of any code: the fields of its header, and its body."""

    fields: dict[str, str]
    body: bytes


class QueueEnds(msgspec.Struct, frozen=True):
    """The ends of a queue: the offset of its first message, and the one of its next message."""

    min_offset: int
    max_offset: int
    last_stored_at: datetime | None = None
    """The time of the last message; None if there is none."""


class QueueProgress(msgspec.Struct, frozen=True):
    """The progress of a group in a queue: its next offset, and the end of the queue."""

    consumed: int
    end: int
    last_consumed_at: datetime | None = None
    """The time at which the last consumed message was stored; None if the broker does not know it."""

    @property
    def behind(self) -> int:
        """The number of messages from the group's offset to the end."""
        return max(0, self.end - self.consumed)


class GroupClient(msgspec.Struct, frozen=True):
    """A client in a group: its id, its address as brokers see it, its language and the version of its protocol."""

    client_id: str
    address: str
    language: str
    version: int


async def masters(instance: ClientInstance) -> dict[str, str]:
    """Return the addresses of all registered masters by name. Raises NoNameServerError."""
    return (await _all_masters(instance)).registered()


async def _all_masters(instance: ClientInstance) -> Masters:
    """Return the masters of all registered brokers. Raises NoNameServerError."""
    info = await instance.answer_of_name_server(requests.cluster_info())
    return Masters.of(info.broker_addr_table.values())


async def groups(instance: ClientInstance) -> dict[str, SubscriptionGroupConfig]:
    """Return the settings of all consumer groups of all masters, by name. One of several equal names is returned."""
    found: dict[str, SubscriptionGroupConfig] = {}
    for address in (await masters(instance)).values():
        table = await groups_at(instance, address)
        found.update({without_namespace(instance.config.namespace, name): each for name, each in table.items()})
    return dict(sorted(found.items()))


async def groups_at(instance: ClientInstance, address: str) -> dict[str, SubscriptionGroupConfig]:
    """Return the settings of all consumer groups of one broker."""
    response = await instance.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    return SubscriptionGroupWrapper.decode(check_response(address, response).body).subscription_group_table


async def put_group(
    instance: ClientInstance, brokers: Masters, group: str, retry_max_times: int | None, broadcast: bool | None
) -> None:
    """Create or change a group at brokers. A value of None stays as it is; a new group has the default."""
    given = {"retry_max_times": retry_max_times, "consume_broadcast_enable": broadcast}
    changes = {name: value for name, value in given.items() if value is not None}

    async def put(address: str) -> None:
        known = (await groups_at(instance, address)).get(group) or SubscriptionGroupConfig(group)
        body = msgspec.structs.replace(known, **changes).encode()
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        check_response(address, await instance.ask(address, code, body=body))

    await brokers.tell_each(put)


async def groups_of_topic(instance: ClientInstance, topic: str) -> list[str]:
    """Return the groups that consume a topic, or have offsets in it. Raises NoRouteError."""
    found: set[str] = set()
    for address in await _masters_of(instance, topic):
        response = await instance.ask(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicRequestHeader(topic=topic))
        found.update(GroupList.decode(check_response(address, response).body).group_list)
    return sorted(without_namespace(instance.config.namespace, name) for name in found)


async def route(instance: ClientInstance, topic: str) -> TopicRouteData:
    """Return the present route of a topic. Raises NoRouteError."""
    instance.routes.forget(topic)
    return await instance.routes.route(topic)


async def topic_stats(instance: ClientInstance, topic: str) -> dict[MessageQueue, QueueEnds]:
    """Return the ends of a topic's queues. Raises NoRouteError."""
    found: dict[MessageQueue, QueueEnds] = {}
    for address in await _masters_of(instance, topic):
        response = await instance.ask(address, RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader(topic=topic))
        for queue, ends in TopicStatsTable.decode(check_response(address, response).body).offset_table.items():
            bare = queue_without_namespace(instance.config.namespace, queue)
            found[bare] = QueueEnds(ends.min_offset, ends.max_offset, _moment(ends.last_update_timestamp))
    return dict(sorted(found.items()))


async def progress(instance: ClientInstance, group: str, topic: str | None) -> dict[MessageQueue, QueueProgress]:
    """Return the progress of a group in one topic, or in all, with its retries."""
    found: dict[MessageQueue, QueueProgress] = {}
    for address in (await masters(instance)).values():
        found.update(await progress_at(instance, address, group, topic))
    return dict(sorted(found.items()))


async def progress_at(
    instance: ClientInstance, address: str, group: str, topic: str | None = None
) -> dict[MessageQueue, QueueProgress]:
    """Return the progress of a group at one broker."""
    header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
    response = await instance.ask(address, RequestCode.GET_CONSUME_STATS, header)
    if response.code == ResponseCode.TOPIC_NOT_EXIST:
        return {}
    return {
        queue_without_namespace(instance.config.namespace, queue): QueueProgress(
            each.consumer_offset, each.broker_offset, _moment(each.last_timestamp)
        )
        for queue, each in ConsumeStats.decode(check_response(address, response).body).offset_table.items()
    }


async def consumers(instance: ClientInstance, group: str) -> list[GroupClient]:
    """Return the clients of a consumer group that are connected to any master."""
    found: set[GroupClient] = set()
    for address in (await masters(instance)).values():
        found.update(await consumers_at(instance, address, group))
    return _by_id(found)


async def consumers_at(instance: ClientInstance, address: str, group: str) -> set[GroupClient]:
    """Return the clients of a consumer group that are connected to one broker."""
    header = ConsumerGroupRequestHeader(consumer_group=group)
    response = await instance.ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
    if response.code == ResponseCode.CONSUMER_NOT_ONLINE:
        return set()
    return set(map(_client, ConsumerConnection.decode(check_response(address, response).body).connection_set))


async def producers(instance: ClientInstance, group: str) -> list[GroupClient]:
    """Return the clients of a producer group that are connected to any master."""
    found: set[GroupClient] = set()
    header = ProducerGroupRequestHeader(producer_group=group)
    for address in (await masters(instance)).values():
        response = await instance.ask(address, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
        if response.code == ResponseCode.SYSTEM_ERROR and (response.remark or "").startswith(NO_PRODUCER):
            continue
        body = ProducerConnection.decode(check_response(address, response).body)
        found.update(map(_client, body.connection_set))
    return _by_id(found)


async def clone_offsets(instance: ClientInstance, source: str, target: str, topic: str | None) -> None:
    """Copy the offsets of a group in a topic, or in all its topics. Raises NoRouteError.

    Raises UsageError if no topic is given and the group has no offset.
    """
    header = CloneGroupOffsetRequestHeader(src_group=source, dest_group=target, topic=topic)

    async def clone(address: str) -> None:
        check_response(address, await instance.ask(address, RequestCode.CLONE_GROUP_OFFSET, header))

    if topic is None:
        brokers, silent = await _holders(instance, source)
    else:
        brokers, silent = Masters.of((await route(instance, topic)).broker_datas), []
    raise_first([*silent, *await brokers.errors_of(clone)])


async def _holders(instance: ClientInstance, group: str) -> tuple[Masters, list[RocketMQError]]:
    """Return the masters at which a group has offsets, and the errors of those that did not tell.

    Raises UsageError if all tell, and none has any.
    """
    holders: list[str] = []

    async def look(address: str) -> None:
        if await progress_at(instance, address, group):
            holders.append(address)

    brokers = await _all_masters(instance)
    silent = await brokers.errors_of(look)
    if not (holders or silent):
        raise UsageError(f"group {without_namespace(instance.config.namespace, group)} has no offset")
    return brokers.at(holders), silent


async def set_permission(instance: ClientInstance, topic: str, permission: int) -> None:
    """Set the permission of a topic at each of its brokers. Its numbers of queues stay. Raises NoRouteError."""
    found = await route(instance, topic)
    places = {queues.broker_name: queues for queues in found.queue_datas}

    async def permit(broker_name: str) -> None:
        queues = places[broker_name]
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=queues.read_queue_nums,
            write_queue_nums=queues.write_queue_nums,
            perm=permission,
            topic_filter_type=TopicFilterType.SINGLE_TAG.value,
            topic_sys_flag=queues.topic_sys_flag,
            order=bool(found.order_topic_conf),
        )
        await instance.ask_broker(broker_name, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    try:
        await tell_each(places, permit)
    finally:
        instance.routes.forget(topic)


def permission_of(read: bool, write: bool) -> int:
    """Return the number for a permission."""
    return (READ if read else 0) | (WRITE if write else 0)


async def broker_status(instance: ClientInstance, broker_name: str) -> dict[str, str]:
    """Return the state of a master, by name."""
    address = await master_of(instance, broker_name)
    request = requests.runtime_info()
    return request.result(address, await instance.ask(address, request.code, request.header))


async def broker_config(instance: ClientInstance, broker_name: str) -> dict[str, str]:
    """Return the settings of a master, by Apache's names."""
    address = await master_of(instance, broker_name)
    response = check_response(address, await instance.ask(address, RequestCode.GET_BROKER_CONFIG))
    return settings_of(response.body)


async def set_broker_config(instance: ClientInstance, broker_name: str, settings: Mapping[str, str]) -> None:
    """Change settings of a master. Raises BrokerError if it refuses, and UsageError for a value that cannot be sent."""
    body = properties_text(settings)
    address = await master_of(instance, broker_name)
    check_response(address, await instance.ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=body))


async def set_writable(instance: ClientInstance, broker_name: str, writable: bool) -> int:
    """Let name servers offer the queues of a broker to producers, or not. Return the number of changed topics.

    Each name server is told. The result is the greatest of theirs.
    """
    code = RequestCode.ADD_WRITE_PERM_OF_BROKER if writable else RequestCode.WIPE_WRITE_PERM_OF_BROKER
    changed = [0]

    async def tell(address: str) -> None:
        response = check_response(address, await instance.ask(address, code, BrokerNameRequestHeader(broker_name)))
        if writable:
            changed.append(read_header(AddWritePermResponseHeader, response).add_topic_count)
        else:
            changed.append(read_header(WipeWritePermResponseHeader, response).wipe_topic_count)

    await tell_each(instance.remoting.name_servers.addresses, tell)
    return max(changed)


async def register_closed_topics(
    instance: ClientInstance, broker_name: str
) -> tuple[list[str], dict[str, RocketMQError]]:
    """Let a master register its topics that are not for reading and writing again.

    Return their names, and the errors of the others by name. A name server forgets their permissions if it is told to
    change those of all topics of a broker. Topics that the broker does not let anyone change are left out. Raises
    UsageError for an unknown broker.
    """
    address = await master_of(instance, broker_name)
    response = check_response(address, await instance.ask(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))
    unchangeable = SYSTEM_TOPICS | set(TopicList.decode(response.body).topic_list)
    response = check_response(address, await instance.ask(address, RequestCode.GET_ALL_TOPIC_CONFIG))
    table = TopicConfigSerializeWrapper.decode(response.body).topic_config_table
    closed = [
        config
        for name, config in sorted(table.items())
        if config.perm & (READ | WRITE) != READ | WRITE
        and not (name in unchangeable or name.startswith(SYSTEM_TOPIC_PREFIX))
    ]
    registered = []
    failed: dict[str, RocketMQError] = {}
    for config in closed:
        header = CreateTopicRequestHeader(
            topic=config.topic_name,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type.name,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
        )
        try:
            check_response(address, await instance.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header))
            registered.append(config.topic_name)
        except RocketMQError as error:
            failed[config.topic_name] = error
    return registered, failed


async def ask(
    instance: ClientInstance, server: str, code: int, fields: Mapping[str, str] | None, body: bytes | None
) -> ServerAnswer:
    """Return the answer of a server to any request. Raises UsageError, and BrokerError if it refuses."""
    if isinstance(code, bool) or not isinstance(code, int):
        raise UsageError(f"code={code!r}: the code of a request is a whole number")
    fields = {} if fields is None else fields
    if not isinstance(fields, Mapping) or not all(isinstance(text, str) for each in fields.items() for text in each):
        raise UsageError(f'fields={fields!r}: the fields of a request are names with texts, such as {{"topic": "T"}}')
    if body is not None and not isinstance(body, bytes):
        raise UsageError(f"body={body!r}: the body of a request is bytes")
    address = server if ":" in server else await master_of(instance, server)
    answer = check_response(address, await instance.ask(address, code, dict(fields), body))
    return ServerAnswer(dict(answer.ext_fields or {}), answer.body or b"")


async def master_of(instance: ClientInstance, broker_name: str) -> str:
    """Return the address of a master.

    Raises UsageError for an unknown name, and BrokerUnreachableError if only slaves of the broker are registered.
    """
    found = await _all_masters(instance)
    if broker_name not in found.addresses:
        known = ", ".join(found.registered()) or "none"
        raise UsageError(f"no master of broker {broker_name!r} is registered; registered are {known}")
    return found.address(broker_name)


async def _masters_of(instance: ClientInstance, topic: str) -> list[str]:
    found = await route(instance, topic)
    return [instance.master(name) for name in sorted(broker.broker_name for broker in found.broker_datas)]


def _client(connection: ConnectionInfo) -> GroupClient:
    return GroupClient(connection.client_id, connection.client_addr, connection.language.name, connection.version)


def _by_id(found: set[GroupClient]) -> list[GroupClient]:
    return sorted(found, key=lambda client: (client.client_id, client.address))


def _moment(timestamp_ms: int) -> datetime | None:
    return None if timestamp_ms <= 0 else datetime.fromtimestamp(timestamp_ms / 1000, UTC)
