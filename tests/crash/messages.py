"""The messages of the crash test: each is wholly determined by its producer's name and its number.

So whatever is served can be told from what was sent, byte for byte, without keeping it.
"""

from hashlib import sha256
from typing import NamedTuple
from zlib import crc32

from rocketd.remoting.codes import RequestCode
from rocketd.remoting.command import RemotingCommand

PLAIN_TOPIC = "CrashPlain"
DELAYED_TOPIC = "CrashDelayed"
QUEUES = 4
LEVELS = 2
DELAY_LEVELS = "1s 2s"
TAGS = ("TagA", "TagB", "TagC")

MessageId = tuple[str, int]
"""Producer and number."""


class Place(NamedTuple):
    """Where a message is: topic and queue as they are in the log, queue offset, offset in the log in bytes."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int


def body_of(message: MessageId) -> bytes:
    """Body: who it is, then 0 to 1.5 KiB, of some 12 KiB."""
    producer, number = message
    name = f"{producer} {number} ".encode()
    mark = crc32(name)
    size = mark % 12_000 if mark % 61 == 0 else mark % 1_500
    filler = sha256(name).hexdigest().encode()
    return name + (filler * (size // len(filler) + 1))[:size]


def id_of(body: bytes) -> MessageId:
    """Whose body this is; ValueError when it is nobody's."""
    producer, number, _ = body.split(b" ", 2)
    return producer.decode(), int(number)


def tag_of(message: MessageId) -> str:
    """Tag of a message."""
    return TAGS[message[1] % len(TAGS)]


def keys_of(message: MessageId) -> tuple[str, str]:
    """Keys: one of its own, one that it shares with a neighbour."""
    producer, number = message
    return f"{producer}.{number}", f"{producer}.half.{number // 2}"


def properties_of(message: MessageId) -> dict[str, str]:
    """Properties that it is sent with."""
    producer, number = message
    return {"UNIQ_KEY": f"{producer}-{number}", "KEYS": " ".join(keys_of(message)), "TAGS": tag_of(message)}


def _encoded(properties: dict[str, str]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def _fields(topic: str, queue_id: int, properties: dict[str, str], batch: bool) -> dict[str, str]:
    return {
        "a": "CrashProducers", "b": topic, "c": "TBW102", "d": str(QUEUES), "e": str(queue_id), "f": "0",
        "g": "1700000000000", "h": "0", "i": _encoded(properties), "j": "0", "k": "false",
        "m": "true" if batch else "false",
    }  # fmt: skip


def single(message: MessageId, queue_id: int, level: int = 0) -> RemotingCommand:
    """One send; with a level, delayed."""
    properties = properties_of(message)
    if level:
        properties["DELAY"] = str(level)
    topic = DELAYED_TOPIC if level else PLAIN_TOPIC
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, _fields(topic, queue_id, properties, False), body_of(message))


def batch(messages: list[MessageId], queue_id: int) -> RemotingCommand:
    """One batch."""
    parts = []
    for message in messages:
        body, properties = body_of(message), _encoded(properties_of(message)).encode()
        numbers = (22 + len(body) + len(properties), 0, 0, 0, len(body))
        parts += [*(number.to_bytes(4, "big") for number in numbers), body]
        parts += [len(properties).to_bytes(2, "big"), properties]
    return RemotingCommand(RequestCode.SEND_BATCH_MESSAGE, _fields(PLAIN_TOPIC, queue_id, {}, True), b"".join(parts))
