"""Messages that a store takes before it is killed, and the check of all messages that it serves afterwards.

Each message follows from its id, so that every served message can be compared with the put one, byte for byte.
"""

import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from rocketd.common.java_hash import java_string_hash
from rocketd.store.format.message import MessageInner
from rocketd.store.format.record import MessageExt, decode_messages
from rocketd.store.message_store import MessageStore
from rocketd.store.testing import make_message

TOPICS = ("KillA", "KillB")
QUEUES = 3
TAGS = ("TagA", "TagB")
_FOREVER = 1 << 60


MessageId = tuple[int, int]
"""Number of the load in the life of the store, and of the message in the load."""

Place = tuple[str, int, int, int]
"""Topic, queue id, queue offset, offset in the log."""


class FaultError(AssertionError):
    """The store misbehaved; the message says how, at which place and how to reproduce it."""


def body_of(message: MessageId) -> bytes:
    """Return a body: the id, and up to 900 bytes."""
    name = f"{message[0]} {message[1]} ".encode()
    return name + Random(f"body {message}").randbytes(Random(f"size {message}").choice((0, 10, 100, 900)))


def keys_of(message: MessageId) -> tuple[str, ...]:
    """Return UNIQ_KEY, then KEYS: a unique one and one shared with neighbours."""
    load, number = message
    return f"u{load}-{number}", f"k{load}-{number}", f"s{load}-{number // 3}"


def stored_form(message: MessageId) -> MessageInner:
    """The message as it is given to the store."""
    unique, *keys = keys_of(message)
    choice = Random(f"queue {message}")
    tag = choice.choice(TAGS)
    return make_message(
        body_of(message),
        choice.choice(TOPICS),
        choice.randrange(QUEUES),
        properties=f"UNIQ_KEY\x01{unique}\x02KEYS\x01{' '.join(keys)}\x02TAGS\x01{tag}".encode(),
        tags_code=java_string_hash(tag),
        index_keys=keys_of(message),
    )


def put(store: MessageStore, load: int, count: int, choice: Random, answer: Callable[[bytes], Any]) -> None:
    """Put so many messages in groups, some of them as one batch of a queue, and note each answer."""
    number = 0
    while number < count:
        ids = [(load, each) for each in range(number, min(count, number + choice.randint(1, 12)))]
        number += len(ids)
        results = store.put_messages([stored_form(message) for message in ids])
        for message, result in zip(ids, results, strict=True):
            if result.physical_offset < 0:
                raise FaultError(f"{message} was refused: {result}")
        if store.config.flush_disk_type == "SYNC_FLUSH" and choice.random() < 0.3:
            last = results[-1]
            store.wait_until_flushed(last.physical_offset + last.size)
        lines = [
            f"{message[1]} {form.topic} {form.queue_id} {result.queue_offset} {result.physical_offset}\n"
            for message, result in zip(ids, results, strict=True)
            for form in (stored_form(message),)
        ]
        answer("".join(lines).encode())
        if store.holds_dispatch:
            store.release_dispatch(choice.random() < 0.5)
        if choice.random() < 0.2:
            time.sleep(0.003)
    while store.dispatch_behind_bytes():
        time.sleep(0.001)


def check(store: MessageStore, places: dict[MessageId, Place], sent: dict[int, int]) -> dict[MessageId, Place]:
    """Read all messages of a store, compare them with the expected ones, and return their places."""
    served: dict[MessageId, Place] = {}
    messages: list[tuple[MessageId, MessageExt]] = []
    for topic in TOPICS:
        for queue_id in range(QUEUES):
            for message, stored in _read_queue(store, topic, queue_id, sent):
                if message in served:
                    raise FaultError(f"twice: {message}, at {served[message]} and {stored}")
                served[message] = (topic, queue_id, stored.queue_offset, stored.physical_offset)
                messages.append((message, stored))
    strangers = {key for key in store.queue_keys() if key not in {(t, q) for t in TOPICS for q in range(QUEUES)}}
    if strangers:
        raise FaultError(f"queues of nobody: {strangers}")
    for message, place in places.items():
        if served.get(message) != place:
            raise FaultError(f"lost: {message} should be at {place}, is at {served.get(message)}")
    for message, stored in messages:
        _check_queries(store, message, stored, served)
    return served


def _read_queue(
    store: MessageStore, topic: str, queue_id: int, sent: dict[int, int]
) -> Iterator[tuple[MessageId, MessageExt]]:
    """Yield the messages of a queue after checking place and content of each."""
    offset, physical, last = 0, -1, (-1, -1)
    while buffers := (found := store.get_messages(topic, queue_id, offset, 32, None)).buffers:
        for stored in decode_messages(b"".join(buffers)):
            where = f"{topic} {queue_id} at {offset}"
            load, number, _ = stored.body.split(b" ", 2)
            message = int(load), int(number)
            form = stored_form(message)
            if message[1] >= sent.get(message[0], 0):
                raise FaultError(f"{where} serves a message that was never sent: {message}")
            if (stored.topic, stored.queue_id, stored.queue_offset) != (topic, queue_id, offset):
                raise FaultError(f"{where} serves {stored}")
            if (form.topic, form.queue_id, form.body, form.properties) != (
                topic, queue_id, stored.body, stored.properties
            ):  # fmt: skip
                raise FaultError(f"{where}: {message} is not as it was sent: {stored}")
            if message <= last or stored.physical_offset <= physical:
                raise FaultError(f"{where}: {message} comes after {last}")
            entry = store.queue_entries(topic, queue_id, offset, 1)[0]
            if entry != (stored.physical_offset, stored.store_size, form.tags_code):
                raise FaultError(f"{where}: entry {entry} of {stored}")
            yield message, stored
            last, physical = message, stored.physical_offset
            offset += 1
        if found.next_begin_offset != offset:
            raise FaultError(f"{topic} {queue_id} goes on at {found.next_begin_offset}, not {offset}")
    ends = store.get_min_offset(topic, queue_id), store.get_max_offset(topic, queue_id)
    if ends not in ((0, offset), (-1, -1), (-1, 0)) or (offset and ends[1] != offset):
        raise FaultError(f"{topic} {queue_id} has {offset} messages, its ends are {ends}")


def _check_queries(store: MessageStore, message: MessageId, stored: MessageExt, served: dict[MessageId, Place]) -> None:
    """Each key finds exactly the messages with it, at any time and in the second of their storing."""
    times = (0, _FOREVER), (stored.store_timestamp - 1000, stored.store_timestamp + 1000)
    neighbours = [(message[0], number) for number in range(message[1] // 3 * 3, message[1] // 3 * 3 + 3)]
    for key in keys_of(message):
        sharers = neighbours if key.startswith("s") else [message]
        wanted = {place[3] for each in sharers if (place := served.get(each)) is not None and place[0] == stored.topic}
        for begin, end in times:
            result = store.query_messages(stored.topic, key, 64, begin, end)
            found = [one.physical_offset for buffer in result.buffers for one in decode_messages(bytes(buffer))]
            # Two neighbours may have been stored in different seconds.
            missing = wanted - set(found) if (begin, end) == times[0] else {stored.physical_offset} - set(found)
            if missing or len(set(found)) != len(found):
                raise FaultError(f"{key} of {message}, {begin} to {end}: found {found}, not {sorted(missing)}")
