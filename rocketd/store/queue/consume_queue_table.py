"""All consume queues of the store.

Counterpart: `consumeQueueTable` of `DefaultMessageStore` (Apache). A queue is created when its first message is
dispatched. Asking for a missing queue does not create it.
"""

import os
from collections.abc import Callable, Collection, Mapping

from rocketd.common.names import LMQ_PREFIX
from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.base.layout import consume_queue_file_size
from rocketd.store.log.queue_file import QueueMappings
from rocketd.store.queue.consume_queue import MAX_OFFSET, ConsumeQueue
from rocketd.store.queue.consume_queue_ext import DEFAULT_EXT_FILE_SIZE, ConsumeQueueExt


class ConsumeQueueTable:
    """Queues by topic and queue id.

    `find_or_create`, `remove` and `remove_topic` belong to the dispatching thread, `load` and `recover` to the thread
    that starts the store. Any thread may call the rest.
    """

    def __init__(
        self,
        fs: IFileSystem,
        directory: str,
        file_size: int,
        *,
        ext_directory: str | None = None,
        ext_file_size: int = DEFAULT_EXT_FILE_SIZE,
        extend: bool = False,
        max_mapped: int | None = None,
    ) -> None:
        """`file_size` in bytes is rounded up to whole entries.

        `max_mapped` is the greatest number of mapped files, as many as the system allows if it is None.

        Queues with files below `ext_directory` have an extension for their entries. With `extend`, all queues have one,
        and new entries point to it.
        """
        self._fs = fs
        self._directory = directory
        self._file_size = consume_queue_file_size(file_size)
        self._ext_directory = ext_directory
        self._ext_file_size = ext_file_size
        self._extend = extend
        self.mappings = QueueMappings(max_mapped)
        """The mapped files of all queues and extensions."""
        self.queues: dict[tuple[str, int], ConsumeQueue] = {}
        self.dirty: set[ConsumeQueue] = set()
        self.before_removal: Callable[[], None] = lambda: None
        """Called when queues are no longer in the table, before their files are removed."""

    def load(self) -> None:
        """Map the files of all queues. Raises StoreFileSizeError, OSError."""
        self._fs.makedirs(self._directory)
        for topic in self._fs.listdir(self._directory):
            for name in self._fs.listdir(os.path.join(self._directory, topic)):
                if name.isascii() and name.isdigit():
                    queue = self._make(topic, int(name))
                    queue.load()
                    self.queues[topic, int(name)] = queue

    def recover(self, clean: bool, limit: int | None = None) -> None:
        """Find the end of every queue, see ConsumeQueue.

        The limit does not apply to light queues: only Apache's broker can rebuild their entries.
        """
        for (topic, _), queue in self.queues.items():
            queue.recover(clean, None if topic.startswith(LMQ_PREFIX) else limit)

    def last_record(
        self, limit: int = MAX_OFFSET, cuts: Mapping[tuple[str, int], int] | None = None
    ) -> tuple[int, int]:
        """Return (begin, end) of the last record before a limit with an entry in any queue, (-1, 0) without one.

        For use before the recovery. For queues in `cuts`, only the entries before that byte count.
        """
        cut_at = {} if cuts is None else cuts
        return max((queue.last_record(limit, cut_at.get(key)) for key, queue in self.all()), default=(-1, 0))

    def record_from(self, physical_offset: int) -> int:
        """Return the start of the first record at or after an offset of the log with an entry in any queue.

        MAX_OFFSET without one. For use before the recovery.
        """
        return min((queue.record_from(physical_offset) for queue in self.queues.values()), default=MAX_OFFSET)

    def forget_flushed(self, physical_offset: int) -> None:
        """Flush all entries of records from an offset of the log on again."""
        for queue in self.queues.values():
            if queue.max_physic_offset > physical_offset:
                queue.forget_flushed(physical_offset)
                self.dirty.add(queue)

    @property
    def max_physic_offset(self) -> int:
        """End of the last record with an entry in any queue, -1 without entries."""
        return max((queue.max_physic_offset for queue in self.queues.values()), default=-1)

    def truncate_dirty(self, physical_offset: int) -> None:
        """Remove all entries of records from a physical offset on."""
        for queue in self.queues.values():
            queue.truncate_dirty(physical_offset)

    def correct_min_offset(self, physical_offset: int) -> None:
        """Begin all queues with records at or after a physical offset, see ConsumeQueue."""
        for queue in self.queues.values():
            queue.correct_min_offset(physical_offset)

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue, None if no message was dispatched to it yet."""
        return self.queues.get((topic, queue_id))

    def find_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue, created if necessary. Its directory appears with its first entry."""
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            queue = self.queues[topic, queue_id] = self._make(topic, queue_id)
        return queue

    def directory_of(self, topic: str, queue_id: int) -> str:
        """Return the directory of a queue, existing or not."""
        return os.path.join(self._directory, topic, str(queue_id))

    def all(self) -> list[tuple[tuple[str, int], ConsumeQueue]]:
        """Return a copy of all queues with topic and queue id. The table may grow while the copy is walked."""
        return list(self.queues.items())

    def remove_topic(self, topic: str) -> None:
        """Remove all queues of a topic with their files."""
        self.remove([key for key, _ in self.all() if key[0] == topic])
        self._remove_directory(topic)

    def remove(self, keys: Collection[tuple[str, int]]) -> None:
        """Remove some queues with their files, and the directories of topics without other queues."""
        queues = [self.queues.pop(key) for key in keys]
        if queues:
            self.before_removal()
        for queue in queues:
            self.dirty.discard(queue)
            queue.destroy()
        for topic in {topic for topic, _ in keys}:
            self._remove_directory(topic)

    def _remove_directory(self, topic: str) -> None:
        self._fs.rmdir(os.path.join(self._directory, topic))
        if self._ext_directory is not None:
            self._fs.rmdir(os.path.join(self._ext_directory, topic))

    def destroy(self) -> None:
        """Remove all queues with their files."""
        for topic in {topic for (topic, _), _ in self.all()}:
            self.remove_topic(topic)

    def _make(self, topic: str, queue_id: int) -> ConsumeQueue:
        directory = self.directory_of(topic, queue_id)
        ext = None
        if self._ext_directory is not None:
            ext_directory = os.path.join(self._ext_directory, topic, str(queue_id))
            if self._extend or self._fs.exists(ext_directory):
                ext = ConsumeQueueExt(self._fs, topic, queue_id, ext_directory, self._ext_file_size, self.mappings)
        return ConsumeQueue(self._fs, topic, queue_id, directory, self._file_size, ext, self._extend, self.mappings)
