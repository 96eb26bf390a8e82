"""The messages of one queue pulled by a consumer and not finished yet, sans-io.

Counterpart: `ProcessQueue` (Apache). As long as messages come in order, no operation gets slower with their number. Times
are in ms; offsets are those of the queue.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from rocketd.client.consumer.options.flow_limits import MIB, FlowControl, FlowLimit, QueueLimits
from rocketd.remoting.bodies.admin import ProcessQueueInfo

LOCK_MAX_LIVE_MS: Final = 30_000
"""Time for which a queue counts as locked after the broker's last confirmation."""

PULL_MAX_IDLE_MS: Final = 120_000
"""Time without a pull after which the pulling of a queue counts as interrupted."""

MAX_EXPIRED: Final = 16
"""Messages given back by one clean-up, at most."""

_COMPACT_FROM: Final = 1024


class HasQueueOffset(Protocol):
    """The required attribute of a message: its place in the queue."""

    @property
    def queue_offset(self) -> int:
        """The offset."""
        ...


M = TypeVar("M", bound=HasQueueOffset)


class Blocking(msgspec.Struct, frozen=True):
    """The message holding a queue's offset in place.

    ``since_ms`` is the time of its first try by the queue's clock, ``waited_ms`` the time since.
    """

    queue_offset: int
    since_ms: int
    waited_ms: int
    count: int
    """Messages of the queue held, including this one."""


class _Entry(Generic[M]):
    __slots__ = ("message", "size", "started_ms", "tried_ms")

    def __init__(self, message: M, size: int) -> None:
        self.message = message
        self.size = size
        # Start of the current handler (concurrent consumption), and of the first handler.
        self.started_ms: int | None = None
        self.tried_ms: int | None = None


class ProcessQueue(Generic[M]):
    """The messages of one queue. All methods belong to the reactor thread.

    ``size_of`` returns the size of a message in bytes. Concurrent consumers use ``put``, ``begin`` and ``remove``.
    Consumers in order use ``put``, ``take_turn``, ``take_messages`` and then ``commit``, ``rollback`` or
    ``make_to_consume_again``.
    """

    def __init__(self, now_ms: int, size_of: Callable[[M], int]) -> None:
        self.dropped = False
        """The queue no longer belongs to this consumer: late results do not count."""
        self.locked = False
        """The broker has locked the queue for this client. See also ``is_lock_expired``."""
        self.try_unlock_times = 0
        """Number of failed unlocks because the queue was being consumed."""
        self.last_lock_ms = now_ms
        self.last_pull_ms = now_ms
        self.last_consume_ms = now_ms
        self._size_of = size_of
        self._entries: dict[int, _Entry[M]] = {}
        # Offsets in order from _head on. Offsets missing in _entries are skipped when they come first or last.
        self._order: list[int] = []
        self._head = 0
        self._taken: dict[int, _Entry[M]] = {}
        self._size = 0
        self._max_offset = -1
        self._consuming = False

    # ------------------------------------------------------------ measurements

    @property
    def count(self) -> int:
        """Messages held, including those taken out to be consumed in order."""
        return len(self._entries) + len(self._taken)

    @property
    def size(self) -> int:
        """Bytes of the messages held."""
        return self._size

    @property
    def has_waiting(self) -> bool:
        """Whether any message is not taken out."""
        return bool(self._entries)

    @property
    def first_offset(self) -> int | None:
        """The lowest offset not taken out; None if there is none."""
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
    def lowest_offset(self) -> int | None:
        """The lowest offset held, taken out or not; None if there is none."""
        first = self.first_offset
        if not self._taken:
            return first
        taken = min(self._taken)
        return taken if first is None else min(taken, first)

    @property
    def last_offset(self) -> int | None:
        """The highest offset not taken out; None if there is none."""
        order, entries = self._order, self._entries
        if not entries:
            return None
        while order[-1] not in entries:
            order.pop()
        return order[-1]

    @property
    def span(self) -> int:
        """Distance between the lowest and the highest offset; 0 if there is none."""
        first, last = self.first_offset, self.last_offset
        return 0 if first is None or last is None else last - first

    def waiting(self) -> Iterator[M]:
        """Yield the messages not taken out, by offset. The queue must not change meanwhile."""
        for index in range(self._head, len(self._order)):
            entry = self._entries.get(self._order[index])
            if entry is not None:
                yield entry.message

    # ------------------------------------------------------------ pulling

    def put(self, messages: Iterable[M]) -> list[M]:
        """Add pulled messages. Return the new ones: an offset already held is ignored."""
        new = []
        for message in messages:
            last = message.queue_offset
            if last in self._entries or last in self._taken:
                continue
            entry = _Entry(message, self._size_of(message))
            self._insert(last, entry)
            self._size += entry.size
            self._max_offset = max(self._max_offset, last)
            new.append(message)
        return new

    def pulled(self, now_ms: int) -> None:
        """Note that a pull begins, or waits for a known reason."""
        self.last_pull_ms = now_ms

    def is_pull_expired(self, now_ms: int) -> bool:
        """Whether the last pull was more than two minutes ago."""
        return now_ms - self.last_pull_ms > PULL_MAX_IDLE_MS

    def flow_control(self, limits: QueueLimits) -> FlowControl | None:
        """Return the limit holding the next pull back; None if it may begin."""
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

    # ------------------------------------------------------------ concurrent consumption

    def begin(self, messages: Iterable[M], now_ms: int) -> None:
        """Note that messages are given to a handler now."""
        for message in messages:
            entry = self._entries.get(message.queue_offset)
            if entry is not None:
                entry.started_ms = now_ms
                if entry.tried_ms is None:
                    entry.tried_ms = now_ms

    def rest(self, message: M) -> None:
        """Note that the handler of a message has ended, and that the message waits for another one."""
        entry = self._entries.get(message.queue_offset)
        if entry is not None:
            entry.started_ms = None

    def remove(self, messages: Iterable[M], now_ms: int) -> int | None:
        """Remove finished messages. Return the offset to commit.

        It is the lowest offset still held. If none is held, it is the offset after the highest ever held. Return None
        if nothing was held before the call. Messages not held are ignored.
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

    def expired(
        self, consume_timeout_ms: float, now_ms: int, has_more_time: Callable[[M], bool] = lambda _: False
    ) -> list[M]:
        """Return the messages at the head of the queue in handlers for longer than the timeout.

        At most 16, up to the first one within the time. Those that have more time, or rest, are left out. They stay until
        they are removed; give them back to the broker first. Messages consumed in order never expire.
        """
        found: list[M] = []
        for message in self.waiting():
            if has_more_time(message):
                continue
            entry = self._entries[message.queue_offset]
            started_ms = entry.started_ms
            if started_ms is None and entry.tried_ms is not None:
                continue
            if started_ms is None or now_ms - started_ms <= consume_timeout_ms or len(found) == MAX_EXPIRED:
                break
            found.append(message)
        return found

    def has_expired(self, message: M, consume_timeout_ms: float, now_ms: int) -> bool:
        """Whether a message is still held, and has been in its handler for longer than the timeout."""
        entry = self._entries.get(message.queue_offset)
        if entry is None or entry.message is not message or entry.started_ms is None:
            return False
        return now_ms - entry.started_ms > consume_timeout_ms

    def blocking(self, now_ms: int) -> Blocking | None:
        """Return the first message held, if a handler has had it; otherwise None. The offset waits for this message.

        Its time counts from the first try on, across repeated failures.
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

    # ------------------------------------------------------------ consumption in order

    def take_turn(self) -> bool:
        """Return whether consumption in order must be started: there are messages, and it does not run yet.

        It then counts as running until ``take_messages`` finds nothing.
        """
        if self._consuming or not self._entries:
            return False
        self._consuming = True
        return True

    def take_messages(self, count: int, now_ms: int) -> list[M]:
        """Take out the first messages, ``count`` at most. They are being consumed from now on."""
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
        """Remove the messages taken out. Return the offset to commit; None if nothing was out.

        It is the offset after the highest taken one, but never above a message put back.
        """
        if not self._taken:
            return None
        behind = max(self._taken) + 1
        self._size -= sum(entry.size for entry in self._taken.values())
        self._taken.clear()
        first = self.first_offset
        return behind if first is None else min(behind, first)

    def commit_first(self, messages: Iterable[M]) -> int:
        """Remove the first of the messages taken out. Return the offset to commit, which is that of the next message."""
        behind = 0
        for message in messages:
            self._size -= self._taken.pop(message.queue_offset).size
            behind = message.queue_offset + 1
        rest = min(self._taken) if self._taken else self.first_offset
        return behind if rest is None else rest

    def put_back_untried(self, messages: Iterable[M]) -> None:
        """Put these taken messages back, which no handler has had."""
        offsets = {message.queue_offset for message in messages} & self._taken.keys()
        for offset in offsets:
            self._taken[offset].tried_ms = None
        self._put_back(offsets)

    def rollback(self) -> None:
        """Put all taken messages back."""
        self._put_back(self._taken.keys())

    def make_to_consume_again(self, messages: Iterable[M]) -> None:
        """Put these taken messages back."""
        self._put_back({message.queue_offset for message in messages} & self._taken.keys())

    # ------------------------------------------------------------ the broker's lock

    def lock(self, now_ms: int) -> None:
        """Note the broker's lock on the queue for this client."""
        self.locked = True
        self.last_lock_ms = now_ms

    def is_lock_expired(self, now_ms: int) -> bool:
        """Whether the broker's last confirmation is so old that another client may have the queue."""
        return now_ms - self.last_lock_ms > LOCK_MAX_LIVE_MS

    # ------------------------------------------------------------ the whole queue

    def clear(self) -> None:
        """Forget all messages, for example after a reset of the offset. Handlers still running have no effect."""
        self._entries.clear()
        self._order.clear()
        self._head = 0
        self._taken.clear()
        self._size = 0
        self._max_offset = -1

    def info(self, commit_offset: int = 0, wall_ms: int = 0) -> ProcessQueueInfo:
        """Return the queue's part of the consumer's running info (request code 307).

        ``wall_ms`` is the difference between Unix milliseconds and the queue's clock.
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
        # From the highest down: each goes into the place before the first one, which is free.
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
            # A removed offset may still be in its place.
            place = bisect_left(order, offset, self._head)
            if place == len(order) or order[place] != offset:
                order.insert(place, offset)
        self._entries[offset] = entry
