"""Messages as an application sees them: what it sends, what it gets, what becomes of a send.

Answers to Message, MessageExt and SendResult of Apache's client. Plain values.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Generic

import msgspec
from typing_extensions import TypeVar

from rocketd.client.config import Duration, milliseconds
from rocketd.client.errors import IllegalMessageError, IllegalOptionError, IllegalTopicError, check_topic
from rocketd.common import properties as names
from rocketd.common.names import NOT_ALLOWED_SEND_TOPICS
from rocketd.remoting.bodies import MessageQueue

T = TypeVar("T", default=bytes)
"""Type of bodies; bytes where no codec says otherwise."""

SEND_OK = 0
"""Status of a message that is stored as its topic's broker is told to; others are 10, 11 and 12."""

DELAY_LEVELS = 18
"""Levels of a broker with the usual messageDelayLevel; brokers take a higher level for their highest."""

MAX_INT = 2**31 - 1
"""The greatest number of the protocol's 32 bits."""

KEY_SEPARATOR = " "

BLANKS = "".join(map(chr, range(33)))
"""What Java takes for blank where it trims a text."""


class Message(msgspec.Struct, Generic[T]):
    """A message to send. ``keys`` are words to find it by; ``properties`` are the application's own."""

    topic: str
    body: T
    tags: str | None = None
    keys: Sequence[str] = ()
    properties: dict[str, str] = {}
    flag: int = 0
    delay_level: int = 0
    """Level of delay, from 1 on; 0 delivers at once."""
    deliver_at: datetime | None = None
    """When to deliver it. Brokers of rocketd and of RocketMQ 5 can; Apache's 4.x delivers at once."""
    deliver_after: Duration | None = None
    """How long to wait before it is delivered; as ``deliver_at``."""
    wait_stored: bool = True
    """Whether a broker with synchronous flush or replication answers only when that is done."""

    def check(self) -> None:
        """Raise IllegalTopicError or IllegalMessageError when no broker would take it. The body is another's to check."""
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
        """Check when to deliver it, which the wire has in ms."""
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
            raise IllegalMessageError(f"deliver_at={self.deliver_at!r}: it is no moment here: {error}") from None

    def _check_texts(self) -> None:
        """Check what becomes part of the property string."""
        if type(self.keys) is not list and (isinstance(self.keys, str) or not isinstance(self.keys, Collection)):
            raise IllegalMessageError(f"keys={self.keys!r}: keys are a sequence of texts, such as ['A17']")
        if type(self.properties) is not dict and not isinstance(self.properties, Mapping):
            raise IllegalMessageError(f"properties={self.properties!r}: they are a dict of texts")
        if self.tags is not None:
            _check_text("tag", self.tags)
        for key in self.keys:
            _check_text("key", key)
            if not key or KEY_SEPARATOR in key:
                raise IllegalMessageError(
                    f"key {key!r}: a key is not empty and has no blank, which is what separates keys"
                )
        for name, value in self.properties.items():
            _check_text("property", name)
            _check_text("property", value, name)
            if not name.strip(BLANKS) or not value.strip(BLANKS):
                raise IllegalMessageError(
                    f"property {name!r} is {value!r}: neither name nor value may be empty or blank"
                )
        if not names.RESERVED.isdisjoint(self.properties):
            reserved = names.RESERVED.intersection(self.properties)
            raise IllegalMessageError(f"properties that are reserved: {', '.join(sorted(reserved))}")

    def wire_properties(self, unique_key: str) -> dict[str, str]:
        """Return all properties as they are sent."""
        table = dict(self.properties)
        if self.tags:
            table[names.TAGS] = self.tags
        if self.keys:
            table[names.KEYS] = KEY_SEPARATOR.join(self.keys)
        if self.delay_level:
            table[names.DELAY] = str(self.delay_level)
        if self.deliver_at is not None:
            table[names.TIMER_DELIVER_MS] = str(int(self.deliver_at.timestamp() * 1000))
        if self.deliver_after is not None:
            table[names.TIMER_DELAY_MS] = str(int(milliseconds("deliver_after", self.deliver_after, zero=True)))
        table[names.UNIQ_KEY] = unique_key
        table[names.WAIT] = "true" if self.wait_stored else "false"
        return table


def _check_number(field: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_INT:
        raise IllegalMessageError(f"{field}={value!r}: accepted is a whole number from {least} to {MAX_INT}")


def _check_text(what: str, text: object, of: str | None = None) -> None:
    """Check a part of the property string; ``of`` is the name where it is a property's value."""
    if isinstance(text, str) and text.isascii() and text.isprintable():
        return  # the usual one
    if of is not None:
        what = f"{what} {of!r}"
    if not isinstance(text, str):
        raise IllegalMessageError(f"{what} is {text!r}: it has to be text")
    if names.NAME_VALUE_SEPARATOR in text or names.PROPERTY_SEPARATOR in text:
        raise IllegalMessageError(f"{what} {text!r}: \\x01 and \\x02 are what separates properties")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise IllegalMessageError(f"{what} {text!r}: it is no text that UTF-8 can write") from None


def check_is_message(message: object) -> None:
    """Raise IllegalMessageError for what is no Message at all."""
    if not isinstance(message, Message):
        raise IllegalMessageError(f"{type(message).__name__} is not what is sent: make a Message(topic, body) of it")


class SendResult(msgspec.Struct, frozen=True):
    """Where a message is. ``status`` is 0, or what the broker warns of: 10, 11 or 12, stored but not flushed or copied."""

    status: int
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region_id: str = "DefaultRegion"
    trace_on: bool = True


class ReceivedMessage(msgspec.Struct, Generic[T]):
    """A message that was pulled. ``topic`` is the one it was sent to, also when it is a retry; times are in Unix ms."""

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

    @property
    def tags(self) -> str | None:
        """The tag."""
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> list[str]:
        """The words it can be found by."""
        return [key for key in self.properties.get(names.KEYS, "").split(KEY_SEPARATOR) if key]

    @property
    def born_at(self) -> datetime:
        """When it was sent, by the producer's clock."""
        return datetime.fromtimestamp(self.born_timestamp / 1000, UTC)

    @property
    def stored_at(self) -> datetime:
        """When it was stored, by the broker's clock."""
        return datetime.fromtimestamp(self.store_timestamp / 1000, UTC)

    @property
    def transaction_id(self) -> str | None:
        """Unique key of the half message, where it was sent in a transaction."""
        return self.properties.get(names.UNIQ_KEY) if names.TRAN_MSG in self.properties else None
