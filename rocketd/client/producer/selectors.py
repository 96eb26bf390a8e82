"""Selectors for an application to choose the queue of a message: by key, at random or by machine room, sans-io.

Counterpart: `MessageQueueSelector` and its three implementations (Apache). A key possible in Java's client goes to the same
queue as there. The choice by machine room, which Apache's client leaves empty, is specific to rocketd.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

from rocketd.client.errors import IllegalOptionError, UsageError
from rocketd.client.messages.message import Message
from rocketd.common.java_hash import java_string_hash
from rocketd.common.names import room_of_broker
from rocketd.remoting.bodies.tables import MessageQueue

MessageQueueSelector: TypeAlias = Callable[[Sequence[MessageQueue], Message[Any], object], MessageQueue]
"""Called with the writable queues of the topic (at least one), the message and the key given to ``send``."""


def java_hash_of_key(key: object) -> int:
    """Return Java's hashCode of a key, a signed 32-bit number: of String, Integer, Long (beyond 32 bits) and Boolean.

    Other keys count as their text, str(key). Raises ValueError for None, and for an object whose text is only its address.
    """
    if isinstance(key, str):
        return java_string_hash(key)
    if isinstance(key, bool):
        return 1231 if key else 1237
    if isinstance(key, int) and -(1 << 63) <= key < 1 << 63:
        if -(1 << 31) <= key < 1 << 31:
            return key
        folded = (key ^ (key >> 32)) & 0xFFFFFFFF
        return folded - (1 << 32) if folded >> 31 else folded
    kind = type(key)
    if key is None or (kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__):
        raise ValueError(f"{key!r} is not a key: its text is not the same in each run")
    return java_string_hash(str(key))


@dataclass(frozen=True)
class SelectMessageQueueByHash:
    """Sends the same key to the same queue, as long as the number of queues is unchanged.

    For keys see ``java_hash_of_key``.
    """

    def __call__(self, queues: Sequence[MessageQueue], message: Message[Any], key: object) -> MessageQueue:
        """Return the queue of a key. Raises UsageError for an invalid key."""
        try:
            place = abs(java_hash_of_key(key)) % len(queues)
        except ValueError as error:
            if key is None:
                raise UsageError(
                    "SelectMessageQueueByHash chooses by a key, and there is none: give key=... as well"
                ) from None
            raise UsageError(f"key={key!r}: {error}; give a text or a number") from None
        return queues[place]


@dataclass(frozen=True)
class SelectMessageQueueByRandom:
    """Chooses any queue; the key is ignored."""

    random: Random

    def __call__(self, queues: Sequence[MessageQueue], message: Message[Any], key: object) -> MessageQueue:
        """Return a random queue."""
        return self.random.choice(queues)


@dataclass(frozen=True)
class SelectMessageQueueByMachineRoom:
    """Chooses by key among the queues of brokers ``room@broker`` in one of these rooms."""

    rooms: Collection[str]

    def __call__(self, queues: Sequence[MessageQueue], message: Message[Any], key: object) -> MessageQueue:
        """Return the queue of a key. Raises IllegalOptionError if no queue is in these rooms."""
        near = [queue for queue in queues if room_of_broker(queue.broker_name) in self.rooms]
        if not near:
            rooms = ", ".join(sorted(self.rooms))
            raise IllegalOptionError(f"topic {message.topic} has no queue at a broker named room@broker in: {rooms}")
        return SelectMessageQueueByHash()(near, message, key)
