"""Counts the messages of a part of a queue that a filter lets through.

No counterpart in Apache, which takes all messages of a queue for wanted ones. A filter by tags is counted by the hashes in
the queue, an expression by the properties in the log. What was counted once is remembered: asked again, only what came and
what went is looked at.
"""

from collections.abc import Callable, Iterator
from time import sleep
from typing import Any, Final, NamedTuple

from rocketd.store.layout import FILLER_SIZE, MAX_EXT_ADDRESS
from rocketd.store.message import MessageFilter
from rocketd.store.record import properties_of

BUDGET: Final = 10_000_000
"""Entries that one question may look at."""
RECORD_COST: Final = 20
"""A record that has to be read counts as so many entries."""
_CHUNK: Final = 2_000
_PAUSE_SECONDS: Final = 0.0002
"""After each chunk, so that sends and pulls have the interpreter meanwhile."""


class Matches(NamedTuple):
    """What was found from ``begin`` up to ``end``: how many, where the first is (``end`` without any), and the place in
    the log of the last entry looked at, which tells whether the queue is still the same. Not ``exact``: the budget ended.
    """

    begin: int
    end: int
    number: int
    first: int
    last_physical_offset: int = -1
    exact: bool = True


class LagCounter:
    """Counts, and remembers. Belongs to one thread, and not to one that has other work.

    ``pause`` lets other threads run for at least so many seconds.
    """

    def __init__(self, store: Any, pause: Callable[[float], None] = sleep) -> None:
        """``store`` is a MessageStore."""
        self._store = store
        self._pause = pause
        self._left = BUDGET
        self._known: dict[tuple[str, str, int], tuple[object, Matches]] = {}

    def begin_question(self) -> None:
        """Give the budget of one question."""
        self._left = BUDGET

    def count(
        self, group: str, topic: str, queue_id: int, begin: int, end: int, wanted: MessageFilter, key: object
    ) -> Matches:
        """Count what a group wants; ``key`` is equal for filters that want the same."""
        place = (group, topic, queue_id)
        known_key, before = self._known.get(place, (None, None))
        found = None
        if before is not None and known_key == key and self._continues(topic, queue_id, before, begin, end):
            found = self._go_on(topic, queue_id, before, begin, end, wanted)
        if found is None:
            found = self._look(topic, queue_id, begin, end, wanted)
        if found.exact:
            self._known[place] = (key, found)
        else:
            self._known.pop(place, None)
        return found

    def _go_on(
        self, topic: str, queue_id: int, before: Matches, begin: int, end: int, wanted: MessageFilter
    ) -> Matches | None:
        """Count by what was found before; None when the budget does not allow it."""
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
        """Whether what was counted before helps, and is of these messages."""
        if not (before.begin <= begin <= before.end <= end) or begin - before.begin + end - before.end > end - begin:
            return False
        if self._store.get_min_offset(topic, queue_id) > before.begin:
            return False
        last = self._store.queue_entries(topic, queue_id, before.end - 1, 1)
        return bool(last) and last[0][0] == before.last_physical_offset

    def _look(
        self, topic: str, queue_id: int, begin: int, end: int, wanted: MessageFilter, *, only_first: bool = False
    ) -> Matches:
        """Look at each entry."""
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
            # Its file has been removed meanwhile.
            following = self._store.get_min_offset(topic, queue_id)
            if following <= begin:
                return
            begin = following

    def _wants(self, wanted: MessageFilter, entry: tuple[int, int, int]) -> bool:
        physical_offset, size, tags_code = entry
        if size == FILLER_SIZE:
            return False
        codes = wanted.tags_codes
        # What a lost unit of an extended queue said is unknown; a reader gets the message.
        if codes is not None and tags_code not in codes and tags_code > MAX_EXT_ADDRESS:
            return False
        if wanted.matches is None:
            return True
        record = self._store.look_message(physical_offset)
        return record is not None and wanted.matches(properties_of(record))
