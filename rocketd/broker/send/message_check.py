"""Checks a send before its message is built, and redirects exhausted retries to the dead-letter queue.

Storage thread only.

Counterpart: `AbstractSendMessageProcessor.msgCheck`, `SendMessageProcessor.handleRetryAndDLQ` (Apache).
"""

from datetime import datetime
from random import randrange
from typing import NamedTuple

from rocketd.broker.base import problems
from rocketd.broker.send.half_messages import is_transactional
from rocketd.broker.tables.parts import TableParts
from rocketd.common import names
from rocketd.common.message_properties import TIMERS, TRAN_MSG, decode_properties
from rocketd.common.permission import WRITE, describe, is_writable
from rocketd.common.sysflag import MULTI_TAGS, TRANSACTION_PREPARED, topic_sys_flag
from rocketd.remoting.bodies.tables import TopicConfig
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers.client import SendMessageRequestHeader
from rocketd.remoting.wire.codes import ResponseCode

V3_4_9 = 121
"""The first client version whose requests carry the maximum number of retries."""
DLQ_QUEUES = 1
READ_WRITE = 6

_CACHE_LIMIT = 10_000
_CACHED_QUEUES = 1024


class Destination(NamedTuple):
    """The topic and queue of a message, and the flags its topic adds."""

    topic: str
    queue_id: int
    flags: int


class MessageCheck:
    """Finds the topic of a send, creates it if allowed, and refuses invalid sends."""

    def __init__(self, broker: TableParts) -> None:
        self._broker = broker
        self._settings = broker.settings.broker
        self._select = broker.topics.select
        self._plain: dict[str, tuple[TopicConfig, list[Destination]]] = {}

    def topic_for_send(self, header: SendMessageRequestHeader, address: str, now_ms: int) -> TopicConfig:
        """Return the configuration of a send's topic. Raises RequestError."""
        settings = self._settings
        if now_ms < settings.start_accept_send_request_time_stamp:
            raise problems.NOT_YET_ACCEPTING.error(until=_time_text(settings.start_accept_send_request_time_stamp))
        topic = header.topic
        fault = names.topic_fault(topic)
        if fault is not None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, fault)
        config: TopicConfig | None = self._broker.topics.select(topic)
        if config is None or topic in names.BROKER_ONLY_TOPICS:
            config = self._create(header, address)
        if not is_writable(settings.broker_permission) and self._broker.topics.is_order_topic(topic):
            raise problems.BROKER_FORBIDDEN.error(
                broker=self._broker.advertised_host, action="sending message", perm=settings.broker_permission
            )
        if header.queue_id >= config.write_queue_nums and header.queue_id >= config.read_queue_nums:
            raise problems.QUEUE_ID_ILLEGAL.error(
                queue_id=header.queue_id,
                topic=_topic_text(config),
                write=config.write_queue_nums,
                read=config.read_queue_nums,
                producer=address,
            )
        return config

    def _create(self, header: SendMessageRequestHeader, address: str) -> TopicConfig:
        topic = header.topic
        if topic in names.BROKER_ONLY_TOPICS:
            raise problems.SYSTEM_TOPIC_FORBIDDEN.error(topic=topic)
        is_retry = topic.startswith(names.RETRY_PREFIX)
        sys_flag = topic_sys_flag(not is_retry, is_retry) if header.unit_mode else 0
        topics = self._broker.topics
        config: TopicConfig | None = topics.create_topic_in_send_message(
            topic, header.default_topic, address, header.default_topic_queue_nums, sys_flag
        )
        if config is None and is_retry:
            config = topics.create_topic_in_send_message_back(topic, 1, READ_WRITE, sys_flag, limited_for=address)
        if config is None:
            raise problems.TOPIC_NOT_EXIST.error(
                topic=topic, template=header.default_topic, enabled=str(self._settings.auto_create_topic_enable).lower()
            )
        return config

    def is_half_message(self, header: SendMessageRequestHeader) -> bool:
        """Whether a single send is a half message.

        Raises RequestError if this broker rejects transactions, or if the property that says so is damaged.
        """
        table = decode_properties(header.properties)
        mark = table.get(TRAN_MSG, "false")
        if mark.lower() not in ("true", "false"):
            raise problems.PROPERTY_ILLEGAL.error(name=TRAN_MSG, wanted="true or false", found=f"{mark!r:.50}")
        if not is_transactional(table, header.reconsume_times or 0):
            return False
        if self._settings.reject_transaction_message:
            raise problems.TRANSACTION_FORBIDDEN.error(broker=self._broker.advertised_host)
        return True

    def check_batch(self, header: SendMessageRequestHeader) -> None:
        """Refuse delayed and transactional batches: their messages could not be told apart later."""
        table = decode_properties(header.properties)
        late = table.get("DELAY", "0") not in ("", "0") or not TIMERS.isdisjoint(table)
        if late or header.sys_flag & TRANSACTION_PREPARED:
            raise self.illegal_batch("a batch cannot be delayed or transactional")

    def illegal_batch(self, found: object) -> RequestError:
        """Build the refusal of a malformed batch; ``found`` says why."""
        limit = self._broker.settings.store.max_message_size
        return problems.BATCH_MALFORMED.error(limit=limit, found=found)

    def destination(self, header: SendMessageRequestHeader, version: int, address: str, now_ms: int) -> Destination:
        """Return the destination of a single send. Raises RequestError."""
        settings = self._settings
        known = self._plain.get(header.topic)
        if (
            known is not None
            and known[0] is self._select(header.topic)
            and 0 <= header.queue_id < len(known[1])
            and now_ms >= settings.start_accept_send_request_time_stamp
            and settings.broker_permission & WRITE
        ):
            return known[1][header.queue_id]
        config = self.topic_for_send(header, address, now_ms)
        queue_id = choose_queue(header, config)
        topic = header.topic
        flags = added_flags(config)
        if not topic.startswith(names.RETRY_PREFIX):
            self._remember(config, flags)
        elif self._is_exhausted(header, address, version):
            topic = names.dlq_topic(topic.removeprefix(names.RETRY_PREFIX))
            if self._broker.topics.create_topic_in_send_message_back(topic, DLQ_QUEUES, READ_WRITE, 0) is None:
                raise RequestError(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] not exist")
            queue_id = 0
        return Destination(topic, queue_id, flags)

    def _remember(self, config: TopicConfig, flags: int) -> None:
        """Cache the destinations of a topic's queues.

        The entry is valid while the topic has this configuration object.
        """
        if len(self._plain) >= _CACHE_LIMIT:
            self._plain.clear()
        topic = config.topic_name
        # A topic may be given two billion queues by mistake.
        count = min(max(config.read_queue_nums, config.write_queue_nums), _CACHED_QUEUES)
        self._plain[topic] = (config, [Destination(topic, queue_id, flags) for queue_id in range(count)])

    def _is_exhausted(self, header: SendMessageRequestHeader, address: str, version: int) -> bool:
        group = header.topic.removeprefix(names.RETRY_PREFIX)
        config = self._broker.groups.find(group, address)
        if config is None:
            raise problems.GROUP_NOT_EXIST.error(group=group)
        limit: int = config.retry_max_times
        if version >= V3_4_9 and header.max_reconsume_times is not None:
            limit = header.max_reconsume_times
        return (header.reconsume_times or 0) >= limit


def added_flags(config: TopicConfig) -> int:
    """Return the flags a topic adds to its messages."""
    return MULTI_TAGS if config.topic_filter_type == "MULTI_TAG" else 0


def _time_text(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms // 1000)
    return f"{at:%Y-%m-%d %H:%M:%S},{at_ms % 1000:03}"


def _topic_text(config: TopicConfig) -> str:
    """Describe a topic as in Apache's remarks."""
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={describe(config.perm)}, "
        f"topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag}, "
        f"order={str(config.order).lower()}]"
    )


def choose_queue(header: SendMessageRequestHeader, config: TopicConfig) -> int:
    """Return the queue named in a send, or a random one if the client leaves the choice to the broker."""
    return header.queue_id if header.queue_id >= 0 else randrange(max(1, config.write_queue_nums))
