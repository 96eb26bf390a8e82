"""The committed offsets of consumer groups, by queue.

They are kept in Apache's file, ``config/consumerOffset.json``. Unlike the other tables it is written by a timer
(``flushConsumerOffsetInterval``) and at the stop, not with every change. After a crash, groups read again the messages
committed since the last write. Only the first offset of a group in a queue is written soon: without one, the group would
start over, perhaps at the end of the queue.

Counterpart: `ConsumerOffsetManager` (Apache).
"""

import threading
from collections.abc import Callable

from twisted.logger import Logger

from rocketd.broker.tables.light_offsets import OffsetFile
from rocketd.common.logs.throttle import ThrottledLog, event_log
from rocketd.common.table_writer import TableWriter, Written
from rocketd.remoting.bodies.tables import ConsumerOffsetSerializeWrapper

SEPARATOR = "@"


class ConsumerOffsetManager:
    """Committed offsets by ``topic@group`` and queue id: the next message to read. Any thread."""

    _log = Logger()

    def __init__(self, file: OffsetFile, writer: TableWriter | None = None) -> None:
        """Without a ``writer``, ``save`` writes in the calling thread."""
        self._file = file
        self._peer_log = ThrottledLog(self._log)
        self._events = event_log(self._log)
        self._saved = (writer or TableWriter()).table(file.path, self.persist)
        self._guard = threading.Lock()
        self._changes = 0
        self._table: dict[str, dict[int, int]] = {}

    def load(self) -> None:
        """Read the file. Raises JsonFileError."""
        stored = self._file.load()
        if stored is not None:
            with self._guard:
                self._table = stored.offset_table

    def persist(self) -> None:
        """Write the file now, if an offset was committed since the last write. Raises OSError."""
        self._file.save(self._numbered_snapshot)

    def save(self, written: Written | None = None) -> None:
        """Schedule a write. ``written`` is called after it, with the error if it failed."""
        self._saved.changed(written)

    def snapshot(self) -> ConsumerOffsetSerializeWrapper:
        """Copy all offsets, as in the answer to code 43."""
        return self._numbered_snapshot()[1]

    def _numbered_snapshot(self) -> tuple[int, ConsumerOffsetSerializeWrapper]:
        with self._guard:
            copied = {key: dict(queues) for key, queues in self._table.items()}
            return self._changes, ConsumerOffsetSerializeWrapper(offset_table=copied)

    @property
    def changes(self) -> int:
        """The number of changes since the start."""
        return self._changes

    def commit(self, client_address: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store an offset. A lower one than before is accepted and logged: its group will read messages again."""
        key = topic + SEPARATOR + group
        with self._guard:
            queues = self._table.setdefault(key, {})
            old = queues.get(queue_id)
            queues[queue_id] = offset
            self._changes += 1
        if old is None:
            self.save()
        elif offset < old:
            self._peer_log.warn(
                f"goes back {key}",
                "group {group} goes back in queue {queue} of {topic}: {client} commits {offset}, {old} was stored",
                group=group,
                queue=queue_id,
                topic=topic,
                client=client_address,
                offset=offset,
                old=old,
            )

    def take_from_master(self, master: ConsumerOffsetSerializeWrapper) -> None:
        """Copy the offsets of this slave's master. Groups unknown to the master keep theirs."""
        with self._guard:
            for key, queues in master.offset_table.items():
                if self._table.get(key) != queues:
                    self._table[key] = queues
                    self._changes += 1
        self.save()

    def take_larger(self, slave: ConsumerOffsetSerializeWrapper, end_of: Callable[[str, int], int | None]) -> int:
        """Adopt each offset of a slave that is larger than the one here; return their number.

        ``end_of`` returns the end of a queue, or None. An offset beyond that end is reduced to it. Raises OSError if
        the file cannot be written.
        """
        taken = 0
        with self._guard:
            for key, queues in slave.offset_table.items():
                topic = key.partition(SEPARATOR)[0]
                own = self._table.get(key, {})
                larger = {}
                for queue_id, offset in queues.items():
                    end = end_of(topic, queue_id)
                    reachable = offset if end is None else min(offset, end)
                    if reachable > own.get(queue_id, -1):
                        larger[queue_id] = reachable
                if larger:
                    self._table[key] = own | larger
                    self._changes += 1
                    taken += len(larger)
        if taken:
            self.persist()
        return taken

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the committed offset, or -1."""
        queues = self._table.get(topic + SEPARATOR + group)
        return -1 if queues is None else queues.get(queue_id, -1)

    def of_topic(self, group: str, topic: str) -> dict[int, int]:
        """Return the committed offsets of a group in a topic, by queue id."""
        with self._guard:
            return dict(self._table.get(topic + SEPARATOR + group, {}))

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups with a committed offset in the topic."""
        with self._guard:
            keys = [key.partition(SEPARATOR) for key in self._table]
        return {group for name, _, group in keys if name == topic and group}

    def topics_of(self, group: str) -> set[str]:
        """Return the topics in which the group has a committed offset."""
        with self._guard:
            keys = [key.partition(SEPARATOR) for key in self._table]
        return {topic for topic, _, name in keys if name == group and topic}

    def clone(self, source: str, target: str, topic: str) -> None:
        """Replace a group's offsets in a topic with those of another group. Does nothing if the other has none."""
        with self._guard:
            queues = self._table.get(topic + SEPARATOR + source)
            if queues is not None:
                self._table[topic + SEPARATOR + target] = dict(queues)
                self._changes += 1

    def remove_group(self, group: str) -> None:
        """Remove all offsets of a group."""
        self._remove(lambda parts: parts[1:] == [group])

    def remove_topic(self, topic: str) -> None:
        """Remove the offsets of all groups in a topic."""
        self._remove(lambda parts: parts[0] == topic)

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Remove the offsets of all groups in one queue of a topic."""
        with self._guard:
            gone = [
                key for key, queues in self._table.items() if key.split(SEPARATOR)[0] == topic and queue_id in queues
            ]
            for key in gone:
                self._table[key] = {id_: offset for id_, offset in self._table[key].items() if id_ != queue_id}
                self._changes += 1
        for key in gone:
            self._events.warn("queues", "the offset of {key} in queue {queue} was removed", key=key, queue=queue_id)

    def _remove(self, is_gone: Callable[[list[str]], bool]) -> None:
        with self._guard:
            gone = [key for key in self._table if is_gone(key.split(SEPARATOR))]
            for key in gone:
                del self._table[key]
                self._changes += 1
        for key in gone:
            self._events.warn("topics", "offsets of {key} were removed", key=key)
