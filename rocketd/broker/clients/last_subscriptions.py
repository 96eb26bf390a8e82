"""The subscriptions of each group when a member was last online.

They are kept in ``config/lastSubscription.json``, a file of rocketd. With them, the lag of an offline group can be
measured by its tags.
"""

import threading
from collections.abc import Sequence

from twisted.logger import Logger

from rocketd.broker.base.json_file import JsonFile, JsonFileError
from rocketd.broker.clients.consumers import ConsumerGroupInfo, ConsumerManager
from rocketd.broker.tables.groups import SubscriptionGroupManager
from rocketd.common.table_writer import TableWriter
from rocketd.remoting.bodies.tables import Body
from rocketd.remoting.interfaces import IConnection

NOTE_SECONDS = 10.0
"""The interval at which ``note`` is to be called. A clean stop calls it as well, before it closes connections."""


class GroupSubscription(Body):
    """A group's subscription to a topic."""

    expression_type: str
    sub_string: str


class LastSubscriptionWrapper(Body):
    """The content of the file: subscriptions by group and topic."""

    subscription_table: dict[str, dict[str, GroupSubscription]] = {}


class LastSubscriptions:
    """Subscriptions by group and topic. Any thread.

    The file is only an aid: failures to read or write it are logged.
    """

    _log = Logger()

    def __init__(
        self,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        file: JsonFile[LastSubscriptionWrapper],
        writer: TableWriter | None = None,
    ) -> None:
        """Without a ``writer``, ``note`` writes in the calling thread."""
        self._known_groups = groups
        self._consumers = consumers
        self._file = file
        self._guard = threading.Lock()
        self._saved = (writer or TableWriter()).table(file.path, self.persist)
        self._changes = 0
        # Tables of topics are replaced, never changed.
        self._groups: dict[str, dict[str, GroupSubscription]] = {}
        consumers.on_ids_changed(self._ids_changed)

    def load(self) -> None:
        """Read the file."""
        try:
            stored = self._file.load()
        except JsonFileError as error:
            self._log.warn(
                "{error}; the lag of each group is computed without its tags until the group is online again",
                error=error,
            )
            return
        if stored is not None:
            with self._guard:
                self._groups = dict(stored.subscription_table)

    def note(self) -> None:
        """Record the subscriptions of online groups, remove deleted groups, and write the file if anything changed."""
        online = {info.group: _wanted(info) for info in self._consumers.all_groups()}
        known = self._known_groups.snapshot().subscription_group_table
        with self._guard:
            kept = {group: wanted for group, wanted in self._groups.items() if group in known} | online
            if kept != self._groups:
                self._groups = kept
                self._changes += 1
        self._saved.changed()

    def persist(self) -> None:
        """Write the file now if anything has changed. Raises OSError."""
        self._file.save(self._numbered_snapshot)

    def _ids_changed(self, group: str, members: Sequence[IConnection]) -> None:
        """Record a group as soon as a member joins: it may be gone before the next ``note``."""
        info = self._consumers.find(group)
        if info is not None:
            wanted = _wanted(info)
            with self._guard:
                if self._groups.get(group) != wanted:
                    # Changed in place: a copy per new group would make many new groups quadratic.
                    self._groups[group] = wanted
                    self._changes += 1

    def find(self, group: str, topic: str) -> GroupSubscription | None:
        """Return a group's last known subscription to a topic."""
        return self._groups.get(group, {}).get(topic)

    def topics_of(self, group: str) -> set[str]:
        """Return the topics of a group's last known subscriptions."""
        return set(self._groups.get(group, ()))

    def _numbered_snapshot(self) -> tuple[int, LastSubscriptionWrapper]:
        with self._guard:
            return self._changes, LastSubscriptionWrapper(dict(self._groups))


def _wanted(info: ConsumerGroupInfo) -> dict[str, GroupSubscription]:
    return {
        topic: GroupSubscription(subscription.expression_type, subscription.sub_string)
        for topic, subscription in list(info.subscriptions.items())
    }
