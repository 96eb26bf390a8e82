"""Deleted topics, and the log offset of each deletion: the messages stay in the log until its files expire.

After a crash, Apache's broker may dispatch messages of a deleted topic again. Here the deletions are written to a small
file before the queues of a topic are removed. A start completes a removal cut short by a kill. Data rebuilt from the
log skips the deleted messages.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rocketd.store.format.message import DispatchRequest


class Deletion(NamedTuple):
    """A deletion of the messages of a topic before an offset of the log.

    `stored_ms` is the store time of the last of them. It tells them from records of another log at the same offsets.
    """

    offset: int
    stored_ms: int


class Deletions:
    """Immutable table of deletions by topic, for any thread. `upto` is the greatest offset of all deletions."""

    def __init__(self, topics: Mapping[str, Deletion] | None = None) -> None:
        self.topics: Mapping[str, Deletion] = {} if topics is None else topics
        self.upto = max((deletion.offset for deletion in self.topics.values()), default=0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Deletions) and self.topics == other.topics

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.topics.items())))

    def include(self, topic: str, offset: int, stored_ms: int) -> bool:
        """Return whether a record of a topic, at an offset of the log and stored at a time in ms, was deleted."""
        deletion = self.topics.get(topic)
        return deletion is not None and offset < deletion.offset and stored_ms <= deletion.stored_ms

    def left_of(self, requests: Sequence[DispatchRequest]) -> Sequence[DispatchRequest]:
        """Return the records not deleted. `requests` must be in log order."""
        if not requests or requests[0].physical_offset >= self.upto:
            return requests
        return [r for r in requests if not self.include(r.topic, r.physical_offset, r.store_timestamp)]

    def within(self, log_begin: int, log_end: int) -> "Deletions":
        """Return the deletions still relevant in a log with this start and end. Records after the end were not deleted."""
        found = {
            topic: Deletion(min(deletion.offset, log_end), deletion.stored_ms)
            for topic, deletion in self.topics.items()
            if min(deletion.offset, log_end) > max(log_begin, 0)
        }
        return self if found == self.topics else Deletions(found)

    def with_deletion(self, topic: str, deletion: Deletion) -> "Deletions":
        """Return a copy with one more deletion."""
        return Deletions({**self.topics, topic: deletion})
