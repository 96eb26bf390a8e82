"""Messages as an application sees them: sent messages, received messages and results of sends.

Counterpart: `Message`, `MessageExt` and `SendResult` (Apache). Plain values.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Generic

import msgspec
from typing_extensions import TypeVar

from rocketd.client.errors import (
    IllegalMessageError,
    IllegalOptionError,
    IllegalTopicError,
    UsageError,
    check_topic,
)
from rocketd.client.messages.lease import LEASE, Lease
from rocketd.client.settings.config import Duration, milliseconds
from rocketd.client.settings.option_names import OF_MESSAGES, check_names
from rocketd.common import message_properties as props
from rocketd.common.names import NOT_ALLOWED_SEND_TOPICS
from rocketd.protocol.message import property_table
from rocketd.protocol.send import SendResult, SendStatus
from rocketd.remoting.bodies.tables import MessageQueue

__all__ = ["SEND_OK", "Message", "ReceivedMessage", "SendResult", "SendStatus", "T", "check_is_message"]

T = TypeVar("T", default=bytes)
"""Type of bodies; bytes by default."""

SEND_OK = SendStatus.SEND_OK
"""Status of a message stored, flushed and replicated as configured."""

MAX_INT = 2**31 - 1
"""The greatest 32-bit number of the protocol."""

KEY_SEPARATOR = " "

BLANKS = "".join(map(chr, range(33)))
"""The characters trimmed by Java."""


class _MessageType(msgspec.StructMeta):
    """The class of Message: it answers an unknown field with the right one."""

    if not TYPE_CHECKING:  # for a type checker, the fields are the parameters

        def __call__(self, *values: object, **fields: object) -> object:
            try:
                return super().__call__(*values, **fields)
            except TypeError as error:
                wrong = error
            check_names(self.__name__, fields, self.__struct_fields__, OF_MESSAGES, "field")
            raise wrong


class Message(msgspec.Struct, Generic[T], metaclass=_MessageType):
    """A message to send. ``keys`` are words to find it by; ``properties`` belong to the application."""

    topic: str
    body: T
    tags: str | None = None
    keys: Sequence[str] = ()
    properties: dict[str, str] = {}
    flag: int = 0
    delay_level: int = 0
    """Delay level, from 1 on. 0 delivers at once. Brokers have 18 levels unless their messageDelayLevel says otherwise, and
    take a higher one for their highest.
    """
    deliver_at: datetime | None = None
    """Time of delivery. Supported by brokers of rocketd and RocketMQ 5; Apache's 4.x delivers at once."""
    deliver_after: Duration | None = None
    """Delay of delivery. Supported as ``deliver_at``."""
    wait_stored: bool = True
    """Whether a broker with synchronous flush or replication answers only after it."""

    def check(self) -> None:
        """Raise IllegalTopicError or IllegalMessageError if every broker would refuse it. The body is checked elsewhere."""
        check_topic(self.topic)
        if self.topic in NOT_ALLOWED_SEND_TOPICS:
            raise IllegalTopicError(f"topic {self.topic!r}: only brokers send to it")
        _check_number("flag", self.flag, -MAX_INT - 1)
        _check_number("delay_level", self.delay_level, 0)
        if self.deliver_at is not None or self.deliver_after is not None:
            self._check_time()
        if self.keys != () or self.tags is not None or self.properties != {}:
            self._check_texts()

    def _check_time(self) -> None:
        """Check the time of delivery, which the protocol has in ms."""
        if bool(self.delay_level) + (self.deliver_at is not None) + (self.deliver_after is not None) > 1:
            raise IllegalMessageError("give one of delay_level, deliver_at and deliver_after")
        if self.deliver_after is not None:
            try:
                milliseconds("deliver_after", self.deliver_after, zero=True)
            except IllegalOptionError as error:
                raise IllegalMessageError(str(error)) from None
            return
        if not isinstance(self.deliver_at, datetime):
            raise IllegalMessageError(f"deliver_at={self.deliver_at!r}: accepted is a datetime")
        try:
            self.deliver_at.timestamp()
        except (ValueError, OverflowError, OSError) as error:
            raise IllegalMessageError(f"deliver_at={self.deliver_at!r}: it is not a time here: {error}") from None

    def _check_texts(self) -> None:
        """Check the parts of the property string."""
        if type(self.keys) is not list and (isinstance(self.keys, str) or not isinstance(self.keys, Collection)):
            raise IllegalMessageError(f"keys={self.keys!r}: keys are a sequence of texts, such as ['A17']")
        if type(self.properties) is not dict and not isinstance(self.properties, Mapping):
            raise IllegalMessageError(f"properties={self.properties!r}: they are a dict of texts")
        if self.tags is not None:
            _check_text("tag", self.tags)
        for key in self.keys:
            _check_text("key", key)
            if not key or KEY_SEPARATOR in key:
                raise IllegalMessageError(f"key {key!r}: a key is not empty and has no blank: blanks separate keys")
        for name, value in self.properties.items():
            _check_text("property", name)
            _check_text("property", value, name)
            if not name.strip(BLANKS) or not value.strip(BLANKS):
                raise IllegalMessageError(
                    f"property {name!r} is {value!r}: neither name nor value may be empty or blank"
                )
        if not props.RESERVED.isdisjoint(self.properties):
            reserved = props.RESERVED.intersection(self.properties)
            raise IllegalMessageError(f"properties that are reserved: {', '.join(sorted(reserved))}")

    def wire_properties(self, unique_key: str) -> dict[str, str]:
        """Return all properties to send."""
        keys = KEY_SEPARATOR.join(self.keys) if self.keys else None
        table = property_table(self.properties, self.tags, keys, self.delay_level)
        if self.deliver_at is not None:
            table[props.TIMER_DELIVER_MS] = str(int(self.deliver_at.timestamp() * 1000))
        if self.deliver_after is not None:
            table[props.TIMER_DELAY_MS] = str(int(milliseconds("deliver_after", self.deliver_after, zero=True)))
        table[props.UNIQ_KEY] = unique_key
        table[props.WAIT] = "true" if self.wait_stored else "false"
        return table


def _check_number(field: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_INT:
        raise IllegalMessageError(f"{field}={value!r}: accepted is a whole number from {least} to {MAX_INT}")


def _check_text(what: str, text: object, of: str | None = None) -> None:
    """Check a part of the property string. ``of`` is the property's name if the part is its value."""
    if isinstance(text, str) and text.isascii() and text.isprintable():
        return  # the usual case
    if of is not None:
        what = f"{what} {of!r}"
    if not isinstance(text, str):
        raise IllegalMessageError(f"{what} is {text!r}: it has to be text")
    if props.NAME_VALUE_SEPARATOR in text or props.PROPERTY_SEPARATOR in text:
        raise IllegalMessageError(f"{what} {text!r}: \\x01 and \\x02 separate properties")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise IllegalMessageError(f"{what} {text!r}: it is not a text that UTF-8 can encode") from None


def check_is_message(message: object) -> None:
    """Raise IllegalMessageError unless it is a Message."""
    if not isinstance(message, Message):
        raise IllegalMessageError(f"{type(message).__name__} cannot be sent: make a Message(topic, body) of it")


class ReceivedMessage(msgspec.Struct, Generic[T], dict=True):
    """A pulled message. ``topic`` is the original one, even for a retry. Times are in Unix ms."""

    topic: str
    body: T
    properties: dict[str, str]
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    physical_offset: int
    flag: int
    sys_flag: int
    born_timestamp: int
    store_timestamp: int
    born_host: str
    store_host: str
    store_size: int
    reconsume_times: int

    def extend(self, duration: Duration) -> bool:
        """Leave the message with its handler for this time from now on, even if that is longer than ``consume_timeout``.

        Return False if the consumer has given it back already, so that it comes again. Any thread may call it. Raises
        UsageError if it is not a message of a Consumer.
        """
        duration_ms = milliseconds("duration", duration)
        lease = self.__dict__.get(LEASE)
        if not isinstance(lease, Lease):
            raise UsageError("extend is for the messages of a Consumer: this one has no consume_timeout")
        return lease.extend(duration_ms)

    @property
    def tags(self) -> str | None:
        """The tag."""
        return self.properties.get(props.TAGS)

    @property
    def keys(self) -> list[str]:
        """The words to find it by."""
        return [key for key in self.properties.get(props.KEYS, "").split(KEY_SEPARATOR) if key]

    @property
    def born_at(self) -> datetime:
        """The time of the send, by the producer's clock."""
        return datetime.fromtimestamp(self.born_timestamp / 1000, UTC)

    @property
    def stored_at(self) -> datetime:
        """The time of storing, by the broker's clock."""
        return datetime.fromtimestamp(self.store_timestamp / 1000, UTC)

    @property
    def transaction_id(self) -> str | None:
        """Unique key of the half message, if it was sent in a transaction."""
        return self.properties.get(props.UNIQ_KEY) if props.TRAN_MSG in self.properties else None
