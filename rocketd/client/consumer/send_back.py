"""Gives messages that were not consumed back to the broker, which delivers them later or keeps them as dead letters.

Answers to sendMessageBack of DefaultMQPushConsumerImpl. Reactor thread.
"""

from collections.abc import Mapping
from typing import Any

from twisted.logger import Logger

from rocketd.client.consumer.pulled import Pulled
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
    """Gives back for one group."""

    log = Logger()

    def __init__(self, instance: ClientInstance, group: str, max_reconsume_times: int) -> None:
        self._instance = instance
        self._group = group
        self._max = DEFAULT_MAX_RECONSUME_TIMES if max_reconsume_times < 0 else max_reconsume_times

    async def send_back(self, queue: MessageQueue, pulled: Pulled, delay_level: int) -> bool:
        """Give a message back (36); False, after a log line, when its broker does not take it now."""
        record = pulled.record
        offset_id = offset_message_id(record.store_host, record.physical_offset)
        header = self._header(queue, record.properties_map(), record.physical_offset, offset_id, delay_level)
        try:
            await self._ask(queue, header)
        except RocketMQError as error:
            self.log.warn(
                "{queue} at {offset}: not given back to {host}, tried again: {error}",
                queue=queue,
                offset=pulled.queue_offset,
                host=host_text(record.store_host),
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
            max_reconsume_times=self._max,
            bname=queue.broker_name,
        )

    async def _ask(self, queue: MessageQueue, header: ConsumerSendMsgBackRequestHeader) -> None:
        await self._instance.ask_broker(
            queue.broker_name, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout_ms=TIMEOUT_MS
        )
