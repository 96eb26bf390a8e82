"""Who consumes, and how far they are: 14, 15, 38.

Answers to Apache's ConsumerManageProcessor.
"""

from typing import Any

from twisted.logger import Logger
from zope.interface import implementer

from rocketd.broker import problems
from rocketd.common.log_throttle import ThrottledLog
from rocketd.common.names import LMQ_PREFIX
from rocketd.remoting.bodies import GetConsumerListByGroupResponseBody
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers import (
    ConsumerGroupRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    read_header,
    write_header,
)
from rocketd.remoting.interfaces import IRequestProcessor

CODES = (
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.QUERY_CONSUMER_OFFSET,
)


@implementer(IRequestProcessor)
class ConsumerManageProcessor:
    """Answers consumers that share queues among themselves. ``process`` may run in several threads at once."""

    _log = Logger()

    def __init__(self, broker: Any) -> None:
        """``broker`` is an IBroker."""
        self._broker = broker
        self._peer_log = ThrottledLog(self._log)

    def process(self, request: RemotingCommand, context: Any) -> RemotingCommand:
        """Handle one request; see IRequestProcessor."""
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            return self._update_offset(request, context)
        if request.code == RequestCode.QUERY_CONSUMER_OFFSET:
            return self._query_offset(request)
        return self._list_consumers(request, context)

    def _list_consumers(self, request: RemotingCommand, context: Any) -> RemotingCommand:
        group = read_header(ConsumerGroupRequestHeader, request).consumer_group
        info = self._broker.consumers.find(group)
        client_ids = [] if info is None else info.client_ids()
        if not client_ids:
            self._peer_log.warn(
                "nobody consumes",
                "{address} asks who consumes in group {group}: nobody",
                address=context.connection.address,
                group=group,
            )
            return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}", {})
        return RemotingCommand.response(ext_fields={}, body=GetConsumerListByGroupResponseBody(client_ids).encode())

    def _update_offset(self, request: RemotingCommand, context: Any) -> RemotingCommand:
        header = read_header(UpdateConsumerOffsetRequestHeader, request)
        refusal = self._refusal(header, request)
        if refusal is not None:
            self._broker.dispatcher.limits.reached("offsets not kept", "{why}", why=refusal.remark)
            raise refusal
        self._broker.group_guard.queue_used(header.consumer_group, header.topic, header.queue_id)
        self._broker.offsets.commit(
            context.connection.address, header.consumer_group, header.topic, header.queue_id, header.commit_offset
        )
        return RemotingCommand.response(ext_fields={})

    def _refusal(self, header: UpdateConsumerOffsetRequestHeader, request: RemotingCommand) -> RequestError | None:
        """Say why an offset is not kept: names that clients invent would fill the table for ever.

        A consumer has sent a heartbeat or pulled before. An administrator, who wants an answer, may set the offsets of a
        group before it starts: the group is created as on any other use.
        """
        broker = self._broker
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if broker.offsets.query(group, topic, queue_id) >= 0:
            return None
        # Every name of a light queue counts as a topic.
        has_queue = not topic.startswith(LMQ_PREFIX) and broker.topics.has_queue(topic, queue_id)
        if not has_queue and broker.store.get_max_offset(topic, queue_id) <= 0:
            return problems.OFFSET_OF_UNKNOWN_QUEUE.error(group=group, queue=queue_id, topic=topic)
        if broker.groups.get(group) is not None or broker.consumers.find(group) is not None:
            return None
        creates = not request.is_oneway or group.startswith(LMQ_PREFIX)
        if not creates or broker.groups.find(group) is None:
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
        """Whether a queue still has all its messages, and in memory: a new group then starts at the first of them."""
        store = self._broker.store
        return store.get_min_offset(topic, queue_id) <= 0 and not store.is_on_disk(topic, queue_id, 0)
