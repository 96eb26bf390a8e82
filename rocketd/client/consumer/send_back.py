"""Gives messages that were not consumed back to the broker, which delivers them later or keeps them as dead letters.

Answers to sendMessageBack of DefaultMQPushConsumerImpl: a message that its broker does not take is sent to another one.
Reactor thread.
"""

from collections.abc import Mapping
from random import Random
from typing import Any

from twisted.logger import Logger

from rocketd.client.consumer.pulled import Pulled
from rocketd.client.consumer.retry_sender import RetrySender
from rocketd.client.errors import RocketMQError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.message import ReceivedMessage
from rocketd.common.properties import ORIGIN_MESSAGE_ID, RETRY_TOPIC
from rocketd.common.record_host import host_text, offset_message_id
from rocketd.remoting.bodies import MessageQueue
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.headers import ConsumerSendMsgBackRequestHeader

TIMEOUT_MS = 5000
DEFAULT_MAX_RECONSUME_TIMES = 16


class SendBack:
    """Gives back for one group. ``most`` is how often a message comes again before it is a dead letter."""

    log = Logger()

    def __init__(self, instance: ClientInstance, group: str, max_reconsume_times: int) -> None:
        self.most = DEFAULT_MAX_RECONSUME_TIMES if max_reconsume_times < 0 else max_reconsume_times
        self._instance = instance
        self._group = group
        self._sender = RetrySender(instance, group, self.most, Random())

    async def send_back(self, queue: MessageQueue, pulled: Pulled, delay_level: int) -> bool:
        """Give a message back (36), or send it to the retry topic where its broker does not take it.

        False, after a log line, when no broker takes it now.
        """
        record, table = pulled.record, pulled.record.properties_map()
        offset_id = offset_message_id(record.store_host, record.physical_offset)
        header = self._header(queue, table, record.physical_offset, offset_id, delay_level)
        try:
            await self._ask(queue, header)
        except RocketMQError as error:
            self.log.warn(
                "{queue} at {offset}: not given back to {host}, sent to the retry topic: {error}",
                queue=queue,
                offset=pulled.queue_offset,
                host=host_text(record.store_host),
                error=error,
            )
        else:
            return True
        more = {
            RETRY_TOPIC: table.get(RETRY_TOPIC, queue.topic),
            ORIGIN_MESSAGE_ID: table.get(ORIGIN_MESSAGE_ID) or offset_id,
        }
        try:
            await self._sender.send_again(record, more, pulled.reconsume_times, delay_level)
        except RocketMQError as error:
            self.log.warn(
                "{queue} at {offset}: not sent to the retry topic, tried again: {error}",
                queue=queue,
                offset=pulled.queue_offset,
                error=error,
            )
            return False
        return True

    async def give_back(self, queue: MessageQueue, message: ReceivedMessage[Any], delay_level: int) -> None:
        """Give back a message that the application has. ``queue`` has its namespace. Raises RocketMQError."""
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
            max_reconsume_times=self.most,
            bname=queue.broker_name,
        )

    async def _ask(self, queue: MessageQueue, header: ConsumerSendMsgBackRequestHeader) -> None:
        await self._instance.ask_broker(
            queue.broker_name, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout_ms=TIMEOUT_MS
        )
