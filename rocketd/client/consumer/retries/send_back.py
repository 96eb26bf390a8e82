"""Gives unconsumed messages back to the broker, which delivers them later or keeps them as dead letters.

Counterpart: `sendMessageBack` of `DefaultMQPushConsumerImpl` (Apache). A message refused by its broker is sent to another
one. Reactor thread.
"""

from collections.abc import Mapping
from random import Random
from typing import Any

from twisted.logger import Logger, LogLevel

from rocketd.client.consumer.pulling.assigned_queue import PulledMessage
from rocketd.client.consumer.retries.dead_letter_reason import reason_properties
from rocketd.client.consumer.retries.handler_results import DEAD_LETTER, Reject
from rocketd.client.consumer.retries.retry_sender import RetrySender
from rocketd.client.errors import BrokerError, ConnectionLostError, RequestTimeoutError, RocketMQError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.message import ReceivedMessage
from rocketd.common.message_properties import ORIGIN_MESSAGE_ID, RETRY_TOPIC, UNIQ_KEY
from rocketd.common.record_host import host_text, offset_message_id
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.headers.client import ConsumerSendMsgBackRequestHeader
from rocketd.remoting.wire.codes import RequestCode, ResponseCode

TIMEOUT_MS = 5000
DEFAULT_MAX_RECONSUME_TIMES = 16


class SendBack:
    """Gives messages back for one group. ``limit`` is the number of retries before a message becomes a dead letter."""

    log = Logger()

    def __init__(self, instance: ClientInstance, group: str, max_reconsume_times: int) -> None:
        self.limit = DEFAULT_MAX_RECONSUME_TIMES if max_reconsume_times < 0 else max_reconsume_times
        self._instance = instance
        self._group = group
        self._sender = RetrySender(instance, group, self.limit, Random())
        self._sends_dead_letters = True

    async def send_back(
        self, queue: MessageQueue, pulled: PulledMessage, delay_level: int, error: BaseException | None = None
    ) -> bool:
        """Give a message back (request code 36), or send it to the retry topic if its broker does not take it.

        A dead letter is sent first, because only a sent message can carry ``error``. It is logged, as an
        error unless the handler rejected it. Return False, after a log line, if no broker takes the message now.
        """
        taken = await self._send_back(queue, pulled, delay_level, error)
        if taken and delay_level == DEAD_LETTER:
            record = pulled.record
            self.log.emit(
                LogLevel.info if isinstance(error, Reject) else LogLevel.error,
                "message {id} of {queue} is a dead letter of group {group} after {attempts} attempts: {error!r}",
                id=record.properties_map().get(UNIQ_KEY)
                or offset_message_id(record.store_host, record.physical_offset),
                queue=queue,
                group=self._group,
                attempts=pulled.reconsume_times + 1,
                error=error,
            )
        return taken

    async def _send_back(
        self, queue: MessageQueue, pulled: PulledMessage, delay_level: int, error: BaseException | None
    ) -> bool:
        record, table = pulled.record, pulled.record.properties_map()
        offset_id = offset_message_id(record.store_host, record.physical_offset)
        more = {
            RETRY_TOPIC: table.get(RETRY_TOPIC, queue.topic),
            ORIGIN_MESSAGE_ID: table.get(ORIGIN_MESSAGE_ID) or offset_id,
        }
        if delay_level == DEAD_LETTER and self._sends_dead_letters:
            try:
                if await self._send_dead_letter(queue, pulled, more, error):
                    return True
            except (ConnectionLostError, RequestTimeoutError) as unknown:
                # The broker may have stored the dead letter, and would store it a second time.
                self._instance.outages.covers("sending a dead letter", unknown)
                return False
        header = self._header(queue, table, record.physical_offset, offset_id, delay_level)
        try:
            await self._ask(queue, header)
        except RocketMQError as error:
            if not self._instance.outages.covers("giving a message back", error):
                self.log.warn(
                    "{queue} at {offset}: not given back to {host}, sent to the retry topic: {error}",
                    queue=queue,
                    offset=pulled.queue_offset,
                    host=host_text(record.store_host),
                    error=error,
                )
        else:
            return True
        try:
            await self._sender.send_again(record, more, pulled.reconsume_times, delay_level)
        except RocketMQError as error:
            if not self._instance.outages.covers("sending a message to the retry topic", error):
                self.log.warn(
                    "{queue} at {offset}: not sent to the retry topic, tried again: {error}",
                    queue=queue,
                    offset=pulled.queue_offset,
                    error=error,
                )
            return False
        return True

    async def _send_dead_letter(
        self, queue: MessageQueue, pulled: PulledMessage, more: Mapping[str, str], error: BaseException | None
    ) -> bool:
        """Send a dead letter with its reason to the broker of the message. Return False if it does not take it.

        Raises ConnectionLostError or RequestTimeoutError if the broker may have taken it.
        """
        reason = reason_properties(error, self._instance.client_id, pulled.reconsume_times + 1)
        try:
            await self._sender.send_again(
                pulled.record, {**more, **reason}, pulled.reconsume_times, DEAD_LETTER, queue.broker_name
            )
        except (ConnectionLostError, RequestTimeoutError):
            raise
        except RocketMQError as refusal:
            self._sends_dead_letters = not _concerns_all(refusal)
            self.log.debug("{queue}: the dead letter has no reason: {error}", queue=queue, error=refusal)
            return False
        return True

    async def give_back(self, queue: MessageQueue, message: ReceivedMessage[Any], delay_level: int) -> None:
        """Give back a message of the application. ``queue`` has its namespace. Raises RocketMQError."""
        await self._ask(
            queue,
            self._header(queue, message.properties, message.physical_offset, message.offset_msg_id, delay_level),
        )

    def _header(
        self, queue: MessageQueue, table: Mapping[str, str], physical_offset: int, offset_id: str, delay_level: int
    ) -> ConsumerSendMsgBackRequestHeader:
        return ConsumerSendMsgBackRequestHeader(
            offset=physical_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=table.get(ORIGIN_MESSAGE_ID) or offset_id,
            origin_topic=table.get(RETRY_TOPIC, queue.topic),
            max_reconsume_times=self.limit,
            bname=queue.broker_name,
        )

    async def _ask(self, queue: MessageQueue, header: ConsumerSendMsgBackRequestHeader) -> None:
        await self._instance.ask_broker(
            queue.broker_name, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout_ms=TIMEOUT_MS
        )


def _concerns_all(refusal: RocketMQError) -> bool:
    """Whether a broker that refused one dead letter refuses all others, too.

    Accounts may permit a consumer to give messages back, but not to send. Brokers with access control refuse by
    SYSTEM_ERROR, and name their exception.
    """
    if not isinstance(refusal, BrokerError):
        return False
    if refusal.code == ResponseCode.SYSTEM_ERROR:
        return "AclException" in (refusal.remark or "")
    return refusal.code in (ResponseCode.NO_PERMISSION, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
