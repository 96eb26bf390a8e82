"""The messages of the crash test: each is wholly determined by its producer's name and its number.

So every served message can be compared with the sent one, byte for byte, without keeping it.
"""

from hashlib import sha256
from typing import NamedTuple
from zlib import crc32

from rocketd.common.names import TRANS_HALF_TOPIC
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand

PLAIN_TOPIC = "CrashPlain"
DELAYED_TOPIC = "CrashDelayed"
TRANSACTION_TOPIC = "CrashTransactions"
QUEUES = 4
LEVELS = 2
DELAY_LEVELS = "1s 2s"
TAGS = ("TagA", "TagB", "TagC")

_GROUP = "CrashProducers"
_HALF_MESSAGE = 4
_COMMIT, _ROLLBACK = "8", "12"

MessageId = tuple[str, int]
"""Producer and number."""


class Place(NamedTuple):
    """Place of a message: topic and queue as they are in the log, queue offset, offset in the log in bytes."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int


def body_of(message: MessageId) -> bytes:
    """Return a body: the id, then 0 to 1.5 KiB, of some 12 KiB."""
    producer, number = message
    name = f"{producer} {number} ".encode()
    mark = crc32(name)
    size = mark % 12_000 if mark % 61 == 0 else mark % 1_500
    filler = sha256(name).hexdigest().encode()
    return name + (filler * (size // len(filler) + 1))[:size]


def id_of(body: bytes) -> MessageId:
    """Return the message id of a body; ValueError if no message has this body."""
    producer, number, _ = body.split(b" ", 2)
    return producer.decode(), int(number)


def tag_of(message: MessageId) -> str:
    """Tag of a message."""
    return TAGS[message[1] % len(TAGS)]


def keys_of(message: MessageId) -> tuple[str, str]:
    """Return the keys: a unique one, and one shared with a neighbour."""
    producer, number = message
    return f"{producer}.{number}", f"{producer}.half.{number // 2}"


def properties_of(message: MessageId) -> dict[str, str]:
    """Return the properties of the sent message."""
    producer, number = message
    return {"UNIQ_KEY": f"{producer}-{number}", "KEYS": " ".join(keys_of(message)), "TAGS": tag_of(message)}


def is_committed(message: MessageId) -> bool:
    """Return whether the transaction of a half message is committed; the same for every caller and every call."""
    return message[1] % 3 != 0


def _encoded(properties: dict[str, str]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def _fields(
    topic: str, queue_id: int, properties: dict[str, str], batch: bool = False, flags: int = 0
) -> dict[str, str]:
    return {
        "a": _GROUP, "b": topic, "c": "TBW102", "d": str(QUEUES), "e": str(queue_id), "f": str(flags),
        "g": "1700000000000", "h": "0", "i": _encoded(properties), "j": "0", "k": "false",
        "m": "true" if batch else "false",
    }  # fmt: skip


def single(message: MessageId, queue_id: int, level: int = 0) -> RemotingCommand:
    """One send; with a level, delayed."""
    properties = properties_of(message)
    if level:
        properties["DELAY"] = str(level)
    topic = DELAYED_TOPIC if level else PLAIN_TOPIC
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, _fields(topic, queue_id, properties), body_of(message))


def half(message: MessageId, queue_id: int) -> RemotingCommand:
    """Return one half message; consumers do not get it before its transaction is committed."""
    properties = properties_of(message) | {"TRAN_MSG": "true", "PGROUP": _GROUP}
    fields = _fields(TRANSACTION_TOPIC, queue_id, properties, flags=_HALF_MESSAGE)
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, body_of(message))


def end(message: MessageId, place: Place) -> RemotingCommand:
    """The end of a transaction whose half message is there."""
    assert place.topic == TRANS_HALF_TOPIC
    fields = {
        "producerGroup": _GROUP, "tranStateTableOffset": str(place.queue_offset),
        "commitLogOffset": str(place.physical_offset), "msgId": properties_of(message)["UNIQ_KEY"],
        "commitOrRollback": _COMMIT if is_committed(message) else _ROLLBACK,
    }  # fmt: skip
    return RemotingCommand(RequestCode.END_TRANSACTION, fields)


def batch(messages: list[MessageId], queue_id: int) -> RemotingCommand:
    """One batch."""
    parts = []
    for message in messages:
        body, properties = body_of(message), _encoded(properties_of(message)).encode()
        numbers = (22 + len(body) + len(properties), 0, 0, 0, len(body))
        parts += [*(number.to_bytes(4, "big") for number in numbers), body]
        parts += [len(properties).to_bytes(2, "big"), properties]
    return RemotingCommand(
        RequestCode.SEND_BATCH_MESSAGE, _fields(PLAIN_TOPIC, queue_id, {}, batch=True), b"".join(parts)
    )
