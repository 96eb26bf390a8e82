"""Converts the client's messages to FastStream's messages.

Headers are the user properties of a message. Three of them have a meaning, and programs in other languages can read and
write them: ``content-type``, ``correlation_id`` and ``reply_to``.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from faststream.message import StreamMessage, decode_message

from rocketd.common import message_properties as props
from rocketd.faststream.base.message import Raw, RocketBatchMessage, RocketMessage, is_request
from rocketd.faststream.base.settlement import current_settlement

if TYPE_CHECKING:
    from faststream._internal.basic_types import DecodedMessage

CONTENT_TYPE = "content-type"
CORRELATION_ID = "correlation_id"
REPLY_TO = "reply_to"

_SYSTEM = props.RESERVED | {
    props.CHECK_IMMUNITY_TIME_IN_SECONDS,
    props.TRANSACTION_CHECK_TIMES,
    props.TRAN_PREPARED_QUEUE_OFFSET,
}
_SYSTEM_PREFIX = "TIMER_"


def headers_of(raw: Raw) -> dict[str, str]:
    """Return the user properties of a message."""
    table = raw.properties
    return {name: table[name] for name in table if name not in _SYSTEM and not name.startswith(_SYSTEM_PREFIX)}


class RocketParser:
    """The default parser and decoder for single messages and batches."""

    async def parse_message(self, raw: Raw) -> RocketMessage:
        """Create a message tied to the settlement of the current delivery."""
        headers = headers_of(raw)
        # The reply to a request is routed by the client id; other answers go to a topic.
        reply_to = raw.properties.get(props.REPLY_TO_CLIENT, "") if is_request(raw) else headers.get(REPLY_TO, "")
        return RocketMessage(
            raw,
            raw.body,
            headers=headers,
            reply_to=reply_to,
            content_type=headers.get(CONTENT_TYPE),
            message_id=raw.msg_id,
            correlation_id=headers.get(CORRELATION_ID) or raw.properties.get(props.CORRELATION_ID) or raw.msg_id,
            settlement=current_settlement(),
        )

    async def parse_batch(self, raws: Sequence[Raw]) -> RocketBatchMessage:
        """Create one message from a batch. Its headers are those of the first message."""
        batch_headers: list[dict[str, Any]] = [dict(headers_of(raw)) for raw in raws]
        headers = batch_headers[0]
        return RocketBatchMessage(
            raws,
            [raw.body for raw in raws],
            headers=headers,
            batch_headers=batch_headers,
            reply_to=headers.get(REPLY_TO, ""),
            content_type=headers.get(CONTENT_TYPE),
            message_id=raws[0].msg_id,
            correlation_id=headers.get(CORRELATION_ID) or raws[0].msg_id,
            settlement=current_settlement(),
        )

    async def decode_message(self, message: StreamMessage[Any]) -> "DecodedMessage":
        """Decode a body by its content type; without a content type, try JSON."""
        return decode_message(message)

    async def decode_batch(self, message: StreamMessage[Sequence[Raw]]) -> list["DecodedMessage"]:
        """Decode each body of a batch separately."""
        return [decode_message(await self.parse_message(raw)) for raw in message.raw_message]
