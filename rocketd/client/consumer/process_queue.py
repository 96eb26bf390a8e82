"""What a consumer has pulled of one queue and not finished yet, sans-io.

Answers to ProcessQueue. Nothing costs time that grows
with the number of messages held, as long as they come in order. Times are in ms; offsets are the queue's.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from rocketd.client.consumer.flow_control import MIB, FlowControl, FlowLimit, QueueLimits
from rocketd.remoting.admin_bodies import ProcessQueueInfo

LOCK_MAX_LIVE_MS: Final = 30_000
"""How long a queue that the broker locked for this client counts as locked, from the broker's last word on it."""

PULL_MAX_IDLE_MS: Final = 120_000
"""How long a queue may go without a pull before its pulling counts as broken off."""

MAX_EXPIRED: Final = 16
"""Messages at most that one clean-up gives back."""

_COMPACT_FROM: Final = 1024


class HasQueueOffset(Protocol):
    """What is asked of a message: its place in the queue."""

    @property
    def queue_offset(self) -> int:
        """The offset."""
        ...


M = TypeVar("M", bound=HasQueueOffset)


@dataclass(frozen=True, slots=True)
class Blocking:
    """The message that keeps a queue's offset where it is.

    It was first tried at ``since_ms`` of the queue's clock, ``waited_ms`` ago.
    """

    queue_offset: int
    since_ms: int
    waited_ms: int
    count: int
    """Messages of the queue that are held, this one included."""


class _Entry(Generic[M]):
    __slots__ = ("message", "size", "started_ms", "tried_ms")

    def __init__(self, message: M, size: int) -> None:
        self.message = message
        self.size = size
        # When a handler got it that runs at once with others; when any handler got it for the first time.
        self.started_ms: int | None = None
        self.tried_ms: int | None = None


class ProcessQueue(Generic[M]):
    """The messages of one queue. All methods belong to the reactor thread.

    ``size_of`` gives the bytes a message counts with. Consumers that run messages at once use ``put``, ``begin`` and
    ``remove``; those that consume in order use ``put``, ``take_turn``, ``take_messages`` and then ``commit``,
    ``rollback`` or ``make_to_consume_again``.
    """

    def __init__(self, now_ms: int, size_of: Callable[[M], int]) -> None:
        self.dropped = False
        """The queue is no longer this consumer's: results that still come do not count."""
        self.locked = False
        """The broker has the queue locked for this client; see also ``is_lock_expired``."""
        self.try_unlock_times = 0
        """How often the queue could not be unlocked since it was being consumed."""
        self.last_lock_ms = now_ms
        self.last_pull_ms = now_ms
        self.last_consume_ms = now_ms
        self.behind = 0
        """Messages that lay in the broker behind the last one pulled, where the broker told."""
        self._size_of = size_of
        self._entries: dict[int, _Entry[M]] = {}
        # Offsets in order from _head on; those no longer in _entries are skipped when they come first or last.
        self._order: list[int] = []
        self._head = 0
        self._taken: dict[int, _Entry[M]] = {}
        self._size = 0
        self._max_offset = -1
        self._consuming = False

    # ------------------------------------------------------------ figures

    @property
    def count(self) -> int:
        """Messages held, those taken out to be consumed in order included."""
        return len(self._entries) + len(self._taken)

    @property
    def size(self) -> int:
        """Bytes of the messages held."""
        return self._size

    @property
    def has_waiting(self) -> bool:
        """Whether there are messages that are not taken out."""
        return bool(self._entries)

    @property
    def first_offset(self) -> int | None:
        """The lowest offset that is not taken out; None when there is none."""
        order, entries = self._order, self._entries
        if not entries:
            order.clear()
            self._head = 0
            return None
        while order[self._head] not in entries:
            self._head += 1
        if self._head > _COMPACT_FROM and self._head * 2 > len(order):
            del order[: self._head]
            self._head = 0
        return order[self._head]

    @property
    def last_offset(self) -> int | None:
        """The highest offset that is not taken out; None when there is none."""
        order, entries = self._order, self._entries
        if not entries:
            return None
        while order[-1] not in entries:
            order.pop()
        return order[-1]

    @property
    def span(self) -> int:
        """How far the highest offset lies above the lowest; 0 when there is none."""
        first, last = self.first_offset, self.last_offset
        return 0 if first is None or last is None else last - first

    def waiting(self) -> Iterator[M]:
        """Yield what is not taken out, by offset; the queue must not change meanwhile."""
        for index in range(self._head, len(self._order)):
            entry = self._entries.get(self._order[index])
            if entry is not None:
                yield entry.message

    # ------------------------------------------------------------ pulling

    def put(self, messages: Iterable[M], max_offset: int | None = None) -> list[M]:
        """Add what was pulled; return what is new: an offset that is held already is ignored.

        ``max_offset`` is the queue's end as the broker told it with these messages.
        """
        new = []
        last = None
        for message in messages:
            last = message.queue_offset
            if last in self._entries or last in self._taken:
                continue
            entry = _Entry(message, self._size_of(message))
            self._insert(last, entry)
            self._size += entry.size
            self._max_offset = max(self._max_offset, last)
            new.append(message)
        if last is not None and max_offset is not None and max_offset > last:
            self.behind = max_offset - last
        return new

    def pulled(self, now_ms: int) -> None:
        """Note that a pull begins, or that it is known why it waits."""
        self.last_pull_ms = now_ms

    def is_pull_expired(self, now_ms: int) -> bool:
        """Whether nobody pulled for two minutes."""
        return now_ms - self.last_pull_ms > PULL_MAX_IDLE_MS

    def flow_control(self, limits: QueueLimits) -> FlowControl | None:
        """Tell which limit holds the next pull back; None when it may go out."""
        size_mib = self._size // MIB
        if self.count > limits.messages:
            limit, threshold = FlowLimit.COUNT, limits.messages
        elif size_mib > limits.size_mib:
            limit, threshold = FlowLimit.SIZE, limits.size_mib
        elif limits.max_span is not None and self.span > limits.max_span:
            limit, threshold = FlowLimit.SPAN, limits.max_span
        else:
            return None
        return FlowControl(limit, threshold, self.first_offset, self.last_offset, self.count, size_mib, self.span)

    # ------------------------------------------------------------ consuming at once

    def begin(self, messages: Iterable[M], now_ms: int) -> None:
        """Note that messages are given to a handler now."""
        for message in messages:
            entry = self._entries.get(message.queue_offset)
            if entry is not None:
                entry.started_ms = now_ms
                if entry.tried_ms is None:
                    entry.tried_ms = now_ms

    def remove(self, messages: Iterable[M], now_ms: int) -> int | None:
        """Forget messages that are done with; return the offset that may be committed now.

        That is the lowest one still held or, when nothing is, the one behind the highest that ever was. None when
        nothing was held before, so that nothing is known. Messages that are not held are ignored.
        """
        self.last_consume_ms = now_ms
        if not self._entries:
            return None
        for message in messages:
            entry = self._entries.pop(message.queue_offset, None)
            if entry is not None:
                self._size -= entry.size
        first = self.first_offset
        return self._max_offset + 1 if first is None else first

    def expired(self, consume_timeout_ms: float, now_ms: int) -> list[M]:
        """Return the messages at the queue's head that have been consumed for longer than the timeout.

        At most 16, up to the first one that has not. They stay until they are removed: give them back to the broker
        first. What is consumed in order never expires.
        """
        found: list[M] = []
        for message in self.waiting():
            started_ms = self._entries[message.queue_offset].started_ms
            if started_ms is None or now_ms - started_ms <= consume_timeout_ms or len(found) == MAX_EXPIRED:
                break
            found.append(message)
        return found

    def blocking(self, now_ms: int) -> Blocking | None:
        """Tell of the first message held, on which the offset waits; None when no handler has had it yet.

        It counts from the first try on, also when it fails time and again.
        """
        offsets = list(self._taken)
        first = self.first_offset
        if first is not None:
            offsets.append(first)
        if not offsets:
            return None
        offset = min(offsets)
        tried_ms = (self._taken.get(offset) or self._entries[offset]).tried_ms
        return None if tried_ms is None else Blocking(offset, tried_ms, now_ms - tried_ms, self.count)

    # ------------------------------------------------------------ consuming in order

    def take_turn(self) -> bool:
        """Whether consuming in order must be started: there are messages, and it is not under way.

        It then counts as under way until ``take_messages`` finds nothing.
        """
        if self._consuming or not self._entries:
            return False
        self._consuming = True
        return True

    def take_messages(self, count: int, now_ms: int) -> list[M]:
        """Take the first messages out, at most ``count``; they are being consumed from now on."""
        self.last_consume_ms = now_ms
        messages: list[M] = []
        while len(messages) < count and (first := self.first_offset) is not None:
            entry = self._entries.pop(first)
            self._head += 1
            if entry.tried_ms is None:
                entry.tried_ms = now_ms
            self._taken[first] = entry
            messages.append(entry.message)
        if not messages:
            self._consuming = False
        return messages

    def commit(self) -> int | None:
        """Forget what was taken out; return the offset that may be committed, None when nothing was out.

        That is the one behind the highest taken, but never one behind a message that was put back.
        """
        if not self._taken:
            return None
        behind = max(self._taken) + 1
        self._size -= sum(entry.size for entry in self._taken.values())
        self._taken.clear()
        first = self.first_offset
        return behind if first is None else min(behind, first)

    def rollback(self) -> None:
        """Put everything back that was taken out."""
        self._put_back(self._taken.keys())

    def make_to_consume_again(self, messages: Iterable[M]) -> None:
        """Put messages back that were taken out."""
        self._put_back({message.queue_offset for message in messages} & self._taken.keys())

    # ------------------------------------------------------------ the broker's lock

    def lock(self, now_ms: int) -> None:
        """Note that the broker has the queue locked for this client."""
        self.locked = True
        self.last_lock_ms = now_ms

    def is_lock_expired(self, now_ms: int) -> bool:
        """Whether the broker's last word is so old that another client may have the queue."""
        return now_ms - self.last_lock_ms > LOCK_MAX_LIVE_MS

    # ------------------------------------------------------------ all of it

    def clear(self) -> None:
        """Forget all messages, as when the offset is set anew. What is under way ends without effect."""
        self._entries.clear()
        self._order.clear()
        self._head = 0
        self._taken.clear()
        self._size = 0
        self._max_offset = -1

    def info(self, commit_offset: int = 0, wall_ms: int = 0) -> ProcessQueueInfo:
        """Return the figures that a consumer tells of the queue when it is asked (307).

        ``wall_ms`` is by how much Unix milliseconds are more than those of the queue's clock.
        """
        info = ProcessQueueInfo(
            commit_offset=commit_offset,
            locked=self.locked,
            try_unlock_times=self.try_unlock_times,
            last_lock_timestamp=self.last_lock_ms + wall_ms,
            droped=self.dropped,
            last_pull_timestamp=self.last_pull_ms + wall_ms,
            last_consume_timestamp=self.last_consume_ms + wall_ms,
        )
        first, last = self.first_offset, self.last_offset
        if first is not None and last is not None:
            info.cached_msg_min_offset = first
            info.cached_msg_max_offset = last
            info.cached_msg_count = len(self._entries)
            info.cached_msg_size_in_mib = self._size // MIB
        if self._taken:
            info.transaction_msg_min_offset = min(self._taken)
            info.transaction_msg_max_offset = max(self._taken)
            info.transaction_msg_count = len(self._taken)
        return info

    def _put_back(self, offsets: Iterable[int]) -> None:
        # From the highest down: each then goes into the place before the first one, which is free.
        for offset in sorted(offsets, reverse=True):
            self._insert(offset, self._taken.pop(offset))

    def _insert(self, offset: int, entry: _Entry[M]) -> None:
        order = self._order
        if self.first_offset is None or offset > order[-1]:
            order.append(offset)
        elif self._head and offset < order[self._head]:
            self._head -= 1
            order[self._head] = offset
        else:
            # An offset that was removed may still stand in its place.
            place = bisect_left(order, offset, self._head)
            if place == len(order) or order[place] != offset:
                order.insert(place, offset)
        self._entries[offset] = entry
