"""Makes trace contexts of what a producer and a consumer know at the time.

Answers to SendMessageTraceHookImpl, ConsumeMessageTraceHookImpl and EndTransactionTraceHookImpl. Pure functions, made to
be called in one line and handed to the dispatcher's ``append``, which takes None as "nothing to tell".

Topics and groups are given without the client's namespace, moments in ms since 1970.
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
from rocketd.common import properties as names
from rocketd.common.sysflag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK

_START_DELIVER_TIME: Final = "__STARTDELIVERTIME"
_STATES: Final = {TRANSACTION_COMMIT: "COMMIT_MESSAGE", TRANSACTION_ROLLBACK: "ROLLBACK_MESSAGE"}
_UNKNOWN: Final = "UNKNOW"


class ConsumedMessage(Protocol):
    """What a trace needs of a message that is consumed; ReceivedMessage has it."""

    @property
    def topic(self) -> str:
        """The topic it was sent to, also when it is a retry."""

    @property
    def msg_id(self) -> str:
        """Its unique key, or its offset message id when it has none."""

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties."""

    @property
    def reconsume_times(self) -> int:
        """How often it has come back."""


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
    """Tell of a send that a broker has answered; one that got no answer is in no trace, as with Apache's.

    ``properties`` are the message's as sent: they have tags and keys, and tell half and delayed messages. ``body_length``
    is of the body before it was compressed. ``store_host`` is the broker's address, host:port. ``msg_id`` is the unique
    key; of a batch the unique keys with commas between. ``success`` is whether the status is SEND_OK. ``region`` and
    ``trace_on`` are MSG_REGION and TRACE_ON of the response: None when it has switched tracing off.
    """
    if not trace_on:
        return None
    bean = TraceBean(
        topic=topic,
        msg_id=msg_id,
        offset_msg_id=offset_msg_id,
        tags=properties.get(names.TAGS),
        keys=properties.get(names.KEYS),
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
    """Tell that a listener is about to get messages; keep the result for ``trace_of_consumed``.

    ``request_id`` is a new unique key. Messages whose property TRACE_ON is "false" are left out: None when no other is
    there.
    """
    traced = [message for message in messages if message.properties.get(names.TRACE_ON) != "false"]
    if not traced:
        return None
    beans = tuple(
        TraceBean(
            topic=message.topic,
            msg_id=message.msg_id,
            tags=message.properties.get(names.TAGS),
            keys=message.properties.get(names.KEYS),
            retry_times=message.reconsume_times,
        )
        for message in traced
    )
    return TraceContext(
        trace_type=TraceType.SUB_BEFORE,
        timestamp=started_ms,
        region=traced[-1].properties.get(names.MSG_REGION),
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
    """Tell how the listener came back. None when ``before``, what ``trace_of_consume`` returned, is None.

    ``message_count`` is how many messages the listener got, those without a trace included: the cost told is the time it
    took divided by that.
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
    """Tell how a transaction ends.

    ``properties`` are the half message's, ``store_host`` the broker's address. ``commit_or_rollback`` is that of the
    request END_TRANSACTION: TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, anything else is unknown. ``from_check`` is whether
    the broker asked for it.
    """
    bean = TraceBean(
        topic=topic,
        msg_id=msg_id,
        tags=properties.get(names.TAGS),
        keys=properties.get(names.KEYS),
        store_host=store_host,
        # Apache's says so whatever the state is.
        message_type=MessageType.TRANSACTION_COMMIT,
        transaction_id=transaction_id,
        transaction_state=_STATES.get(commit_or_rollback, _UNKNOWN),
        from_transaction_check=from_check,
    )
    return TraceContext(
        trace_type=TraceType.END_TRANSACTION,
        timestamp=now_ms,
        region=properties.get(names.MSG_REGION) or DEFAULT_REGION,
        group=group,
        beans=(bean,),
    )


def message_type_of(properties: Mapping[str, str]) -> MessageType:
    """Tell from its properties what kind of message is sent."""
    if names.DELAY in properties or _START_DELIVER_TIME in properties:
        return MessageType.DELAY
    if properties.get(names.TRAN_MSG) == "true":
        return MessageType.TRANSACTION_HALF
    return MessageType.NORMAL
