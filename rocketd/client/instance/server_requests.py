"""What brokers ask of a client: states of transactions, new offsets, how a consumer is, a message to consume; and replies.

Answers to ClientRemotingProcessor. Reactor thread.
"""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketd.client.instance.members import Consumer
from rocketd.common.properties import PGROUP, decode_properties
from rocketd.remoting.admin_bodies import GetConsumerStatusBody, ResetOffsetBody
from rocketd.remoting.admin_headers import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from rocketd.remoting.client_connection import ClientConnection
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers import (
    CheckTransactionStateRequestHeader,
    ConsumerGroupRequestHeader,
    ReplyMessageRequestHeader,
    read_header,
)
from rocketd.store.record import MessageExt, decode_messages


class ServerRequests:
    """Handles what arrives for the members of ``instance``, a ClientInstance."""

    _log = Logger()

    def __init__(self, instance: Any) -> None:
        self._instance = instance

    def register(self) -> None:
        """Take these requests from now on."""
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

    def _check_transaction(self, connection: ClientConnection, request: RemotingCommand) -> None:
        header = read_header(CheckTransactionStateRequestHeader, request)
        record = _record_of(request)
        group = decode_properties(record.properties.decode("utf-8", "replace")).get(PGROUP)
        producer = self._instance.producers.get(group)
        if producer is None:
            self._log.warn(
                "{address} asks about a transaction of {group}, which is not here",
                address=connection.address,
                group=group,
            )
        else:
            producer.check_transaction(connection.address, header, record)

    def _consumer_ids_changed(self, connection: ClientConnection, request: RemotingCommand) -> None:
        consumer = self._instance.consumers.get(read_header(ConsumerGroupRequestHeader, request).consumer_group)
        if consumer is not None:
            consumer.rebalance_soon()

    def _reset_offsets(self, connection: ClientConnection, request: RemotingCommand) -> None:
        header = read_header(ResetOffsetRequestHeader, request)
        consumer = self._instance.consumers.get(header.group)
        if consumer is not None:
            consumer.reset_offsets(header.topic, ResetOffsetBody.decode(request.body).offset_table)

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

    async def _consume(self, request: RemotingCommand) -> RemotingCommand:
        header = read_header(ConsumeMessageDirectlyRequestHeader, request)
        consumer = self._consumer(header.consumer_group)
        result = await consumer.consume_directly(_record_of(request), header.broker_name)
        return RemotingCommand.response(ResponseCode.SUCCESS, body=result.encode())

    def _consume_directly(self, connection: ClientConnection, request: RemotingCommand) -> Any:
        return Deferred.fromCoroutine(self._consume(request))

    def _reply(self, connection: ClientConnection, request: RemotingCommand) -> RemotingCommand:
        header = read_header(ReplyMessageRequestHeader, request)
        self._instance.replies.arrived(header, request.body or b"")
        return RemotingCommand.response(ResponseCode.SUCCESS)

    def _consumer(self, group: str) -> Consumer:
        consumer: Consumer | None = self._instance.consumers.get(group)
        if consumer is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer")
        return consumer


def _record_of(request: RemotingCommand) -> MessageExt:
    for record in decode_messages(request.body or b""):
        return record
    raise RequestError(ResponseCode.SYSTEM_ERROR, "the request has no message")
