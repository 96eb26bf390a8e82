"""The tables of a store: topics, groups, offsets, delay levels and filters, read as a broker reads them."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from rocketd.broker.base.json_file import JsonFileError, JsonFiles
from rocketd.broker.tables.filters.consumer_filter_file import ConsumerFilterWrapper
from rocketd.broker.tables.light_offsets import SEPARATOR, offset_file
from rocketd.broker.tables.missing_tables import implied_topics
from rocketd.common.names import PRESET_GROUPS, RETRY_PREFIX, group_fault, is_system_group, topic_fault
from rocketd.remoting.bodies.tables import (
    DelayOffsetSerializeWrapper,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.base.layout import SCHEDULE_TOPIC, config_dir
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.offline.summary import QueueSummary
from rocketd.tools.doctor.findings import NOTE, WRONG, DoctorFinding
from rocketd.tools.migration.numbers import StoreNumbers

_NAMED = 5

_Ends = Mapping[tuple[str, int], int]
"""The offset after the last message of each queue, by topic and queue id."""
_ContentT = TypeVar("_ContentT", covariant=True)


class _Table(Protocol[_ContentT]):
    """The file of a table."""

    @property
    def path(self) -> str: ...

    @property
    def used_backup(self) -> bool: ...

    def load(self) -> _ContentT | None: ...


class StoreTables:
    """Reads and judges the tables of one store. ``judge`` fills the numbers.

    The offsets are read when this is made, before the queues are looked at: in a running broker both grow, and an offset
    is then never beyond its queue.
    """

    def __init__(self, root: str, settings: MessageStoreConfig, numbers: StoreNumbers, *, running: bool) -> None:
        self._numbers = numbers
        self._running = running
        self._findings: list[DoctorFinding] = []
        self._unreadable: set[str] = set()
        self._files = JsonFiles(config_dir(root), RealFileSystem())
        self._offset_file = offset_file(settings, self._files)
        self._delay_file = self._files.file("delayOffset.json", DelayOffsetSerializeWrapper)
        self._found_offsets = self._load(self._offset_file)
        self._found_delays = self._load(self._delay_file)

    def judge(self, queues: Sequence[QueueSummary]) -> Iterator[DoctorFinding]:
        """Yield the findings. ``queues`` were looked at after this was made."""
        numbers = self._numbers
        for queue in queues:
            numbers.queues[queue.topic] += 1
            numbers.messages[queue.topic] += queue.max_offset - queue.min_offset
        ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in queues}
        topic_file = self._files.file("topics.json", TopicConfigSerializeWrapper)
        group_file = self._files.file("subscriptionGroup.json", SubscriptionGroupWrapper)
        topics, groups = self._load(topic_file), self._load(group_file)
        self._load(self._files.file("consumerFilter.json", ConsumerFilterWrapper))
        yield from self._findings
        numbers.topics = 0 if topics is None else len(topics.topic_config_table)
        numbers.groups = 0 if groups is None else len(groups.subscription_group_table)
        if topic_file.path not in self._unreadable:
            yield from self._topics(topics, topic_file.path, ends)
        yield from self._offsets(ends)
        yield from self._delays(ends)
        if topics is not None:
            yield from self._missing(group_file, groups, ends)

    def _load(self, file: _Table[_ContentT]) -> _ContentT | None:
        """Return the content, None without a file, or if it is unreadable: that is a finding."""
        try:
            found = file.load()
        except JsonFileError as error:
            self._unreadable.add(file.path)
            self._findings.append(
                DoctorFinding(WRONG, "tables", str(error), "restore the file: a broker does not start with it")
            )
            return None
        if file.used_backup:
            # Apache's broker replaces a table in two steps, so a running one may be between them.
            level = NOTE if self._running else WRONG
            text = f"{file.path} is damaged or missing: a broker uses the version before it, in {file.path}.bak"
            copy = shlex.join(("cp", f"{file.path}.bak", file.path))
            self._findings.append(DoctorFinding(level, "tables", text, f"restore it, or accept the .bak: {copy}"))
        return found

    def _topics(self, found: TopicConfigSerializeWrapper | None, path: str, ends: _Ends) -> Iterator[DoctorFinding]:
        table = {} if found is None else found.topic_config_table
        unknown = sorted(
            topic for topic in implied_topics(key for key, end in ends.items() if end) if topic not in table
        )
        if not unknown:
            return
        names = ", ".join(unknown[:_NAMED]) + (f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else "")
        if found is None:
            text = f"{path} is missing, but the store has messages of {len(unknown)} topics: {names}"
            yield DoctorFinding(WRONG, "tables", text, "put the directory config back from a backup")
        else:
            text = f"{len(unknown)} topics have queues, but no entry in topics.json: {names}"
            yield DoctorFinding(NOTE, "tables", text, "none, if they were deleted; else create them again")

    def _offsets(self, ends: _Ends) -> Iterator[DoctorFinding]:
        for key, queues in self._offset_table.items():
            topic, _, group = key.rpartition(SEPARATOR)
            self._numbers.offsets += len(queues)
            if not self._numbers.some_group and not topic.startswith(RETRY_PREFIX) and _is_argument(group_fault, group):
                self._numbers.some_group = group
            beyond = [number for number, offset in queues.items() if offset > ends.get((topic, number), 0)]
            if beyond:
                where = ", ".join(
                    f"queue {number}: {queues[number]} of {ends.get((topic, number), 0)}" for number in beyond[:_NAMED]
                )
                text = f"{len(beyond)} offsets in {topic} are beyond the last message: {where}"
                numbers = ", ".join(map(str, beyond[:_NAMED]))
                remedy = f"after the switch, look at queue {numbers}"
                if _is_argument(group_fault, group) and _is_argument(topic_fault, topic):
                    remedy += ": " + shlex.join(("rocketd", "offset", "show", group, "--topic", topic))
                yield DoctorFinding(NOTE, f"group {group}", text, remedy)

    def _delays(self, ends: _Ends) -> Iterator[DoctorFinding]:
        table = {} if self._found_delays is None else self._found_delays.offset_table
        for (topic, number), end in ends.items():
            if topic == SCHEDULE_TOPIC:
                self._numbers.delayed += max(0, end - table.get(number + 1, 0))
        for level, offset in table.items():
            if offset > ends.get((SCHEDULE_TOPIC, level - 1), 0):
                text = f"the offset {offset} of delay level {level} is beyond its last message"
                yield DoctorFinding(NOTE, "tables", text, "none, if the log has lost its end")

    def _missing(
        self, group_file: _Table[SubscriptionGroupWrapper], groups: SubscriptionGroupWrapper | None, ends: _Ends
    ) -> Iterator[DoctorFinding]:
        """Yield the tables that do not exist, although another part of the store needs them."""
        numbers = self._numbers
        named = {key.rpartition(SEPARATOR)[2] for key in self._offset_table}
        delayed = any(end for (topic, _), end in ends.items() if topic == SCHEDULE_TOPIC)
        needed: list[tuple[_Table[object], object, bool, str]] = [
            (self._delay_file, self._found_delays, delayed, "all delayed messages would be delivered again"),
            (
                self._offset_file,
                self._found_offsets,
                bool(numbers.groups or any(ends.values())),
                "groups would lose their place in the queues",
            ),
            (
                group_file,
                groups,
                not all(is_system_group(group) or group in PRESET_GROUPS for group in named),
                "groups would lose their settings",
            ),
        ]
        for file, found, is_needed, loss in needed:
            if found is None and is_needed and file.path not in self._unreadable:
                # A running broker has the table in memory, and writes it soon.
                level = NOTE if self._running else WRONG
                text = f"{file.path} is missing, and so is its .bak: {loss}"
                yield DoctorFinding(level, "tables", text, "put the file back from a backup")

    @property
    def _offset_table(self) -> Mapping[str, Mapping[int, int]]:
        return {} if self._found_offsets is None else self._found_offsets.offset_table


def _is_argument(fault: Callable[[str], str | None], name: str) -> bool:
    """Return whether a printed command may have this name as an argument."""
    return fault(name) is None and not name.startswith("-")
