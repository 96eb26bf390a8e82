"""Which messages of one queue may be handled at once when those of one key must follow each other, sans-io.

No counterpart in Apache, whose consumers handle a queue either in order or in none. Here messages with the same key are
handled one after the other by queue offset, and those with different keys at once, up to a number.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from heapq import heappop, heappush
from typing import Generic

from rocketd.client.consumer.process_queue import M


class KeyedOrder(Generic[M]):
    """Hands out the messages of one queue. All methods belong to one thread.

    ``key_of`` gives a message's key; messages whose key is None wait for nobody. At most ``concurrency`` messages are out
    at once; it may be changed at any time, and what is out then stays so. Of those that may go out, the one with the
    lowest offset does: that lets the group's offset move on soonest. No operation costs more than O(log n).
    """

    def __init__(self, key_of: Callable[[M], Hashable | None], concurrency: int) -> None:
        self.concurrency = concurrency
        self._key_of = key_of
        self._waiting: dict[int, tuple[Hashable | None, M]] = {}
        self._out: dict[int, tuple[Hashable | None, M]] = {}
        self._ready: list[int] = []
        # Offsets that wait for another of their key; a key is here as long as it has one that is ready or out.
        self._behind: dict[Hashable, deque[int]] = {}

    @property
    def waiting(self) -> int:
        """Messages that are not handed out yet."""
        return len(self._waiting)

    @property
    def in_flight(self) -> int:
        """Messages that are handed out and not done."""
        return len(self._out)

    def put(self, messages: Iterable[M]) -> None:
        """Add messages, by rising offset among those of a key. Offsets that are here already are ignored.

        Raises what ``key_of`` raises, and TypeError for a key that has no hash; then none of the messages was added.
        """
        keyed: list[tuple[Hashable | None, M]] = []
        for message in messages:
            key = self._key_of(message)
            hash(key)
            keyed.append((key, message))
        for key, message in keyed:
            offset = message.queue_offset
            if offset in self._waiting or offset in self._out:
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
        """Hand out what may be handled now, by offset; at most ``count``. Each is to be told ``done`` or ``again``."""
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
        """Note that a message needs nothing more, so that the next one of its key may go out.

        Returns whether it was out: one that was given up already, because it took too long, is ignored when it ends.
        """
        entry = self._out.pop(message.queue_offset, None)
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

    def again(self, message: M) -> bool:
        """Take back a message that is to be handled once more, still before the others of its key.

        Returns whether it was out.
        """
        offset = message.queue_offset
        entry = self._out.pop(offset, None)
        if entry is None:
            return False
        self._waiting[offset] = entry
        heappush(self._ready, offset)
        return True

    def clear(self) -> list[M]:
        """Forget what waits and return it, by offset. What is out stays so, and is still to be told done."""
        messages = [self._waiting[offset][1] for offset in sorted(self._waiting)]
        self._waiting.clear()
        self._ready.clear()
        self._behind = {key: deque() for key, _ in self._out.values() if key is not None}
        return messages
