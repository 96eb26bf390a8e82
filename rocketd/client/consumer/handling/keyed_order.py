"""Order by key: which messages of one queue may be handled at once, sans-io.

Messages with the same key are handled one after the other, by queue offset. Messages with different keys are handled at
once, up to a limit. Apache's consumers handle a queue either in order or without any order.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from heapq import heappop, heappush
from typing import Generic

from rocketd.client.consumer.pulling.process_queue import M


class KeyedOrder(Generic[M]):
    """The messages of one queue, in order by key. All methods belong to one thread.

    ``key_of`` returns a message's key; messages with key None are independent. At most ``concurrency`` messages are out
    at once. It may be changed at any time, without effect on messages already out. Among the messages ready to go out,
    the lowest offset is first, so that the group's offset moves on early. A failed message may rest: it then blocks its
    key, but is not out. Each operation costs O(log n) at most.
    """

    def __init__(self, key_of: Callable[[M], Hashable | None], concurrency: int) -> None:
        self.concurrency = concurrency
        self._key_of = key_of
        self._waiting: dict[int, tuple[Hashable | None, M]] = {}
        self._out: dict[int, tuple[Hashable | None, M]] = {}
        self._resting: dict[int, tuple[Hashable | None, M]] = {}
        self._ready: list[int] = []
        # Offsets waiting for another of their key. A key is in the table while one of its messages is ready, out or resting.
        self._behind: dict[Hashable, deque[int]] = {}

    @property
    def waiting(self) -> int:
        """Messages not handed out yet."""
        return len(self._waiting)

    @property
    def in_flight(self) -> int:
        """Messages handed out and not done."""
        return len(self._out)

    def put(self, messages: Iterable[M]) -> None:
        """Add messages, with rising offsets within each key. Offsets already present are ignored.

        Raises the errors of ``key_of``, and TypeError for an unhashable key. No message is added then.
        """
        keyed: list[tuple[Hashable | None, M]] = []
        for message in messages:
            key = self._key_of(message)
            hash(key)
            keyed.append((key, message))
        for key, message in keyed:
            offset = message.queue_offset
            if offset in self._waiting or offset in self._out or offset in self._resting:
                continue
            self._waiting[offset] = (key, message)
            if key is None:
                heappush(self._ready, offset)
            elif key in self._behind:
                self._behind[key].append(offset)
            else:
                self._behind[key] = deque()
                heappush(self._ready, offset)

    def take(self, count: int | None = None) -> list[M]:
        """Hand out the messages ready now, by offset, ``count`` at most. Each needs a ``done`` or ``again`` later."""
        room = self.concurrency - len(self._out)
        if count is not None:
            room = min(room, count)
        messages: list[M] = []
        while len(messages) < room and self._ready:
            offset = heappop(self._ready)
            self._out[offset] = self._waiting.pop(offset)
            messages.append(self._out[offset][1])
        return messages

    def done(self, message: M) -> bool:
        """Mark a message as finished, so that the next one of its key may go out.

        Return whether it was out, or resting. A late result is ignored if the message was given up already after a
        timeout.
        """
        entry = self._out.pop(message.queue_offset, None) or self._resting.pop(message.queue_offset, None)
        if entry is None:
            return False
        key = entry[0]
        if key is not None:
            behind = self._behind[key]
            if behind:
                heappush(self._ready, behind.popleft())
            else:
                del self._behind[key]
        return True

    def rest(self, message: M) -> bool:
        """Keep a message in front of the others of its key until ``again``. Messages with other keys may go out.

        Return False if it has no key, or was not out.
        """
        entry = self._out.get(message.queue_offset)
        if entry is None or entry[0] is None:
            return False
        self._resting[message.queue_offset] = self._out.pop(message.queue_offset)
        return True

    def again(self, message: M) -> bool:
        """Take back a message, to be handled again before the others of its key.

        Return whether it was out, or resting.
        """
        offset = message.queue_offset
        entry = self._out.pop(offset, None) or self._resting.pop(offset, None)
        if entry is None:
            return False
        self._waiting[offset] = entry
        heappush(self._ready, offset)
        return True

    def clear(self) -> list[M]:
        """Remove the waiting messages and return them, by offset. Messages out or resting stay."""
        messages = [self._waiting[offset][1] for offset in sorted(self._waiting)]
        self._waiting.clear()
        self._ready.clear()
        kept = (*self._out.values(), *self._resting.values())
        self._behind = {key: deque() for key, _ in kept if key is not None}
        return messages
