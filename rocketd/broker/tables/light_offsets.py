"""The file of consumer offsets: ``config/consumerOffset.json``, or ``config/lmqConsumerOffset.json`` with light queues.

A group named like a light queue (%LMQ%) has one offset per topic, without queues. In memory all offsets have the same
form; light ones are those of queue 0.

Counterpart: the file of `LmqConsumerOffsetManager` (Apache).
"""

from collections.abc import Callable
from typing import TypeAlias

from rocketd.broker.base.json_file import JsonFile, JsonFiles
from rocketd.common.names import LMQ_PREFIX
from rocketd.remoting.bodies.tables import Body, ConsumerOffsetSerializeWrapper
from rocketd.store.base.settings import MessageStoreConfig

SEPARATOR = "@"


class LmqConsumerOffsetSerializeWrapper(Body):
    """The content of lmqConsumerOffset.json.

    Light groups have one offset per ``topic@group``, all others have offsets by queue id.
    """

    lmq_offset_table: dict[str, int] = {}
    offset_table: dict[str, dict[int, int]] = {}


OffsetFile: TypeAlias = "JsonFile[ConsumerOffsetSerializeWrapper] | LightOffsetFile"
"""A file of offsets, with or without light queues."""


class LightOffsetFile:
    """Loads and stores offsets in Apache's form for light queues. It replaces the JsonFile of offsets."""

    def __init__(self, file: JsonFile[LmqConsumerOffsetSerializeWrapper]) -> None:
        self._file = file
        self.path = file.path

    @property
    def used_backup(self) -> bool:
        """Whether the last ``load`` returned the content of the ``.bak``."""
        return self._file.used_backup

    def load(self) -> ConsumerOffsetSerializeWrapper | None:
        """Read the file; see JsonFile. Raises JsonFileError."""
        stored = self._file.load()
        if stored is None:
            return None
        light = {key: {0: offset} for key, offset in stored.lmq_offset_table.items()}
        return ConsumerOffsetSerializeWrapper({**stored.offset_table, **light})

    def save(self, snapshot: Callable[[], tuple[int, ConsumerOffsetSerializeWrapper]]) -> None:
        """Store the result of ``snapshot``; see JsonFile. Raises OSError."""

        def split() -> tuple[int, LmqConsumerOffsetSerializeWrapper]:
            number, offsets = snapshot()
            light, others = {}, {}
            for key, queues in offsets.offset_table.items():
                if key.rpartition(SEPARATOR)[2].startswith(LMQ_PREFIX):
                    light[key] = queues.get(0, 0)
                else:
                    others[key] = queues
            return number, LmqConsumerOffsetSerializeWrapper(light, others)

        self._file.save(split)


def offset_file(settings: MessageStoreConfig, files: JsonFiles) -> OffsetFile:
    """Return the file of consumer offsets."""
    if settings.enable_lmq:
        return LightOffsetFile(files.file("lmqConsumerOffset.json", LmqConsumerOffsetSerializeWrapper))
    return files.file("consumerOffset.json", ConsumerOffsetSerializeWrapper)
