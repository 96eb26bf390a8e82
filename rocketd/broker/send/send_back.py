"""Failed consumption: CONSUMER_SEND_MSG_BACK (36).

The record is stored again: in the group's retry topic after a delay, or in its dead-letter queue. Runs in the send
pool's thread because it appends.

Counterpart: `AbstractSendMessageProcessor.asyncConsumerSendMsgBack` (Apache).
"""

from random import randrange

from zope.interface import implementer

from rocketd.broker.base import problems
from rocketd.broker.base.hook_contexts import ConsumeMessageContext
from rocketd.broker.send.parts import SendParts
from rocketd.common import message_properties as props
from rocketd.common.message_properties import encode_properties
from rocketd.common.names import dlq_topic, retry_topic
from rocketd.common.permission import is_writable
from rocketd.common.record_host import offset_message_id
from rocketd.remoting.bodies.tables import TopicConfig
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers.client import ConsumerSendMsgBackRequestHeader, read_header
from rocketd.remoting.interfaces import IRequestContext, IRequestProcessor
from rocketd.remoting.wire.codes import ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import MessageInner, PutStatus
from rocketd.store.format.properties import index_keys
from rocketd.store.format.record import MessageExt, decode_message

READ_WRITE = 6
V3_4_9 = 121


@implementer(IRequestProcessor)
class SendBackProcessor:
    """Stores messages that a consumer failed to process, for a retry."""

    def __init__(self, broker: SendParts) -> None:
        self._broker = broker

    def process(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand | None:
        """Handle one CONSUMER_SEND_MSG_BACK."""
        broker = self._broker
        header = read_header(ConsumerSendMsgBackRequestHeader, request)
        group = broker.groups.find(header.group, context.connection.address)
        if group is None:
            raise problems.GROUP_NOT_EXIST.error(group=header.group)
        settings = broker.settings.broker
        if not is_writable(settings.broker_permission):
            raise problems.BROKER_FORBIDDEN.error(
                broker=broker.advertised_host, action="sending message", perm=settings.broker_permission
            )
        if group.retry_queue_nums <= 0:
            return RemotingCommand.response()
        topic = retry_topic(header.group)
        config = self._writable(topic, broker.topics.retry_topic(group, unit_mode=header.unit_mode))
        record = broker.store.look_message(header.offset)
        if record is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        stored = decode_message(record)
        limit = group.retry_max_times
        if request.version >= V3_4_9 and header.max_reconsume_times is not None:
            limit = header.max_reconsume_times
        queue_id = randrange(min(group.retry_queue_nums, config.read_queue_nums, config.write_queue_nums))
        level = header.delay_level or 3 + stored.reconsume_times
        if stored.reconsume_times >= limit or level < 0:
            topic, queue_id, level = dlq_topic(header.group), 0, 0
            self._writable(topic, broker.topics.create_topic_in_send_message_back(topic, 1, READ_WRITE, 0))
        message = self._build(stored, topic, queue_id, level)
        result = broker.store.put_messages([message])[0]
        if result.status is not PutStatus.PUT_OK:
            raise RequestError(ResponseCode.SYSTEM_ERROR, result.status.value)
        origin = stored.properties_map().get(props.RETRY_TOPIC, stored.topic)
        broker.broker_stats.count_send_back(header.group, origin, message, result)
        if broker.message_hooks.consume:
            broker.message_hooks.after_consume(
                ConsumeMessageContext(
                    header.group,
                    origin,
                    stored.queue_id,
                    context.connection.address,
                    ResponseCode.SUCCESS,
                    1,
                    result.size,
                )
            )
        durability = broker.topics.new_name_durability
        if topic not in durability.names:
            return RemotingCommand.response()

        def answer(status: PutStatus) -> None:
            """Answer once the topic created for the message is durable."""
            if status is PutStatus.PUT_OK:
                context.answer(RemotingCommand.response())
            else:
                context.answer(RemotingCommand.response(ResponseCode.SYSTEM_ERROR, status.value))

        durability.when_durable((topic,), answer)
        return None

    @staticmethod
    def _writable(topic: str, config: TopicConfig | None) -> TopicConfig:
        if config is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] not exist")
        if not is_writable(config.perm):
            raise problems.TOPIC_FORBIDDEN.error(topic=topic, action="sending message", perm=config.perm)
        return config

    def _build(self, stored: MessageExt, topic: str, queue_id: int, level: int) -> MessageInner:
        broker = self._broker
        table = stored.properties_map()
        for name in (props.INNER_MULTI_DISPATCH, props.INNER_MULTI_QUEUE_OFFSET):
            # The further queues have the message already, and their consumers did not fail.
            table.pop(name, None)
        table.setdefault(props.RETRY_TOPIC, stored.topic)
        table[props.WAIT] = "false"
        table[props.DELAY] = str(level)
        if not table.get(props.ORIGIN_MESSAGE_ID, "").strip():
            table[props.ORIGIN_MESSAGE_ID] = offset_message_id(stored.store_host, stored.physical_offset)
        message = MessageInner(
            topic,
            queue_id,
            stored.flag,
            stored.sys_flag,
            stored.born_timestamp,
            stored.born_host,
            _next_int(stored.reconsume_times),
            0,
            bytes(stored.body),
            b"",
            broker.message_builder.tags_code(table.get(props.TAGS)),
            index_keys(table.get(props.UNIQ_KEY), table.get(props.KEYS)),
            wait=False,
        )
        broker.message_builder.delay(message, table, broker.now_ms())
        message.properties = encode_properties(table).encode()
        return message


def _next_int(number: int) -> int:
    """Add one with 32-bit wraparound, as Java does: a sender may have started at any number."""
    return (number + 1 + 2**31) % 2**32 - 2**31
