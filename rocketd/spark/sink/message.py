"""A message ready to send: made from a row, staged, and sent."""

from dataclasses import dataclass
from typing import Final

from rocketd.common.message_properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, find_property
from rocketd.protocol.batch import ENTRY_OVERHEAD

SEQUENCE: Final = "SPARK_SEQ"
"""The property by which an effectively-once writer recognizes its messages: ``SINK:BATCH:NUMBER``."""

TRANSACTION: Final = "SPARK_TXN"
"""The property that names the write of a half message."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message as its broker is to store it.

    `properties` is the property string in UTF-8, including the unique key. `sys_flag` holds the compression bits.
    `single` means the message cannot share a request with others. `key` selects the queue. Otherwise `queue_id` names
    it, with `broker` if several brokers have such a queue. If all three are None, any queue will do. `number` is the
    place in a batch that is delivered effectively once.
    """

    topic: str
    body: bytes
    properties: bytes
    flag: int = 0
    sys_flag: int = 0
    single: bool = False
    key: str | None = None
    queue_id: int | None = None
    broker: str | None = None
    number: int = -1

    @property
    def size(self) -> int:
        """The approximate number of bytes in a request."""
        return len(self.body) + len(self.properties) + ENTRY_OVERHEAD


_SEPARATOR: Final = PROPERTY_SEPARATOR.encode()
_NAME: Final = SEQUENCE.encode()


def numbered(message: Outgoing, label: str, number: int) -> Outgoing:
    """Return the message with its number in the batch; `label` is ``SINK:BATCH:``."""
    text = message.properties
    between = b"" if text.endswith(_SEPARATOR) else _SEPARATOR
    mark = f"{SEQUENCE}{NAME_VALUE_SEPARATOR}{label}{number}".encode()
    return Outgoing(
        message.topic,
        message.body,
        text + between + mark,
        message.flag,
        message.sys_flag,
        message.single,
        message.key,
        message.queue_id,
        message.broker,
        number,
    )


def number_in(properties: bytes, label: str) -> int | None:
    """Return the number of a stored message in the batch with this label, or None if it belongs to another."""
    value = find_property(properties, _NAME)
    if value is None or not value.startswith(label.encode()):
        return None
    digits = value[len(label) :]
    return int(digits) if digits.isdigit() else None
