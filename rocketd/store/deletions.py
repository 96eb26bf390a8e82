"""Remembers which topics were deleted, and up to where: their messages stay in the log until its files expire.

Apache has no counterpart: after a crash its broker may dispatch messages of a deleted topic again. The deletions are a small
file of the store, written before the queues of a topic are removed. A start finishes what a kill has left of a removal, and
nothing that is made again from the log gets messages of a topic that was deleted behind them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rocketd.store.message import DispatchRequest


class Deletion(NamedTuple):
    """The messages of a topic that begin before an offset of the log are deleted.

    The last of them was stored at a time in ms: the time tells other records, which another log has at these offsets.
    """

    offset: int
    stored_ms: int


class Deletions:
    """Deletions by topic; never changed, so that any thread may use them. `upto` is the greatest offset of one."""

    def __init__(self, topics: Mapping[str, Deletion] | None = None) -> None:
        self.topics: Mapping[str, Deletion] = {} if topics is None else topics
        self.upto = max((deletion.offset for deletion in self.topics.values()), default=0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Deletions) and self.topics == other.topics

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.topics.items())))

    def include(self, topic: str, offset: int, stored_ms: int) -> bool:
        """Whether a record of a topic, at an offset of the log and stored at a time in ms, was deleted."""
        deletion = self.topics.get(topic)
        return deletion is not None and offset < deletion.offset and stored_ms <= deletion.stored_ms

    def left_of(self, requests: Sequence[DispatchRequest]) -> Sequence[DispatchRequest]:
        """Those records that were not deleted; `requests` are in the order of the log."""
        if not requests or requests[0].physical_offset >= self.upto:
            return requests
        return [r for r in requests if not self.include(r.topic, r.physical_offset, r.store_timestamp)]

    def within(self, log_begin: int, log_end: int) -> "Deletions":
        """What still counts in a log with this begin and end: what comes behind the end was not deleted."""
        found = {
            topic: Deletion(min(deletion.offset, log_end), deletion.stored_ms)
            for topic, deletion in self.topics.items()
            if min(deletion.offset, log_end) > max(log_begin, 0)
        }
        return self if found == self.topics else Deletions(found)

    def and_also(self, topic: str, deletion: Deletion) -> "Deletions":
        """These, and another."""
        return Deletions({**self.topics, topic: deletion})
