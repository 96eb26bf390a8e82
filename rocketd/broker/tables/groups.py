"""The consumer groups of this broker: permission to consume, and retries.

They are kept in Apache's file, ``config/subscriptionGroup.json``. A change takes effect in memory at once. The table's
writer stores it together with other waiting changes; only administrators are answered after the write.

Counterpart: `SubscriptionGroupManager` (Apache).
"""

from collections.abc import Callable

from rocketd.broker.base import problems
from rocketd.broker.base.json_file import JsonFile
from rocketd.broker.base.settings import BrokerConfig
from rocketd.broker.tables.change_news import ChangeNews
from rocketd.broker.tables.new_names import NewNameLimit, group_limit
from rocketd.broker.tables.versioned_table import VersionedTable
from rocketd.common import names
from rocketd.common.table_writer import TableWriter, Written
from rocketd.remoting.bodies.tables import DataVersion, SubscriptionGroupConfig, SubscriptionGroupWrapper


class SubscriptionGroupManager(VersionedTable[SubscriptionGroupConfig, SubscriptionGroupWrapper]):
    """All groups by name. Any thread.

    ``now_ms`` returns Unix milliseconds.
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
        presets = {name: SubscriptionGroupConfig(group_name=name) for name in names.PRESET_GROUPS}
        super().__init__(presets, file, ChangeNews("consumer group", "consumer groups"), now_ms, writer)
        self.limit = limit or group_limit(settings)
        """The limit of groups clients may create by using them."""
        self.limit.held = lambda: len(self._table)
        self._settings = settings
        self._listeners: list[Callable[[], None]] = []
        self._light_queues = False

    @staticmethod
    def _pack(entries: dict[str, SubscriptionGroupConfig], version: DataVersion) -> SubscriptionGroupWrapper:
        return SubscriptionGroupWrapper(entries, version)

    @staticmethod
    def _unpack(content: SubscriptionGroupWrapper) -> dict[str, SubscriptionGroupConfig]:
        return content.subscription_group_table

    def on_change(self, listener: Callable[[], None]) -> None:
        """Register a listener for every change.

        It is called at once with the lock held: it must not use this table, block or raise.
        """
        self._listeners.append(listener)

    def serve_light_queues(self) -> None:
        """From now on treat every group with the prefix %LMQ% as known, without an entry in the table."""
        self._light_queues = True

    def find(self, group: str, address: str = "", *, admitted: bool = False) -> SubscriptionGroupConfig | None:
        """Return a group. An unknown one is created if that is allowed; system groups always are.

        ``address`` is the ``host:port`` of the client. Raises RequestError as ``check_new`` does, and if too many groups
        are created, unless the limit has ``admitted`` this one.
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
            self._put(config.group_name, config)
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
            self._put(config.group_name, config)
            self._news.add(config.group_name, f"was {'created' if old is None else 'changed'}: {config}")
        self._saved.changed(written)

    def delete(self, group: str, written: Written | None = None) -> bool:
        """Remove a group; return whether it existed.

        ``written`` is called after the write, with the error if it failed.
        """
        with self._guard:
            found = self._remove(group)
        if found or written is not None:
            self._saved.changed(written)
        return found

    def _count_change(self, name: str | None = None) -> None:
        super()._count_change(name)
        for listener in self._listeners:
            listener()
