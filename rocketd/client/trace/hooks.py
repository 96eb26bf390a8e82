"""Makes trace contexts from the data of a producer or a consumer.

Counterpart: `SendMessageTraceHookImpl`, `ConsumeMessageTraceHookImpl` and `EndTransactionTraceHookImpl` (Apache). Pure
functions, to be called in one line and handed to the dispatcher's ``append``, which ignores None.

Topics and groups are given without the client's namespace, times in ms since 1970.
"""

from collections.abc import Collection, Mapping
from typing import Final, Protocol

from msgspec.structs import replace

from rocketd.client.trace.records import (
    DEFAULT_REGION,
    AccessChannel,
    ConsumeReturnType,
    MessageType,
    TraceBean,
    TraceContext,
    TraceType,
)
from rocketd.common import message_properties as props
from rocketd.common.sysflag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK

_START_DELIVER_TIME: Final = "__STARTDELIVERTIME"
_STATES: Final = {TRANSACTION_COMMIT: "COMMIT_MESSAGE", TRANSACTION_ROLLBACK: "ROLLBACK_MESSAGE"}
_UNKNOWN: Final = "UNKNOW"


class ConsumedMessage(Protocol):
    """The parts of a consumed message needed for a trace. ReceivedMessage has them."""

    @property
    def topic(self) -> str:
        """The original topic, even for a retry."""

    @property
    def msg_id(self) -> str:
        """Its unique key, or its offset message id if it has none."""

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties."""

    @property
    def reconsume_times(self) -> int:
        """The number of its retries so far."""


def trace_of_send(
    *,
    group: str,
    topic: str,
    properties: Mapping[str, str],
    body_length: int,
    store_host: str,
    msg_id: str,
    offset_msg_id: str | None,
    success: bool,
    started_ms: int,
    finished_ms: int,
    region: str | None = None,
    trace_on: bool = True,
) -> TraceContext | None:
    """Return the trace of a send answered by a broker. As in Apache's client, a send without an answer is not traced.

    ``properties`` are those sent, with tags and keys; they also identify half and delayed messages. ``body_length`` is
    the length before compression. ``store_host`` is the broker's address, host:port. ``msg_id`` is the unique key; for
    a batch, the unique keys separated by commas. ``success`` is whether the status is SEND_OK. ``region`` and
    ``trace_on`` are MSG_REGION and TRACE_ON of the response. Return None if it has switched tracing off.
    """
    if not trace_on:
        return None
    bean = TraceBean(
        topic=topic,
        msg_id=msg_id,
        offset_msg_id=offset_msg_id,
        tags=properties.get(props.TAGS),
        keys=properties.get(props.KEYS),
        store_host=store_host,
        body_length=body_length,
        message_type=message_type_of(properties),
    )
    return TraceContext(
        trace_type=TraceType.PUB,
        timestamp=started_ms,
        region=region or DEFAULT_REGION,
        group=group,
        cost_time=max(0, finished_ms - started_ms),
        success=success,
        beans=(bean,),
    )


def trace_of_consume(
    *, group: str, messages: Collection[ConsumedMessage], request_id: str, started_ms: int
) -> TraceContext | None:
    """Return the trace of messages about to be handled. Keep it for ``trace_of_consumed``.

    ``request_id`` is a new unique key. Messages with the property TRACE_ON "false" are left out. Return None if no other is
    left.
    """
    traced = [message for message in messages if message.properties.get(props.TRACE_ON) != "false"]
    if not traced:
        return None
    beans = tuple(
        TraceBean(
            topic=message.topic,
            msg_id=message.msg_id,
            tags=message.properties.get(props.TAGS),
            keys=message.properties.get(props.KEYS),
            retry_times=message.reconsume_times,
        )
        for message in traced
    )
    return TraceContext(
        trace_type=TraceType.SUB_BEFORE,
        timestamp=started_ms,
        region=traced[-1].properties.get(props.MSG_REGION),
        group=group,
        request_id=request_id,
        beans=beans,
    )


def trace_of_consumed(
    before: TraceContext | None,
    *,
    message_count: int,
    success: bool,
    return_type: ConsumeReturnType,
    finished_ms: int,
    access_channel: AccessChannel = AccessChannel.LOCAL,
) -> TraceContext | None:
    """Return the trace of handled messages. Return None if ``before``, the result of ``trace_of_consume``, is None.

    ``message_count`` is the number of messages given to the listener, including untraced ones. The reported cost is the
    duration divided by it.
    """
    if before is None:
        return None
    return replace(
        before,
        trace_type=TraceType.SUB_AFTER,
        timestamp=finished_ms,
        cost_time=max(0, finished_ms - before.timestamp) // message_count,
        success=success,
        context_code=return_type,
        access_channel=access_channel,
    )


def trace_of_end_transaction(
    *,
    group: str,
    topic: str,
    properties: Mapping[str, str],
    store_host: str,
    msg_id: str,
    transaction_id: str | None,
    commit_or_rollback: int,
    from_check: bool,
    now_ms: int,
) -> TraceContext:
    """Return the trace of the end of a transaction.

    ``properties`` are the half message's, ``store_host`` is the broker's address. ``commit_or_rollback`` is the field of the
    request END_TRANSACTION: TRANSACTION_COMMIT or TRANSACTION_ROLLBACK; any other value means unknown. ``from_check`` is
    whether the broker asked.
    """
    bean = TraceBean(
        topic=topic,
        msg_id=msg_id,
        tags=properties.get(props.TAGS),
        keys=properties.get(props.KEYS),
        store_host=store_host,
        # Apache's client writes it for every state.
        message_type=MessageType.TRANSACTION_COMMIT,
        transaction_id=transaction_id,
        transaction_state=_STATES.get(commit_or_rollback, _UNKNOWN),
        from_transaction_check=from_check,
    )
    return TraceContext(
        trace_type=TraceType.END_TRANSACTION,
        timestamp=now_ms,
        region=properties.get(props.MSG_REGION) or DEFAULT_REGION,
        group=group,
        beans=(bean,),
    )


def message_type_of(properties: Mapping[str, str]) -> MessageType:
    """Return the type of a message by its properties."""
    if props.DELAY in properties or _START_DELIVER_TIME in properties:
        return MessageType.DELAY
    if properties.get(props.TRAN_MSG) == "true":
        return MessageType.TRANSACTION_HALF
    return MessageType.NORMAL
