"""Counts the messages in part of a queue that a filter accepts.

Apache's broker counts all messages of a queue, wanted or not. Here a tag filter is counted by the hashes in the queue,
and an expression by the properties in the log. Results are cached: the next count looks only at messages added and
removed.
"""

from collections.abc import Callable, Iterator
from time import sleep
from typing import Final, NamedTuple

from rocketd.store.base.layout import FILLER_SIZE, MAX_EXT_ADDRESS
from rocketd.store.format.message import MessageFilter
from rocketd.store.format.record import properties_of
from rocketd.store.interfaces import IMessageStore

BUDGET: Final = 10_000_000
"""The number of entries that one request may read."""
RECORD_COST: Final = 20
"""The cost of reading a record, in entries."""
_CHUNK: Final = 2_000
_PAUSE_SECONDS: Final = 0.0002
"""The pause after each chunk, so that sends and pulls get the interpreter."""


class Matches(NamedTuple):
    """The matches from ``begin`` to ``end``.

    - ``number`` is their count, ``first`` the offset of the first one (``end`` if none).
    - ``last_physical_offset`` is the place of the last entry read. It shows whether the queue is still the same.
    - ``exact`` is False if the budget ended.
    """

    begin: int
    end: int
    number: int
    first: int
    last_physical_offset: int = -1
    exact: bool = True


class LagCounter:
    """Counts matches, with a cache. It belongs to one thread without other work.

    ``pause`` lets other threads run for at least the given seconds.
    """

    def __init__(self, store: IMessageStore, pause: Callable[[float], None] = sleep) -> None:
        self._store = store
        self._pause = pause
        self._left = BUDGET
        self._known: dict[tuple[str, str, int], tuple[object, Matches]] = {}

    def begin_question(self) -> None:
        """Reset the budget for a new request."""
        self._left = BUDGET

    def count(
        self, group: str, topic: str, queue_id: int, begin: int, end: int, wanted: MessageFilter, key: object
    ) -> Matches:
        """Count a group's messages; ``key`` is equal for equal filters."""
        place = (group, topic, queue_id)
        known_key, before = self._known.get(place, (None, None))
        found = None
        if before is not None and known_key == key and self._continues(topic, queue_id, before, begin, end):
            found = self._continue_count(topic, queue_id, before, begin, end, wanted)
        if found is None:
            found = self._look(topic, queue_id, begin, end, wanted)
        if found.exact:
            self._known[place] = (key, found)
        else:
            self._known.pop(place, None)
        return found

    def _continue_count(
        self, topic: str, queue_id: int, before: Matches, begin: int, end: int, wanted: MessageFilter
    ) -> Matches | None:
        """Count from an earlier result; None if the budget does not suffice."""
        gone = self._look(topic, queue_id, before.begin, begin, wanted)
        new = self._look(topic, queue_id, before.end, end, wanted)
        if not (gone.exact and new.exact):
            return None
        number = before.number - gone.number + new.number
        if begin <= before.first < before.end:
            first = before.first
        elif number > new.number:
            first = self._look(topic, queue_id, begin, before.end, wanted, only_first=True).first
        else:
            first = new.first
        last = new.last_physical_offset if before.end < end else before.last_physical_offset
        return Matches(begin, end, number, first, last)

    def _continues(self, topic: str, queue_id: int, before: Matches, begin: int, end: int) -> bool:
        """Whether an earlier result is useful, and about the same messages."""
        if not (before.begin <= begin <= before.end <= end) or begin - before.begin + end - before.end > end - begin:
            return False
        if self._store.get_min_offset(topic, queue_id) > before.begin:
            return False
        last = self._store.queue_entries(topic, queue_id, before.end - 1, 1)
        return bool(last) and last[0][0] == before.last_physical_offset

    def _look(
        self, topic: str, queue_id: int, begin: int, end: int, wanted: MessageFilter, *, only_first: bool = False
    ) -> Matches:
        """Read each entry."""
        found, first, physical_offset = 0, end, -1
        cost = 1 if wanted.matches is None else RECORD_COST
        for offset, entries in self._chunks(topic, queue_id, begin, end):
            if self._left < len(entries) * cost:
                return Matches(begin, end, found + end - offset, min(first, offset), exact=False)
            self._left -= len(entries) * cost
            hits = [at for at, entry in enumerate(entries, offset) if self._wants(wanted, entry)]
            physical_offset = entries[-1][0]
            if hits:
                if not found:
                    first = hits[0]
                found += len(hits)
                if only_first:
                    break
            self._pause(_PAUSE_SECONDS)
        return Matches(begin, end, found, first, physical_offset)

    def _chunks(
        self, topic: str, queue_id: int, begin: int, end: int
    ) -> Iterator[tuple[int, list[tuple[int, int, int]]]]:
        while begin < end:
            entries = self._store.queue_entries(topic, queue_id, begin, min(_CHUNK, end - begin))
            if entries:
                yield begin, entries
                begin += len(entries)
                continue
            # Its file was deleted meanwhile.
            following = self._store.get_min_offset(topic, queue_id)
            if following <= begin:
                return
            begin = following

    def _wants(self, wanted: MessageFilter, entry: tuple[int, int, int]) -> bool:
        physical_offset, size, tags_code = entry
        if size == FILLER_SIZE:
            return False
        codes = wanted.tags_codes
        # The tags code of a lost extension unit is unknown; a reader gets the message.
        if codes is not None and tags_code not in codes and tags_code > MAX_EXT_ADDRESS:
            return False
        if wanted.matches is None:
            return True
        record = self._store.look_message(physical_offset)
        return record is not None and wanted.matches(properties_of(record))
