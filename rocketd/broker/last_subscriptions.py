"""What each group wanted when somebody of it was last online.

No counterpart in Apache, whose broker forgets the subscriptions of a group with its last member. Kept in
``config/lastSubscription.json``, a file of our own, so that the lag of a group that is offline can be told by its tags.
"""

import threading
from collections.abc import Sequence
from typing import Any

from twisted.logger import Logger

from rocketd.broker.consumers import ConsumerGroupInfo
from rocketd.broker.json_file import JsonFile, JsonFileError
from rocketd.common.table_writer import TableWriter
from rocketd.remoting.bodies import Body
from rocketd.remoting.interfaces import IConnection

NOTE_SECONDS = 10.0
"""How often ``note`` is to be called."""


class Wanted(Body):
    """What a group wants of a topic."""

    expression_type: str
    sub_string: str


class LastSubscriptionWrapper(Body):
    """The file: what is wanted, by group and topic."""

    subscription_table: dict[str, dict[str, Wanted]] = {}


class LastSubscriptions:
    """Subscriptions by group and topic. Methods may be called from any thread.

    The file is no more than a help: what cannot be read or written is logged.
    """

    _log = Logger()

    def __init__(self, broker: Any, file: JsonFile[LastSubscriptionWrapper], writer: TableWriter | None = None) -> None:
        """``broker`` is an IBroker, of which the groups and the consumers are used. Without a ``writer``, ``note`` writes in
        the thread that calls it.
        """
        self._broker = broker
        self._file = file
        self._guard = threading.Lock()
        self._saved = (writer or TableWriter()).table(file.path, self._write)
        self._changes = 0
        # Tables of topics are replaced, never changed.
        self._groups: dict[str, dict[str, Wanted]] = {}
        broker.consumers.on_ids_changed(self._ids_changed)

    def load(self) -> None:
        """Read the file."""
        try:
            stored = self._file.load()
        except JsonFileError as error:
            self._log.warn("{error}; until they come again, the lag of groups is told without their tags", error=error)
            return
        if stored is not None:
            with self._guard:
                self._groups = dict(stored.subscription_table)

    def note(self) -> None:
        """Look who is online and wants what, forget the groups that were deleted, and write the file after a change."""
        online = {info.group: _wanted(info) for info in self._broker.consumers.all_groups()}
        known = self._broker.groups.snapshot().subscription_group_table
        with self._guard:
            kept = {group: wanted for group, wanted in self._groups.items() if group in known} | online
            if kept != self._groups:
                self._groups = kept
                self._changes += 1
        self._saved.changed()

    def _write(self) -> None:
        self._file.save(self._numbered_snapshot)

    def _ids_changed(self, group: str, members: Sequence[IConnection]) -> None:
        """Look at a group as soon as somebody comes, who may be gone before the next ``note``."""
        info = self._broker.consumers.find(group)
        if info is not None:
            wanted = _wanted(info)
            with self._guard:
                if self._groups.get(group) != wanted:
                    self._groups = self._groups | {group: wanted}
                    self._changes += 1

    def find(self, group: str, topic: str) -> Wanted | None:
        """Return what a group wanted of a topic when it was last seen."""
        return self._groups.get(group, {}).get(topic)

    def topics_of(self, group: str) -> set[str]:
        """Name the topics that a group wanted when it was last seen."""
        return set(self._groups.get(group, ()))

    def _numbered_snapshot(self) -> tuple[int, LastSubscriptionWrapper]:
        with self._guard:
            return self._changes, LastSubscriptionWrapper(dict(self._groups))


def _wanted(info: ConsumerGroupInfo) -> dict[str, Wanted]:
    return {
        topic: Wanted(subscription.expression_type, subscription.sub_string)
        for topic, subscription in list(info.subscriptions.items())
    }
