r"""The records of a message trace: their contents, encoding and decoding.

Counterpart: `TraceContext`, `TraceBean`, `TraceTransferBean` and `TraceDataEncoder` of client 4.9.7 (Apache). The encoded
text is the same. Plain values and pure functions.

The body of a trace message is a sequence of records. Its KEYS are the ids and keys of the traced messages:

    Pub             type, time, region, group, topic, message id, tags, keys, store host, body length, cost, message type,
                    offset message id, success
    SubBefore       type, time, region, group, request id, message id, retry times, keys
    SubAfter        type, request id, message id, cost, success, keys, context code, time, group
    EndTransaction  type, time, region, group, topic, message id, tags, keys, store host, message type, transaction id,
                    state, whether it answers a check

Fields are separated by \x01, and each record ends with \x02. A missing text is written as null, as in Java.
"""

from collections.abc import Callable, Iterator
from enum import Enum, IntEnum, StrEnum
from typing import Final

import msgspec

CONTENT_SEPARATOR: Final = "\x01"
RECORD_SEPARATOR: Final = "\x02"
KEY_SEPARATOR: Final = " "
DEFAULT_REGION: Final = "DefaultRegion"
"""Region of a broker without a configured one."""

_NULL = "null"


class TraceRecordError(ValueError):
    """A text that is not a trace record, or a context that cannot be encoded."""


class TraceType(StrEnum):
    """The kind of event: the first field of a record."""

    PUB = "Pub"
    SUB_BEFORE = "SubBefore"
    SUB_AFTER = "SubAfter"
    END_TRANSACTION = "EndTransaction"


class MessageType(IntEnum):
    """The type of the sent message."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3


class ConsumeReturnType(IntEnum):
    """The way a listener ended: the context code of a SubAfter record."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURN_NULL = 3
    FAILED = 4


class AccessChannel(Enum):
    """The kind of service used by a client. With CLOUD each region has a trace topic, and SubAfter is shorter."""

    LOCAL = "LOCAL"
    CLOUD = "CLOUD"


class TraceBean(msgspec.Struct, frozen=True, kw_only=True):
    """One message in a trace. Only the fields of its record's type are written.

    ``keys`` is the message's KEYS property, words separated by blanks. ``body_length`` is in bytes. ``message_type`` is a
    MessageType, or a number of a later version. ``transaction_state`` is COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW. Other
    clients wrote ``client_host``, which is only read.
    """

    msg_id: str
    topic: str = ""
    offset_msg_id: str | None = ""
    tags: str | None = ""
    keys: str | None = ""
    store_host: str | None = ""
    client_host: str = ""
    retry_times: int = 0
    body_length: int = 0
    message_type: int = MessageType.NORMAL
    transaction_id: str | None = None
    transaction_state: str = ""
    from_transaction_check: bool = False


class TraceContext(msgspec.Struct, frozen=True, kw_only=True):
    """An event of one message or several.

    ``timestamp`` is in ms since 1970, ``cost_time`` in ms. ``request_id`` joins SubAfter to its SubBefore. Pub and
    EndTransaction have one message.
    """

    trace_type: TraceType
    beans: tuple[TraceBean, ...]
    timestamp: int = 0
    region: str | None = ""
    group: str = ""
    cost_time: int = 0
    success: bool = True
    request_id: str = ""
    context_code: int = 0
    access_channel: AccessChannel = AccessChannel.LOCAL


class TraceTransferBean(msgspec.Struct, frozen=True):
    """An encoded context: its records, and the keys for its trace message, each once."""

    trans_data: str
    trans_key: tuple[str, ...]


# ------------------------------------------------------------ encoding


def encode_context(context: TraceContext) -> TraceTransferBean:
    """Encode a context. Raises TraceRecordError if it has no message, or a text contains a separator."""
    if not context.beans:
        raise TraceRecordError(f"a {context.trace_type} trace without a message")
    match context.trace_type:
        case TraceType.PUB:
            data = _pub(context, context.beans[0])
        case TraceType.SUB_BEFORE:
            data = "".join(_sub_before(context, bean) for bean in context.beans)
        case TraceType.SUB_AFTER:
            data = "".join(_sub_after(context, bean) for bean in context.beans)
        case TraceType.END_TRANSACTION:
            data = _end_transaction(context, context.beans[0])
    keys: dict[str, None] = {}
    for bean in context.beans:
        keys[bean.msg_id] = None
        if bean.keys:
            keys.update(dict.fromkeys(key for key in bean.keys.split(KEY_SEPARATOR) if key))
    return TraceTransferBean(data, tuple(keys))


def _record(*fields: str | int | None, end: str = RECORD_SEPARATOR) -> str:
    record = CONTENT_SEPARATOR.join([_text(field) for field in fields])
    if record.count(CONTENT_SEPARATOR) != len(fields) - 1 or RECORD_SEPARATOR in record:
        raise TraceRecordError(f"a text holds \\x01 or \\x02, which separate fields and records: {record!r}")
    return record + end


def _text(field: str | int | None) -> str:
    if field is None:
        return _NULL
    if isinstance(field, bool):
        return "true" if field else "false"
    return str(field)


def _pub(context: TraceContext, bean: TraceBean) -> str:
    return _record(
        *(context.trace_type, context.timestamp, context.region, context.group, bean.topic, bean.msg_id, bean.tags),
        *(bean.keys, bean.store_host, bean.body_length, context.cost_time, bean.message_type, bean.offset_msg_id),
        context.success,
    )


def _sub_before(context: TraceContext, bean: TraceBean) -> str:
    return _record(
        *(context.trace_type, context.timestamp, context.region, context.group, context.request_id, bean.msg_id),
        *(bean.retry_times, bean.keys),
    )


def _sub_after(context: TraceContext, bean: TraceBean) -> str:
    start = (context.trace_type, context.request_id, bean.msg_id, context.cost_time, context.success, bean.keys)
    if context.access_channel is AccessChannel.CLOUD:
        # Apache ends these records with the separator of fields, so the next one follows like further fields.
        return _record(*start, context.context_code, end=CONTENT_SEPARATOR)
    return _record(*start, context.context_code, context.timestamp, context.group)


def _end_transaction(context: TraceContext, bean: TraceBean) -> str:
    return _record(
        *(context.trace_type, context.timestamp, context.region, context.group, bean.topic, bean.msg_id, bean.tags),
        *(bean.keys, bean.store_host, bean.message_type, bean.transaction_id, bean.transaction_state),
        bean.from_transaction_check,
    )


# ------------------------------------------------------------ decoding


def decode_records(data: str) -> list[TraceContext]:
    """Decode the body of a trace message. Each record becomes a context of one message.

    Records of versions from 4.4 on and of other clients are accepted: Pub with 12, 13, 14 or more fields, SubAfter with
    6 (no context code), 7 or 8 (no time and group), 9 or more. Missing fields have their defaults. Records of other
    types are skipped. The text "null" in an optional field is read as None. Raises TraceRecordError if a record is too
    short, or has a text in place of a number.
    """
    contexts = []
    for record in data.split(RECORD_SEPARATOR):
        for fields in _apart(record.split(CONTENT_SEPARATOR)):
            read = _READERS.get(fields[0])
            if read is None:
                continue
            try:
                contexts.append(read(fields))
            except (IndexError, ValueError) as error:
                raise TraceRecordError(f"no {fields[0]} record: {error}: {fields!r}") from error
    return contexts


def _apart(fields: list[str]) -> Iterator[list[str]]:
    """Split off records before another record's type: SubAfter records of the cloud have no end mark."""
    while fields[0] == TraceType.SUB_AFTER and len(fields) > 7 and (fields[7] in _READERS or fields[7:] == [""]):
        yield fields[:7]
        fields = fields[7:]
    yield fields


def _nullable(text: str) -> str | None:
    return None if text == _NULL else text


def _number(text: str) -> int:
    if not (text.isascii() and text.removeprefix("-").isdigit()):
        raise ValueError(f"{text!r} is not a number")
    return int(text)


def _truth(text: str) -> bool:
    return text.lower() == "true"


def _read_pub(fields: list[str]) -> TraceContext:
    count = len(fields)
    success = True
    if count >= 13:
        success = _truth(fields[12 if count == 13 else 13])
    bean = TraceBean(
        topic=fields[4],
        msg_id=fields[5],
        tags=_nullable(fields[6]),
        keys=_nullable(fields[7]),
        store_host=_nullable(fields[8]),
        body_length=_number(fields[9]),
        message_type=_number(fields[11]),
        offset_msg_id=_nullable(fields[12]) if count >= 14 else "",
        client_host=fields[14] if count >= 15 else "",
    )
    return TraceContext(
        trace_type=TraceType.PUB,
        timestamp=_number(fields[1]),
        region=_nullable(fields[2]),
        group=fields[3],
        cost_time=_number(fields[10]),
        success=success,
        beans=(bean,),
    )


def _read_sub_before(fields: list[str]) -> TraceContext:
    return TraceContext(
        trace_type=TraceType.SUB_BEFORE,
        timestamp=_number(fields[1]),
        region=_nullable(fields[2]),
        group=fields[3],
        request_id=fields[4],
        beans=(TraceBean(msg_id=fields[5], retry_times=_number(fields[6]), keys=_nullable(fields[7])),),
    )


def _read_sub_after(fields: list[str]) -> TraceContext:
    whole = len(fields) >= 9
    return TraceContext(
        trace_type=TraceType.SUB_AFTER,
        request_id=fields[1],
        cost_time=_number(fields[3]),
        success=_truth(fields[4]),
        context_code=_number(fields[6]) if len(fields) >= 7 else 0,
        timestamp=_number(fields[7]) if whole else 0,
        group=fields[8] if whole else "",
        beans=(TraceBean(msg_id=fields[2], keys=_nullable(fields[5])),),
    )


def _read_end_transaction(fields: list[str]) -> TraceContext:
    bean = TraceBean(
        topic=fields[4],
        msg_id=fields[5],
        tags=_nullable(fields[6]),
        keys=_nullable(fields[7]),
        store_host=_nullable(fields[8]),
        message_type=_number(fields[9]),
        transaction_id=_nullable(fields[10]),
        transaction_state=fields[11],
        from_transaction_check=_truth(fields[12]),
    )
    return TraceContext(
        trace_type=TraceType.END_TRANSACTION,
        timestamp=_number(fields[1]),
        region=_nullable(fields[2]),
        group=fields[3],
        beans=(bean,),
    )


_READERS: Final[dict[str, Callable[[list[str]], TraceContext]]] = {
    TraceType.PUB: _read_pub,
    TraceType.SUB_BEFORE: _read_sub_before,
    TraceType.SUB_AFTER: _read_sub_after,
    TraceType.END_TRANSACTION: _read_end_transaction,
}
