"""Replies of request-reply: SEND_REPLY_MESSAGE (324), SEND_REPLY_MESSAGE_V2 (325), pushed on as 326.

A reply is pushed to the producer whose client id it carries, over the connection of its heartbeats. Then it is stored,
if ``storeReplyMessageEnable`` is set, whether it reached its producer or not. Then its sender is answered. No thread
waits for the producer. Unlike in Apache's broker, the stored record says that its body is compressed.

Counterpart: `ReplyMessageProcessor` (Apache).
"""

from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketd.broker.clients.parts import ClientParts
from rocketd.broker.send.answers import STORED_CODES
from rocketd.broker.send.durability import Durability
from rocketd.broker.send.message_builder import sent_delay_level, waits
from rocketd.broker.send.message_check import MessageCheck, choose_queue
from rocketd.common import message_properties as props
from rocketd.common.logs.throttle import ThrottledLog
from rocketd.common.message_properties import decode_properties, encode_properties
from rocketd.common.record_host import host_text, offset_message_id
from rocketd.common.sysflag import COMPRESSED, COMPRESSION_MASK
from rocketd.remoting.errors import RemotingError, RequestError
from rocketd.remoting.headers.client import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    read_header,
    write_header,
)
from rocketd.remoting.interfaces import IRequestContext, IRequestProcessor
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import MessageInner, PutResult, PutStatus
from rocketd.store.format.properties import dispatch_properties

STORAGE_POOL = "send"


class Reply:
    """A reply in progress; ``response`` is the answer to its sender."""

    __slots__ = ("body", "context", "header", "queue_id", "response")

    def __init__(
        self,
        context: IRequestContext,
        header: SendMessageRequestHeader,
        body: bytes,
        queue_id: int,
        response: RemotingCommand,
    ) -> None:
        self.context = context
        self.header = header
        self.body = body
        self.queue_id = queue_id
        self.response = response


@implementer(IRequestProcessor)
class ReplyMessageProcessor:
    """Pushes replies and stores them. ``process`` belongs to its pool's one thread, storing to the storage thread."""

    _log = Logger()

    def __init__(self, broker: ClientParts) -> None:
        self._broker = broker
        self._peer_log = ThrottledLog(self._log)
        self._check = MessageCheck(broker)
        self._durability = Durability(broker)

    def process(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand | None:
        """Handle one reply; see IRequestProcessor."""
        is_long = request.code == RequestCode.SEND_REPLY_MESSAGE
        header = read_header(SendMessageRequestHeader if is_long else SendMessageRequestHeaderV2, request)
        settings = self._broker.settings.broker
        fields = {"MSG_REGION": settings.region_id, "TRACE_ON": str(settings.trace_on).lower()}
        now_ms = self._broker.now_ms()
        try:
            topic = self._check.topic_for_send(header, context.connection.address, now_ms)
            sent_delay_level(decode_properties(header.properties))
        except RequestError as error:
            return RemotingCommand.response(error.code, error.remark, fields)
        response = RemotingCommand.response(ext_fields=fields)
        reply = Reply(context, header, request.body or b"", choose_queue(header, topic), response)
        self._push(reply, now_ms)
        return None

    # ---------------------------------------------------------------- to the producer

    def _push(self, reply: Reply, now_ms: int) -> None:
        table = decode_properties(reply.header.properties)
        client_id = table.get(props.REPLY_TO_CLIENT)
        if client_id is None:
            self._pushed(reply, f"reply message properties[{props.REPLY_TO_CLIENT}] is null")
            return
        connection = self._broker.producers.find_connection(client_id)
        if connection is None:
            self._pushed(reply, f"push reply message fail, channel of <{client_id}> not found.")
            return
        table[props.PUSH_REPLY_TIME] = str(now_ms)
        request = RemotingCommand(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._push_fields(reply, table, now_ms), reply.body
        )

        def finish(answer: RemotingCommand | RemotingError) -> None:
            if isinstance(answer, RemotingCommand) and answer.code == ResponseCode.SUCCESS:
                self._pushed(reply, None)
                return
            self._peer_log.warn(
                "reply not delivered",
                "a reply did not reach {client_id} at {address}: {why}",
                client_id=client_id,
                address=connection.address,
                why=answer.remark if isinstance(answer, RemotingCommand) else answer,
            )
            self._pushed(reply, f"push reply message to {client_id}fail.")

        def failed(failure: Failure) -> None:
            self._peer_log.failure(
                "reply not handled", "a reply to {client_id} could not be handled", failure, client_id=client_id
            )

        self._broker.to_clients.push(connection, request, finish).addErrback(failed)

    def _push_fields(self, reply: Reply, table: dict[str, str], now_ms: int) -> dict[str, str]:
        header = reply.header
        return write_header(
            ReplyMessageRequestHeader(
                producer_group=header.producer_group,
                topic=header.topic,
                default_topic=header.default_topic,
                default_topic_queue_nums=header.default_topic_queue_nums,
                queue_id=header.queue_id,
                sys_flag=header.sys_flag,
                born_timestamp=header.born_timestamp,
                flag=header.flag,
                born_host=host_text(reply.context.connection.host),
                store_host=host_text(self._broker.store_host),
                store_timestamp=now_ms,
                properties=encode_properties(table),
                reconsume_times=header.reconsume_times,
                unit_mode=header.unit_mode,
            )
        )

    def _pushed(self, reply: Reply, fault: str | None) -> None:
        """Continue with a reply that reached its producer (``fault`` is None) or did not. Any thread."""
        response = reply.response
        if fault is None:
            self._place(reply, "0", 0)
        else:
            response.code = ResponseCode.SYSTEM_ERROR
            response.remark = fault
        if self._broker.settings.broker.store_reply_message_enable:
            self._broker.dispatcher.pool(STORAGE_POOL).call(lambda: self._store(reply))
        else:
            reply.context.answer(response)

    def _place(self, reply: Reply, message_id: str, queue_offset: int) -> None:
        fields = reply.response.ext_fields or {}
        fields.update(msgId=message_id, queueId=str(reply.queue_id), queueOffset=str(queue_offset))

    # ---------------------------------------------------------------- to the log: the storage thread

    def _store(self, reply: Reply) -> None:
        try:
            message = self._build(reply)
            (result,) = self._broker.store.put_messages([message])
        except Exception:
            self._peer_log.failure("reply not stored", "a reply could not be stored", Failure())
            reply.context.answer(reply.response)
            return
        if result.size:
            self._broker.broker_stats.count_reply(reply.header.topic, result.size)
        if result.status is PutStatus.PUT_OK and message.wait and self._durability.needed:
            self._durability.when_safe(result.physical_offset + result.size, lambda _: self._stored(reply, result))
        else:
            self._stored(reply, result)

    def _stored(self, reply: Reply, result: PutResult) -> None:
        """Answer the sender. A failure to store the reply is only logged. Any thread."""
        if result.status in STORED_CODES:
            message_id = offset_message_id(self._broker.store_host, result.physical_offset)
            self._place(reply, message_id, result.queue_offset)
        else:
            self._peer_log.warn(
                f"reply refused {result.status.value}",
                "a reply was not stored: {status}, {cause}",
                status=result.status.value,
                cause=result.cause,
            )
        reply.context.answer(reply.response)

    def _build(self, reply: Reply) -> MessageInner:
        """Build the message. Its properties are stored unchanged, unless it is delayed or they would look torn."""
        header = reply.header
        text = header.properties or ""
        table = decode_properties(text)
        is_changed = props.DELAY in table or text.endswith("\0")
        properties = (encode_properties(table) if is_changed else text).encode()
        tags_code, keys = dispatch_properties(properties)
        message = MessageInner(
            header.topic,
            reply.queue_id,
            header.flag,
            header.sys_flag & (COMPRESSED | COMPRESSION_MASK),
            header.born_timestamp,
            reply.context.connection.host,
            header.reconsume_times or 0,
            0,
            reply.body,
            properties,
            tags_code,
            keys,
            waits(table.get(props.WAIT)),
        )
        if props.DELAY in table:
            self._broker.message_builder.delay(message, table, self._broker.now_ms())
            message.properties = encode_properties(table).encode()
        return message
