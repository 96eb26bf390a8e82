"""A message made ready: what a row becomes, what is staged, and what is sent."""

from dataclasses import dataclass
from typing import Final

from rocketd.common.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, find_property

SEQUENCE: Final = "SPARK_SEQ"
"""Property by which an effectively-once writer knows its messages again: ``SINK:BATCH:NUMBER``."""

TRANSACTION: Final = "SPARK_TXN"
"""Property that tells of which write a half message is."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message as its broker is to store it.

    `properties` is the property string in UTF-8 and has the unique key; `sys_flag` the compression's bits; `single` says
    that it cannot share a request with others. `key` is what its queue is chosen by; `queue_id`, and `broker` where
    several have such a queue, are the queue itself. None of them: any queue. `number` is its place in a batch that is
    delivered effectively once.
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
        """Bytes that it takes in a request, about."""
        return len(self.body) + len(self.properties) + 22


_SEPARATOR: Final = PROPERTY_SEPARATOR.encode()
_NAME: Final = SEQUENCE.encode()


def numbered(message: Outgoing, label: str, number: int) -> Outgoing:
    """The message as number so much of a batch; `label` is ``SINK:BATCH:``."""
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
    """Which number of the batch with this label a stored message is, by its property string; None for any other."""
    value = find_property(properties, _NAME)
    if value is None or not value.startswith(label.encode()):
        return None
    digits = value[len(label) :]
    return int(digits) if digits.isdigit() else None
