"""How far each consumer group has read each queue.

Answers to Apache's ConsumerOffsetManager and keeps its file, ``config/consumerOffset.json``. Unlike the other tables it is
written by a timer (``flushConsumerOffsetInterval``) and at the stop, not with every change: after a crash groups read
again what they committed since.
"""

import threading
from collections.abc import Callable

from twisted.logger import Logger

from rocketd.broker.json_file import JsonFile
from rocketd.common.log_throttle import ThrottledLog
from rocketd.common.table_writer import TableWriter, Written
from rocketd.remoting.bodies import ConsumerOffsetSerializeWrapper

SEPARATOR = "@"


class ConsumerOffsetManager:
    """Committed offsets by ``topic@group`` and queue id: the next message to be read. Methods may be called from any
    thread.
    """

    _log = Logger()

    def __init__(self, file: JsonFile[ConsumerOffsetSerializeWrapper], writer: TableWriter | None = None) -> None:
        """Without a ``writer``, ``save`` writes in the thread that calls it."""
        self._file = file
        self._peer_log = ThrottledLog(self._log)
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
        """Write the file, here and now, if an offset was committed since the last time. Raises OSError."""
        self._file.save(self._numbered_snapshot)

    def save(self, written: Written | None = None) -> None:
        """Have the file written; ``written`` is told when it is, or cannot be."""
        self._saved.changed(written)

    def snapshot(self) -> ConsumerOffsetSerializeWrapper:
        """Copy all offsets, as the answer to code 43 carries them."""
        return self._numbered_snapshot()[1]

    def _numbered_snapshot(self) -> tuple[int, ConsumerOffsetSerializeWrapper]:
        with self._guard:
            copied = {key: dict(queues) for key, queues in self._table.items()}
            return self._changes, ConsumerOffsetSerializeWrapper(offset_table=copied)

    @property
    def changes(self) -> int:
        """How many changes there were since the start."""
        return self._changes

    def commit(self, client_address: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store an offset. One that lies before the stored one is taken, and logged: its group will read again."""
        key = topic + SEPARATOR + group
        with self._guard:
            queues = self._table.setdefault(key, {})
            old = queues.get(queue_id)
            queues[queue_id] = offset
            self._changes += 1
        if old is not None and offset < old:
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
        """Take over the offsets that a slave's master has; groups that it does not know keep theirs."""
        with self._guard:
            for key, queues in master.offset_table.items():
                if self._table.get(key) != queues:
                    self._table[key] = queues
                    self._changes += 1
        self.save()

    def take_larger(self, slave: ConsumerOffsetSerializeWrapper, end_of: Callable[[str, int], int | None]) -> int:
        """Take over each offset of a slave's that is larger than the one here, and return how many they are.

        An offset behind the end of its queue here, which ``end_of`` tells or None, is taken as that end. Raises OSError when
        they cannot be written.
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

    def groups_of(self, topic: str) -> set[str]:
        """Name the groups that have committed an offset of the topic."""
        with self._guard:
            keys = [key.partition(SEPARATOR) for key in self._table]
        return {group for name, _, group in keys if name == topic and group}

    def topics_of(self, group: str) -> set[str]:
        """Name the topics that the group has committed an offset of."""
        with self._guard:
            keys = [key.partition(SEPARATOR) for key in self._table]
        return {topic for topic, _, name in keys if name == group and topic}

    def clone(self, source: str, target: str, topic: str) -> None:
        """Give a group the offsets of another one in a topic, instead of its own; without any there is no change."""
        with self._guard:
            queues = self._table.get(topic + SEPARATOR + source)
            if queues is not None:
                self._table[topic + SEPARATOR + target] = dict(queues)
                self._changes += 1

    def remove_group(self, group: str) -> None:
        """Forget all offsets of a group."""
        self._remove(lambda parts: parts[1:] == [group])

    def remove_topic(self, topic: str) -> None:
        """Forget the offsets that all groups have in a topic."""
        self._remove(lambda parts: parts[0] == topic)

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Forget the offsets that all groups have in one queue of a topic."""
        with self._guard:
            gone = [
                key for key, queues in self._table.items() if key.split(SEPARATOR)[0] == topic and queue_id in queues
            ]
            for key in gone:
                self._table[key] = {id_: offset for id_, offset in self._table[key].items() if id_ != queue_id}
                self._changes += 1
        for key in gone:
            self._log.warn("the offset of {key} in queue {queue} was removed", key=key, queue=queue_id)

    def _remove(self, is_gone: Callable[[list[str]], bool]) -> None:
        with self._guard:
            gone = [key for key in self._table if is_gone(key.split(SEPARATOR))]
            for key in gone:
                del self._table[key]
                self._changes += 1
        for key in gone:
            self._log.warn("offsets of {key} were removed", key=key)
