"""Requests from brokers: transaction checks, new offsets, running info, messages to consume directly, and replies.

Counterpart: `ClientRemotingProcessor` (Apache). Reactor thread, except that long bodies are decoded in the callback
executor of the remoting client.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketd.client.instance.members import ConsumerMember, ProducerMember
from rocketd.client.instance.pending_replies import PendingReplies
from rocketd.common.message_properties import PGROUP, decode_properties
from rocketd.remoting.bodies.admin import GetConsumerStatusBody, ResetOffsetBody
from rocketd.remoting.calling.client_connection import ClientConnection
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers.admin import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from rocketd.remoting.headers.client import (
    CheckTransactionStateRequestHeader,
    ConsumerGroupRequestHeader,
    ReplyMessageRequestHeader,
    read_header,
)
from rocketd.remoting.interfaces import IRemotingClient
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.record import MessageExt, decode_messages

LONG_BODY: Final = 64 << 10
"""Bytes from which on a body is decoded in the callback executor.

For shorter bodies the detour takes longer than decoding.
"""

T = TypeVar("T")
R = TypeVar("R")


class Served(Protocol):
    """The instance whose members get the requests."""

    remoting: IRemotingClient
    producers: dict[str, ProducerMember]
    consumers: dict[str, ConsumerMember]
    replies: PendingReplies


class ServerRequests:
    """Handles requests for the members of ``instance``."""

    _log = Logger()

    def __init__(self, instance: Served) -> None:
        self._instance = instance

    def register(self) -> None:
        """Accept these requests from now on."""
        for code, processor in (
            (RequestCode.CHECK_TRANSACTION_STATE, self._check_transaction),
            (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._consumer_ids_changed),
            (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset_offsets),
            (RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._consumer_status),
            (RequestCode.GET_CONSUMER_RUNNING_INFO, self._running_info),
            (RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume_directly),
            (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._reply),
        ):
            self._instance.remoting.register_processor(code, processor)

    def _decoded(
        self, decode: Callable[[bytes], T], request: RemotingCommand, take: Callable[[T], "R | Deferred[R]"]
    ) -> "R | Deferred[R]":
        """Call ``take`` in the reactor thread with the decoded body. Return its result, now or later."""
        body = request.body or b""
        if len(body) < LONG_BODY:
            return take(decode(body))
        later: Deferred[R] = self._instance.remoting.invoke.in_executor(decode, body).addCallback(take)
        return later

    def _check_transaction(self, connection: ClientConnection, request: RemotingCommand) -> "Deferred[None] | None":
        header = read_header(CheckTransactionStateRequestHeader, request)
        return self._decoded(_record_of, request, partial(self._take_check, connection, header))

    def _take_check(
        self, connection: ClientConnection, header: CheckTransactionStateRequestHeader, record: MessageExt
    ) -> None:
        group = decode_properties(record.properties.decode("utf-8", "replace")).get(PGROUP)
        producer = self._instance.producers.get(group or "")
        if producer is None:
            self._log.warn(
                "{address} asks about a transaction of group {group}, which has no producer here",
                address=connection.address,
                group=group,
            )
        else:
            producer.check_transaction(connection.address, header, record)

    def _consumer_ids_changed(self, connection: ClientConnection, request: RemotingCommand) -> None:
        consumer = self._instance.consumers.get(read_header(ConsumerGroupRequestHeader, request).consumer_group)
        if consumer is not None:
            consumer.rebalance_soon()

    def _reset_offsets(self, connection: ClientConnection, request: RemotingCommand) -> "Deferred[None] | None":
        header = read_header(ResetOffsetRequestHeader, request)
        if header.group not in self._instance.consumers:
            return None
        return self._decoded(ResetOffsetBody.decode, request, partial(self._take_offsets, header))

    def _take_offsets(self, header: ResetOffsetRequestHeader, body: ResetOffsetBody) -> None:
        consumer = self._instance.consumers.get(header.group)
        if consumer is not None:
            consumer.reset_offsets(header.topic, body.offset_table)

    def _consumer_status(self, connection: ClientConnection, request: RemotingCommand) -> RemotingCommand:
        header = read_header(GetConsumerStatusRequestHeader, request)
        consumer = self._instance.consumers.get(header.group)
        offsets = {} if consumer is None else dict(consumer.offsets_of(header.topic))
        return RemotingCommand.response(
            ResponseCode.SUCCESS, body=GetConsumerStatusBody(message_queue_table=offsets).encode()
        )

    def _running_info(self, connection: ClientConnection, request: RemotingCommand) -> RemotingCommand:
        header = read_header(GetConsumerRunningInfoRequestHeader, request)
        info = self._consumer(header.consumer_group).running_info(header.jstack_enable)
        return RemotingCommand.response(ResponseCode.SUCCESS, body=info.encode())

    async def _consume(self, header: ConsumeMessageDirectlyRequestHeader, record: MessageExt) -> RemotingCommand:
        consumer = self._consumer(header.consumer_group)
        result = await consumer.consume_directly(record, header.broker_name)
        return RemotingCommand.response(ResponseCode.SUCCESS, body=result.encode())

    def _consume_directly(
        self, connection: ClientConnection, request: RemotingCommand
    ) -> "RemotingCommand | Deferred[RemotingCommand]":
        header = read_header(ConsumeMessageDirectlyRequestHeader, request)
        self._consumer(header.consumer_group)
        return self._decoded(_record_of, request, lambda record: Deferred.fromCoroutine(self._consume(header, record)))

    def _reply(self, connection: ClientConnection, request: RemotingCommand) -> RemotingCommand:
        header = read_header(ReplyMessageRequestHeader, request)
        self._instance.replies.arrived(header, request.body or b"")
        return RemotingCommand.response(ResponseCode.SUCCESS)

    def _consumer(self, group: str) -> ConsumerMember:
        consumer: ConsumerMember | None = self._instance.consumers.get(group)
        if consumer is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer")
        return consumer


def _record_of(body: bytes) -> MessageExt:
    for record in decode_messages(body):
        return record
    raise RequestError(ResponseCode.SYSTEM_ERROR, "the request has no message")
