"""A send as a request, and its answer as the places where the messages are.

Answers to SendMessageRequestHeader and SendResult of Apache's client. Pure functions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from time import time
from typing import Any, Final

from rocketd.common.names import AUTO_CREATE_TOPIC, DEFAULT_TOPIC_QUEUES
from rocketd.common.properties import WAIT, encode_properties
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.headers import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rocketd.spark.errors import BrokerError
from rocketd.spark.ranges import Queue
from rocketd.spark.wire.faults import check, header_of
from rocketd.spark.wire.message import (
    Batch,
    Message,
    check_topic,
    encode_batch,
    keys_of,
    may_batch,
    packed,
    property_text,
)

STORED: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
"""Answers to sends whose messages are stored."""

_BATCH_PROPERTIES: Final = encode_properties({WAIT: "true"})


@dataclass(frozen=True, slots=True)
class Position:
    """Where a message is stored. `status` is 0, or what the broker warns of: stored, but not flushed or copied in time."""

    queue: Queue
    queue_offset: int
    offset_msg_id: str
    unique_key: str
    transaction_id: str = ""
    status: int = 0

    @property
    def commit_log_offset(self) -> int:
        """Offset of its record in the broker's commit log."""
        return int(self.offset_msg_id[-16:], 16)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of one `submit`: where its messages are, or the error. `token` is the caller's."""

    token: Any
    queue: Queue
    positions: tuple[Position, ...] = ()
    error: BrokerError | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A send that is ready to be written."""

    code: int
    header: SendMessageRequestHeader
    body: bytes
    unique_keys: tuple[str, ...]


def make_request(group: str, queue: Queue, messages: Sequence[Message] | Batch, compress_over: int = 0) -> Request:
    """Make a request of one message, or of several as a batch. Raises MessageError, ValueError for no batch."""
    if isinstance(messages, Batch):
        batch = messages
    elif len(messages) == 1:
        message = messages[0]
        check_topic(message.topic)
        (key,) = keys_of(messages)
        body, sys_flag = packed(message.body, compress_over)
        header = _header(group, queue, message.topic, property_text(message.table(key)), sys_flag, message.flag)
        return Request(RequestCode.SEND_MESSAGE_V2, header, body, (key,))
    elif may_batch(messages):
        batch = encode_batch(messages)
    else:
        raise ValueError("these messages cannot be a batch: part them with in_batches")
    header = _header(group, queue, batch.topic, _BATCH_PROPERTIES, batch=True)
    return Request(RequestCode.SEND_BATCH_MESSAGE, header, batch.body, batch.unique_keys)


def _header(
    group: str, queue: Queue, topic: str, properties: str, sys_flag: int = 0, flag: int = 0, *, batch: bool = False
) -> SendMessageRequestHeader:
    return SendMessageRequestHeaderV2(
        producer_group=group,
        topic=topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=max(DEFAULT_TOPIC_QUEUES, queue.queue_id + 1),
        queue_id=queue.queue_id,
        sys_flag=sys_flag,
        born_timestamp=int(time() * 1000),
        flag=flag,
        properties=properties,
        reconsume_times=0,
        batch=batch,
        bname=queue.broker,
    )


def positions(address: str, queue: Queue, request: Request, answer: RemotingCommand) -> tuple[Position, ...]:
    """Where the messages of a request are, by its answer. Raises BrokerError for a refusal."""
    check(f"broker {queue.broker} at {address}", request.code, answer, STORED)
    try:
        where = header_of(SendMessageResponseHeader, answer)
    except BrokerError as error:
        raise BrokerError(f"{address} answered a send with nonsense: {error}", answer.code, doubtful=True) from error
    ids = where.msg_id.split(",")
    if len(ids) != len(request.unique_keys):
        raise BrokerError(
            f"{address} stored {len(ids)} of {len(request.unique_keys)} messages of a batch", answer.code, doubtful=True
        )
    stored = Queue(queue.topic, queue.broker, where.queue_id)
    return tuple(
        Position(stored, where.queue_offset + place, msg_id, key, where.transaction_id or "", answer.code)
        for place, (msg_id, key) in enumerate(zip(ids, request.unique_keys, strict=True))
    )
