"""Where offsets of consumer groups are kept: ``config/consumerOffset.json``, or with light queues a file of their own.

Answers to the file of Apache's LmqConsumerOffsetManager, ``config/lmqConsumerOffset.json``: a group named like a light queue
(%LMQ%) has one offset for a topic, without queues. In memory all offsets are alike, light ones those of queue 0.
"""

from collections.abc import Callable
from typing import Any

from rocketd.broker.json_file import JsonFile
from rocketd.common.names import LMQ_PREFIX
from rocketd.remoting.bodies import Body, ConsumerOffsetSerializeWrapper
from rocketd.store.settings import MessageStoreConfig

SEPARATOR = "@"


class LmqConsumerOffsetSerializeWrapper(Body):
    """lmqConsumerOffset.json: ``topic@group`` to the offset of a light group, and to queue id to offset of all others."""

    lmq_offset_table: dict[str, int] = {}
    offset_table: dict[str, dict[int, int]] = {}


class LightOffsetFile:
    """Loads and stores offsets in Apache's form for light queues; may be used as the JsonFile of offsets is."""

    def __init__(self, file: JsonFile[LmqConsumerOffsetSerializeWrapper]) -> None:
        self._file = file
        self.path = file.path

    def load(self) -> ConsumerOffsetSerializeWrapper | None:
        """Read the file; see JsonFile. Raises JsonFileError."""
        stored = self._file.load()
        if stored is None:
            return None
        light = {key: {0: offset} for key, offset in stored.lmq_offset_table.items()}
        return ConsumerOffsetSerializeWrapper({**stored.offset_table, **light})

    def save(self, snapshot: Callable[[], tuple[int, ConsumerOffsetSerializeWrapper]]) -> None:
        """Store what ``snapshot`` returns; see JsonFile. Raises OSError."""

        def in_two() -> tuple[int, LmqConsumerOffsetSerializeWrapper]:
            number, offsets = snapshot()
            light, others = {}, {}
            for key, queues in offsets.offset_table.items():
                if key.rpartition(SEPARATOR)[2].startswith(LMQ_PREFIX):
                    light[key] = queues.get(0, 0)
                else:
                    others[key] = queues
            return number, LmqConsumerOffsetSerializeWrapper(light, others)

        self._file.save(in_two)


def offset_file(settings: MessageStoreConfig, json_file: Callable[[str, Any], Any]) -> Any:
    """Make the file of the groups' offsets; ``json_file`` makes one by its name and the type of its content."""
    if settings.enable_lmq:
        return LightOffsetFile(json_file("lmqConsumerOffset.json", LmqConsumerOffsetSerializeWrapper))
    return json_file("consumerOffset.json", ConsumerOffsetSerializeWrapper)
