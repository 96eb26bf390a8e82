"""The consumer groups of this broker: permission to consume, and retries.

They are kept in Apache's file, ``config/subscriptionGroup.json``. A change takes effect in memory at once. The table's
writer stores it together with others of the same moment; only administrators are answered after the write.

Counterpart: `SubscriptionGroupManager` (Apache).
"""

import threading
from collections.abc import Callable
from functools import partial

from rocketd.broker.base import problems
from rocketd.broker.base.json_file import JsonFile
from rocketd.broker.base.settings import BrokerConfig
from rocketd.broker.tables.change_history import ChangeHistory
from rocketd.broker.tables.change_news import ChangeNews, NamesListener
from rocketd.broker.tables.new_names import NewNameLimit, group_limit
from rocketd.common import names
from rocketd.common.table_writer import TableWriter, Written
from rocketd.remoting.bodies.tables import DataVersion, SubscriptionGroupConfig, SubscriptionGroupWrapper


class SubscriptionGroupManager:
    """All groups by name. Any thread.

    A SubscriptionGroupConfig in the table is never changed, only replaced. ``now_ms`` returns Unix milliseconds.
    """

    def __init__(
        self,
        settings: BrokerConfig,
        file: JsonFile[SubscriptionGroupWrapper],
        now_ms: Callable[[], int],
        writer: TableWriter | None = None,
        limit: NewNameLimit | None = None,
    ) -> None:
        """Without a ``writer``, each change is written in the calling thread."""
        self.limit = limit or group_limit(settings)
        """The limit of groups clients may create by using them."""
        self._settings = settings
        self._file = file
        file.keep_texts()
        self._now_ms = now_ms
        self._guard = threading.Lock()
        self._history = ChangeHistory()
        self._listeners: list[Callable[[], None]] = []
        self._light_queues = False
        self._news = ChangeNews("consumer group", "consumer groups")
        self._saved = (writer or TableWriter()).table(
            file.path, partial(self._write, self.persist), partial(self._write, self._append)
        )
        self._table = {name: SubscriptionGroupConfig(group_name=name) for name in names.PRESET_GROUPS}
        self.limit.held = lambda: len(self._table)
        self._version = DataVersion(counter=0, timestamp=now_ms())

    def load(self) -> None:
        """Read the file over the preset groups; its entries take precedence. Raises JsonFileError."""
        stored = self._file.load()
        if stored is not None:
            with self._guard:
                self._table.update(stored.subscription_group_table)
                self._version = stored.data_version
        if self._file.has_journal:
            self._saved.changed()

    @property
    def data_version(self) -> DataVersion:
        """The version of the table; a new object for each change."""
        return self._version

    def on_change(self, listener: Callable[[], None]) -> None:
        """Register a listener for every change.

        It is called at once with the lock held: it must not use this table, block or raise.
        """
        self._listeners.append(listener)

    def persist(self) -> None:
        """Write the file now. Raises OSError."""
        self._file.save(self._numbered_snapshot)

    def _append(self) -> None:
        self._file.append(self._changes_since, self._numbered_snapshot)

    def _write(self, store: Callable[[], None]) -> None:
        """Store the table and announce the changes since the last write, even if the disk is full."""
        news = self._news.take()
        try:
            store()
        finally:
            self._news.tell(news)

    def on_names(self, listener: NamesListener) -> None:
        """Register a listener for the names of groups created, changed or deleted.

        It is called after each write of the table.
        """
        self._news.listeners.append(listener)

    def snapshot(self) -> SubscriptionGroupWrapper:
        """Copy the table with its version, as in the answer to code 201."""
        return self._numbered_snapshot()[1]

    def _numbered_snapshot(self) -> tuple[int, SubscriptionGroupWrapper]:
        with self._guard:
            return self._history.number, SubscriptionGroupWrapper(
                subscription_group_table=dict(self._table), data_version=self._version
            )

    def _changes_since(self, number: int) -> tuple[int, SubscriptionGroupWrapper] | None:
        with self._guard:
            names = self._history.since(number)
            if names is None:
                return None
            table = {name: self._table[name] for name in names}
            return self._history.number, SubscriptionGroupWrapper(table, self._version)

    def serve_light_queues(self) -> None:
        """From now on treat every group with the prefix %LMQ% as known, without an entry in the table."""
        self._light_queues = True

    def find(self, group: str, address: str = "", *, admitted: bool = False) -> SubscriptionGroupConfig | None:
        """Return a group. An unknown one is created if that is allowed; system groups always are.

        ``address`` is the ``host:port`` of the client. Raises RequestError as ``check_new``
        does, and if too many groups are created, unless the limit has ``admitted`` this one.
        """
        config = self._table.get(group)
        if config is not None:
            return config
        if self._light_queues and group.startswith(names.LMQ_PREFIX):
            return SubscriptionGroupConfig(group_name=group)
        if not self._settings.auto_create_subscription_group and not names.is_system_group(group):
            return None
        self.check_new(group)
        if not admitted and not names.is_system_group(group):
            self.limit.check(group, address)
        with self._guard:
            config = self._table.get(group)
            if config is not None:
                return config
            config = SubscriptionGroupConfig(group_name=group)
            self._put(config)
            self._news.add(group, "was created on first use")
        self._saved.changed()
        return config

    def check_new(self, group: str) -> None:
        """Raise RequestError if an unknown group has a name with which its messages could not be retried."""
        topic = names.retry_topic(group)
        if not names.is_storable(topic) and not (self._light_queues and group.startswith(names.LMQ_PREFIX)):
            raise problems.GROUP_ILLEGAL.error(
                group=f"{group!r:.200}", limit=names.TOPIC_MAX_LENGTH, count=len(topic.encode("utf-8", "replace"))
            )

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """Return a group; None if it is unknown. Never creates one."""
        return self._table.get(group)

    def update(self, config: SubscriptionGroupConfig, written: Written | None = None) -> None:
        """Create or replace a group's configuration.

        ``written`` is called after the write, with the error if it failed.
        """
        with self._guard:
            old = self._table.get(config.group_name)
            self._put(config)
            self._news.add(config.group_name, f"was {'created' if old is None else 'changed'}: {config}")
        self._saved.changed(written)

    def delete(self, group: str, written: Written | None = None) -> bool:
        """Remove a group; return whether it existed.

        ``written`` is called after the write, with the error if it failed.
        """
        with self._guard:
            found = self._table.pop(group, None) is not None
            if found:
                self._count_change()
                self._news.add(group, "was deleted")
        if found or written is not None:
            self._saved.changed(written)
        return found

    def replace_all(self, master: SubscriptionGroupWrapper) -> None:
        """Replace the table with the master's copy if its version differs."""
        with self._guard:
            if master.data_version == self._version:
                return
            # Changed in place and never empty: ``find`` looks first without the lock.
            self._table.update(master.subscription_group_table)
            for group in self._table.keys() - master.subscription_group_table.keys():
                del self._table[group]
            self._history.add()
            self._version = master.data_version
            self._news.add("", "the consumer groups of the master were copied")
        self._saved.changed()

    def adopt(self, slave: SubscriptionGroupWrapper) -> int:
        """Add the groups a slave has and this master lacks; return their number.

        The slave's table must have changed later than this one. If this one was never changed, it adopts every
        differing entry. Raises OSError if the file cannot be written.
        """
        with self._guard:
            is_new = not self._version.counter
            if not is_new and slave.data_version.timestamp <= self._version.timestamp:
                return 0
            taken = {
                name: config
                for name, config in slave.subscription_group_table.items()
                if (name not in self._table or is_new) and self._table.get(name) != config
            }
            if not taken:
                return 0
            self._table.update(taken)
            self._count_change()
        self.persist()
        return len(taken)

    def _put(self, config: SubscriptionGroupConfig) -> None:
        self._table[config.group_name] = config
        self._count_change(config.group_name)

    def _count_change(self, name: str | None = None) -> None:
        """Count a change: of the entry with this name only, or without a name of anything."""
        self._history.add(name)
        self._version = self._version.next_version(self._now_ms())
        for listener in self._listeners:
            listener()
