"""Members and offsets of consumer groups: 14, 15, 38.

Counterpart: `ConsumerManageProcessor` (Apache).
"""

from twisted.logger import Logger
from zope.interface import implementer

from rocketd.broker.base import problems
from rocketd.broker.clients.parts import ClientParts
from rocketd.broker.tables.new_names import offset_group_limit
from rocketd.common.logs.throttle import ThrottledLog
from rocketd.common.names import LMQ_PREFIX
from rocketd.remoting.bodies.tables import GetConsumerListByGroupResponseBody
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers.client import (
    ConsumerGroupRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    read_header,
    write_header,
)
from rocketd.remoting.interfaces import IRequestContext, IRequestProcessor
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand


@implementer(IRequestProcessor)
class ConsumerManageProcessor:
    """Answers consumers that share queues. ``process`` may run in several threads at once."""

    _log = Logger()

    def __init__(self, broker: ClientParts) -> None:
        self._broker = broker
        self._peer_log = ThrottledLog(self._log)
        self._new_groups = offset_group_limit(
            broker.settings.broker, broker.dispatcher.limits, lambda: broker.clock_ms() / 1000
        )

    def process(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        """Handle one request; see IRequestProcessor."""
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            return self._update_offset(request, context)
        if request.code == RequestCode.QUERY_CONSUMER_OFFSET:
            return self._query_offset(request)
        return self._list_consumers(request, context)

    def _list_consumers(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        group = read_header(ConsumerGroupRequestHeader, request).consumer_group
        info = self._broker.consumers.find(group)
        client_ids = [] if info is None else info.client_ids()
        if not client_ids:
            self._peer_log.warn(
                "nobody consumes",
                "{address} asks for the consumers of group {group}: none is online",
                address=context.connection.address,
                group=group,
            )
            return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}", {})
        return RemotingCommand.response(ext_fields={}, body=GetConsumerListByGroupResponseBody(client_ids).encode())

    def _update_offset(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        header = read_header(UpdateConsumerOffsetRequestHeader, request)
        refusal = self._refusal(header, request, context.connection.address)
        if refusal is not None:
            self._broker.dispatcher.limits.reached("offsets not kept", "{why}", why=refusal.remark)
            raise refusal
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        self._broker.group_guard.queue_used(group, topic, queue_id)
        before = self._broker.offsets.query(group, topic, queue_id) if header.reset else None
        self._broker.offsets.commit(context.connection.address, group, topic, queue_id, header.commit_offset)
        if before is not None:
            subject = f"{topic}@{group} queue {queue_id}"
            self._broker.audit.note(
                request, context, "reset offset", subject, None if before < 0 else before, header.commit_offset
            )
        return RemotingCommand.response(ext_fields={})

    def _refusal(
        self, header: UpdateConsumerOffsetRequestHeader, request: RemotingCommand, address: str
    ) -> RequestError | None:
        """Return the reason to refuse an offset; None if it is accepted. Invented names would fill the table for ever.

        A consumer has sent a heartbeat or pulled before. An administrator, who expects an answer, may set a group's
        offsets before its start. Then the group is created as on any other use, but only a few per second.

        An offset beyond the end is that of an earlier queue with this name, or of messages lost with another broker. It
        would skip messages still to come.
        """
        broker = self._broker
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        is_known = broker.offsets.query(group, topic, queue_id) >= 0
        end = broker.store.get_max_offset(topic, queue_id)
        # Every name of a light queue counts as a topic.
        has_queue = not topic.startswith(LMQ_PREFIX) and broker.topics.has_queue(topic, queue_id)
        if not is_known and not has_queue and end <= 0:
            return problems.OFFSET_OF_UNKNOWN_QUEUE.error(group=group, queue=queue_id, topic=topic)
        if header.commit_offset > end:
            return problems.OFFSET_BEYOND_END.error(
                group=group, queue=queue_id, topic=topic, offset=header.commit_offset, end=end
            )
        if is_known:
            return None
        if broker.groups.get(group) is not None or broker.consumers.find(group) is not None:
            return None
        is_light = group.startswith(LMQ_PREFIX)
        creates = not request.is_oneway or is_light
        if creates and not is_light and broker.settings.broker.auto_create_subscription_group:
            self._new_groups.check(group, address)
        if not creates or broker.groups.find(group, address) is None:
            return problems.OFFSET_OF_UNKNOWN_GROUP.error(group=group, topic=topic)
        return None

    def _query_offset(self, request: RemotingCommand) -> RemotingCommand:
        header = read_header(QueryConsumerOffsetRequestHeader, request)
        offset = self._broker.offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset < 0:
            if not self._is_young(header.topic, header.queue_id):
                return RemotingCommand.response(
                    ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first", {}
                )
            offset = 0
            self._broker.group_guard.begun_at_first(header.consumer_group, header.topic, header.queue_id)
        return RemotingCommand.response(ext_fields=write_header(OffsetResponseHeader(offset)))

    def _is_young(self, topic: str, queue_id: int) -> bool:
        """Whether a queue still has all its messages, and in memory. Then a new group starts at the first message."""
        store = self._broker.store
        return store.get_min_offset(topic, queue_id) <= 0 and not store.is_on_disk(topic, queue_id, 0)
