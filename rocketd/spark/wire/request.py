"""A send as a request, and its answer as the positions of the stored messages.

Pure functions. Counterpart: `SendMessageRequestHeader`, `SendResult` (Apache).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from time import time
from typing import Any, Final

from rocketd.common.names import DEFAULT_TOPIC_QUEUES
from rocketd.common.record_host import physical_offset
from rocketd.protocol.batch import batch_properties
from rocketd.protocol.errors import UsageError, check_topic
from rocketd.protocol.message import property_text
from rocketd.protocol.send import STORED, send_header
from rocketd.remoting.headers.client import SendMessageRequestHeader, SendMessageResponseHeader
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.spark.errors import ClusterError
from rocketd.spark.ranges import Queue
from rocketd.spark.wire.faults import check, header_of
from rocketd.spark.wire.message import Batch, MessageError, RawMessage, encode_batch, keys_of, may_batch, packed

_BATCH_PROPERTIES: Final = batch_properties(True)


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a stored message.

    `status` is 0, or a warning code of the broker: stored, but not flushed or replicated in time.
    """

    queue: Queue
    queue_offset: int
    offset_msg_id: str
    unique_key: str
    transaction_id: str = ""
    status: int = 0

    @property
    def commit_log_offset(self) -> int:
        """The offset of the record in the broker's commit log."""
        return physical_offset(self.offset_msg_id)


@dataclass(frozen=True, slots=True)
class SendReceipt:
    """The result of one `submit`: the positions of its messages, or the error. `token` is the caller's."""

    token: Any
    queue: Queue
    positions: tuple[Position, ...] = ()
    error: ClusterError | None = None


@dataclass(frozen=True, slots=True)
class SendRequest:
    """A send that is ready to be written."""

    code: int
    header: SendMessageRequestHeader
    body: bytes
    unique_keys: tuple[str, ...]


def make_request(
    group: str, queue: Queue, messages: Sequence[RawMessage] | Batch, compress_over: int = 0
) -> SendRequest:
    """Return a request for one message, or for several as a batch.

    Raises MessageError; ValueError if they cannot be a batch.
    """
    if isinstance(messages, Batch):
        batch = messages
    elif len(messages) == 1:
        message = messages[0]
        (key,) = keys_of(messages)
        try:
            check_topic(message.topic)
            body, sys_flag = packed(message.body, compress_over)
            properties = property_text(message.table(key))
        except UsageError as error:
            raise MessageError(str(error)) from error
        header = _header(group, queue, message.topic, properties, sys_flag, message.flag)
        return SendRequest(RequestCode.SEND_MESSAGE_V2, header, body, (key,))
    elif may_batch(messages):
        batch = encode_batch(messages)
    else:
        raise ValueError("these messages cannot be a batch: part them with in_batches")
    header = _header(group, queue, batch.topic, _BATCH_PROPERTIES, batch=True)
    return SendRequest(RequestCode.SEND_BATCH_MESSAGE, header, batch.body, batch.unique_keys)


def _header(
    group: str, queue: Queue, topic: str, properties: str, sys_flag: int = 0, flag: int = 0, *, batch: bool = False
) -> SendMessageRequestHeader:
    return send_header(
        group,
        topic,
        queue,
        properties,
        born_ms=int(time() * 1000),
        flag=flag,
        sys_flag=sys_flag,
        batch=batch,
        max_queues=max(DEFAULT_TOPIC_QUEUES, queue.queue_id + 1),
    )


def positions(address: str, queue: Queue, request: SendRequest, answer: RemotingCommand) -> tuple[Position, ...]:
    """Return the positions of a request's messages from its answer. Raises ClusterError for a refusal."""
    check(f"broker {queue.broker} at {address}", request.code, answer, STORED)
    try:
        where = header_of(SendMessageResponseHeader, answer)
    except ClusterError as error:
        raise ClusterError(f"{address} answered a send with nonsense: {error}", answer.code, doubtful=True) from error
    ids = where.msg_id.split(",")
    if len(ids) != len(request.unique_keys):
        raise ClusterError(
            f"{address} stored {len(ids)} of {len(request.unique_keys)} messages of a batch", answer.code, doubtful=True
        )
    stored = Queue(queue.topic, queue.broker, where.queue_id)
    return tuple(
        Position(stored, where.queue_offset + place, msg_id, key, where.transaction_id or "", answer.code)
        for place, (msg_id, key) in enumerate(zip(ids, request.unique_keys, strict=True))
    )
