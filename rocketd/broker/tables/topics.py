"""The topics of this broker: queues and permissions.

They are kept in Apache's file, ``config/topics.json``. A change takes effect in memory at once. The table's writer
stores it, together with other waiting changes. Administrators are answered after the write, as are senders to a
topic created by their send.

Listeners (registration with the name servers) learn of auto-created topics at once, because clients look for a route
next. They learn of administrators' changes after the write.

Counterpart: `TopicConfigManager` (Apache).
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace
from twisted.logger import Logger

from rocketd.broker.base.json_file import JsonFile
from rocketd.broker.base.settings import BrokerConfig
from rocketd.broker.tables.change_news import ChangeNews
from rocketd.broker.tables.new_name_durability import NewNameDurability
from rocketd.broker.tables.new_names import NewNameLimit, topic_limit
from rocketd.broker.tables.versioned_table import VersionedTable
from rocketd.common import names, permission
from rocketd.common.logs.throttle import LogThrottle, ThrottledLog, event_log
from rocketd.common.sysflag import topic_sys_flag
from rocketd.common.table_writer import TableWriter, Written
from rocketd.remoting.bodies.tables import (
    DataVersion,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketd.remoting.errors import RequestError
from rocketd.remoting.wire.codes import ResponseCode

ChangeListener = Callable[[str], None]
"""Called with one line about the changes, in the thread that made or wrote them. It must not block or raise."""

SCHEDULE_TOPIC_QUEUES = 18
MAX_QUEUES = 65_536
"""The maximum number of queues of a topic.

Statistics, lag and guards visit each of them: 2**31 would stop the broker.
"""


class TopicConfigManager(VersionedTable[TopicConfig, TopicConfigSerializeWrapper]):
    """All topics by name. Any thread.

    ``select`` is one look-up in a dict, without a lock. ``now_ms`` returns Unix milliseconds.
    """

    _log = Logger()

    def __init__(
        self,
        settings: BrokerConfig,
        file: JsonFile[TopicConfigSerializeWrapper],
        now_ms: Callable[[], int],
        writer: TableWriter | None = None,
        limit: NewNameLimit | None = None,
    ) -> None:
        """Without a ``writer``, each change is written in the calling thread."""
        presets = {topic.topic_name: topic for topic in _preset_topics(settings)}
        super().__init__(presets, file, ChangeNews("topic", "topics"), now_ms, writer)
        self._limit = limit or topic_limit(settings)
        self._limit.held = lambda: len(self._table)
        self._settings = settings
        self._peer_log = ThrottledLog(self._log, LogThrottle(kinds=100))
        self._events = event_log(self._log)
        self._listeners: list[ChangeListener] = []
        self._untold = False
        self.new_name_durability = NewNameDurability(self._saved.hurry)
        """Auto-created topics, until they are durable."""
        self.deleting: set[str] = set()
        """Topics whose deletion has begun, until the store has recorded it. Any thread."""
        self._follows = False
        self._system_topics = names.SYSTEM_TOPICS | self._table.keys()
        self.select: Callable[[str], TopicConfig | None] = self._table.get
        """Return the topic of a name, or None."""

    # ---------------------------------------------------------------- file and version

    @staticmethod
    def _pack(entries: dict[str, TopicConfig], version: DataVersion) -> TopicConfigSerializeWrapper:
        return TopicConfigSerializeWrapper(entries, version)

    @staticmethod
    def _unpack(content: TopicConfigSerializeWrapper) -> dict[str, TopicConfig]:
        return content.topic_config_table

    def _write(self, store: Callable[[], None]) -> None:
        """Store the table and announce the changes since the last write, even if the disk is full."""
        with self._guard:
            untold, self._untold = self._untold, False
        news = self._news.take()
        new = self.new_name_durability.unwritten()
        try:
            store()
        except Exception:
            self._tell(news, untold)
            self.new_name_durability.failed(new)
            raise
        self._tell(news, untold)
        self.new_name_durability.written(new)

    def next_version(self) -> None:
        """Increase the version for a change outside the table, for example of brokerPermission.

        It makes registrations carry the change.
        """
        with self._guard:
            self._count_change()

    def _time_of_change(self) -> int:
        return self._version.timestamp if self._follows else self._now_ms()

    # ---------------------------------------------------------------- queries

    def serve_light_queues(self) -> None:
        """From now on treat every topic with the prefix %LMQ% as known.

        It has one queue to read and write, and no entry in the table.
        """
        self.select = self._select_with_light_queues

    def _select_with_light_queues(self, topic: str) -> TopicConfig | None:
        config = self._table.get(topic)
        return _topic(topic, 1) if config is None and topic.startswith(names.LMQ_PREFIX) else config

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Whether a topic is known and has a queue of this number, for writing or reading."""
        config = self.select(topic)
        return config is not None and 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums)

    def all_topics(self) -> list[TopicConfig]:
        """Copy all topics, in any order."""
        with self._guard:
            return list(self._table.values())

    def shown_queue(self, topic: str, queue_id: int) -> int:
        """Return the queue in which to store a message that waited: this one, or another if routes no longer show it.

        An administrator may have taken queues from the topic meanwhile.
        """
        config = self.select(topic)
        if config is None or queue_id < config.read_queue_nums:
            return queue_id
        shown = min(config.read_queue_nums, config.write_queue_nums)
        return queue_id % shown if shown > 0 else queue_id

    @property
    def system_topics(self) -> frozenset[str]:
        """Topics of the broker itself, including those named after the broker and its cluster."""
        return self._system_topics

    def is_system_topic(self, topic: str) -> bool:
        """Whether a topic belongs to the broker itself."""
        return topic in self._system_topics or topic.startswith(names.SYSTEM_TOPIC_PREFIX)

    def check_may_change(self, topic: str) -> None:
        """Raise RequestError if administrators may not create, change or delete a topic of this name."""
        fault = names.topic_fault(topic)
        if fault is None and self.is_system_topic(topic):
            fault = f"The topic[{topic}] is conflict with system topic."
        if fault is not None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, fault)

    def is_order_topic(self, topic: str) -> bool:
        """Whether the name servers hold an order configuration for the topic."""
        config = self.select(topic)
        return config is not None and config.order

    # ---------------------------------------------------------------- automatic creation

    def create_topic_in_send_message(
        self, topic: str, default_topic: str, client_address: str, default_queue_nums: int, topic_sys_flag: int
    ) -> TopicConfig | None:
        """Create the topic of a message from its template and return it; return an existing one.

        It has as many queues as the producer asks for, at most those of the template. Returns None, and logs the
        reason, if the template does not exist or may not be used (TBW102 with autoCreateTopicEnable=false).

        Raises RequestError if too many topics are created.
        """
        with self._guard:
            config = self._table.get(topic)
            if config is not None:
                return config
            template = self._template(default_topic)
            if template is None or not permission.is_inherited(template.perm):
                self._peer_log.warn(
                    f"not created {topic}",
                    "topic {topic}, sent to by {client}, is not created: its template {template} {reason}",
                    topic=topic,
                    client=client_address,
                    template=default_topic,
                    reason="does not exist"
                    if template is None
                    else f"has permission {permission.describe(template.perm)}, without X",
                )
                return None
            self._limit.check(topic, client_address)
            queues = max(0, min(default_queue_nums, template.write_queue_nums))
            config = TopicConfig(
                topic_name=topic,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=template.perm & ~permission.INHERIT,
                topic_sys_flag=topic_sys_flag,
                topic_filter_type=template.topic_filter_type,
            )
            how = f"was created with {queues} queues after {default_topic} for {client_address}"
            self._put_new(config, how)
        self._made(topic, how)
        return config

    def _template(self, default_topic: str) -> TopicConfig | None:
        template = self._table.get(default_topic)
        if (
            template is not None
            and default_topic == names.AUTO_CREATE_TOPIC
            and not self._settings.auto_create_topic_enable
            and permission.is_inherited(template.perm)
        ):
            # An earlier run with automatic creation has left it in the file.
            template = replace(template, perm=permission.READ | permission.WRITE)
            self._table[default_topic] = template
        return template

    def create_topic_in_send_message_back(
        self, topic: str, queue_nums: int, perm: int, topic_sys_flag: int, *, limited_for: str | None = None
    ) -> TopicConfig | None:
        """Return the topic, created with these properties if missing: retry and dead-letter topics.

        Returns None if the name cannot be that of a directory: it contains an unchecked group name. ``limited_for``
        is for names without a known group, the address of the client: raises RequestError if too many topics are
        created.
        """
        config = self.select(topic)
        if config is not None:
            return config
        if not names.is_storable(topic):
            self._peer_log.warn(
                f"impossible {topic}", "topic {topic!r:.200} is not created: no queue can have this name", topic=topic
            )
            return None
        with self._guard:
            config = self._table.get(topic)
            if config is not None:
                return config
            if limited_for is not None:
                self._limit.check(topic, limited_for)
            config = TopicConfig(
                topic_name=topic,
                read_queue_nums=queue_nums,
                write_queue_nums=queue_nums,
                perm=perm,
                topic_sys_flag=topic_sys_flag,
            )
            how = f"was created with {queue_nums} queues"
            self._put_new(config, how)
        self._made(topic, how)
        return config

    def retry_topic(self, group: SubscriptionGroupConfig, *, unit_mode: bool) -> TopicConfig | None:
        """Return a group's retry topic with at least as many queues as the group has retry queues.

        It is created, or gets more queues, if necessary: otherwise retries would go to queues that no route shows. Returns
        None if its name cannot be that of a directory.
        """
        topic = names.retry_topic(group.group_name)
        queues = min(group.retry_queue_nums, MAX_QUEUES)
        sys_flag = topic_sys_flag(unit=False, unit_sub=unit_mode)
        config = self.create_topic_in_send_message_back(topic, queues, permission.READ | permission.WRITE, sys_flag)
        if config is None or queues <= min(config.read_queue_nums, config.write_queue_nums):
            return config
        with self._guard:
            config = self._table.get(topic, config)
            config = replace(
                config,
                read_queue_nums=max(config.read_queue_nums, queues),
                write_queue_nums=max(config.write_queue_nums, queues),
            )
            self._put(config.topic_name, config)
            how = f"has {queues} queues now, as many as its group has retry queues"
            self._news.add(topic, how)
        self._made(topic, how)
        return config

    # ---------------------------------------------------------------- administration

    def update(self, config: TopicConfig, written: Written | None = None) -> None:
        """Create or replace a topic's configuration.

        ``written`` is called after the write, with the error if it failed.
        """
        with self._guard:
            old = self._table.get(config.topic_name)
            self._put(config.topic_name, config)
            self._news.add(config.topic_name, f"was {'created' if old is None else 'changed'}: {config}")
            self._untold = True
        self._saved.changed(written)

    def delete(self, topic: str, written: Written | None = None) -> bool:
        """Remove a topic from the table; return whether it existed. Its messages belong to the store.

        ``written`` is called after the write, with the error if it failed.
        """
        with self._guard:
            found = self._remove(topic)
            self._untold = self._untold or found
        if found or written is not None:
            self._saved.changed(written)
        return found

    def _replace(self, master: TopicConfigSerializeWrapper) -> bool:
        is_replaced = super()._replace(master)
        self._untold = self._untold or is_replaced
        return is_replaced

    def follow_a_master(self) -> None:
        """Keep the time of the master's last change as the table's time, whatever is created here meanwhile."""
        self._follows = True

    def make_implied(self, queues: Mapping[str, int]) -> None:
        """Create topics that have messages, each with the given number of queues."""
        for topic, count in queues.items():
            with self._guard:
                if topic in self._table:
                    continue
                self._put(topic, _topic(topic, count))
            how = f"was created with {count} queues, because the log has messages of it"
            self._news.add(topic, how)
            self._spread(f"topic {topic} {how}")
        if queues:
            self._saved.changed()

    def adopt(self, slave: TopicConfigSerializeWrapper) -> int:
        """Adopt topics of a slave, and announce their number."""
        count = super().adopt(slave)
        if count:
            self._spread(f"{count} topics were copied from a slave")
        return count

    def update_order_topics(self, order_topics: Iterable[str]) -> None:
        """Set the order flag of exactly these topics: those in the KV table returned by a registration.

        Listeners are not called, because they are the ones that register.
        """
        wanted = set(order_topics)
        with self._guard:
            changed = [config for name, config in self._table.items() if config.order != (name in wanted)]
            if not changed:
                return
            for config in changed:
                self._table[config.topic_name] = replace(config, order=not config.order)
            self._count_change()
        for config in changed:
            self._events.info(
                "order", "topic {topic}: order is now {order}", topic=config.topic_name, order=not config.order
            )
        self._saved.changed()

    # ---------------------------------------------------------------- changes

    def on_change(self, listener: ChangeListener) -> None:
        """Register a listener for changes. Administrators' changes in one write are announced in one line."""
        self._listeners.append(listener)

    def _put_new(self, config: TopicConfig, how: str) -> None:
        """Insert an auto-created topic; its senders are answered when it is durable."""
        self.new_name_durability.begin(config.topic_name)
        self._put(config.topic_name, config)
        self._news.add(config.topic_name, how)

    def _made(self, topic: str, how: str) -> None:
        """Announce an auto-created topic, and schedule its write. Called without the lock."""
        self._spread(f"topic {topic} {how}")
        self._saved.changed()

    def _tell(self, news: dict[str, str], untold: bool) -> None:
        """Log changes and announce those not announced yet. Called without the lock."""
        line = self._news.tell(news)
        if untold and line is not None:
            self._spread(line)

    def _spread(self, line: str) -> None:
        for listener in self._listeners:
            listener(line)


def _preset_topics(settings: BrokerConfig) -> list[TopicConfig]:
    """Return the topics of every broker."""
    read_write = permission.READ | permission.WRITE
    cluster, broker = settings.broker_cluster_name, settings.broker_name
    presets = [
        _topic(names.SELF_TEST_TOPIC, 1),
        _topic(names.BENCHMARK_TOPIC, 1024),
        _topic(cluster, 16, permission.INHERIT | (read_write if settings.cluster_topic_enable else 0)),
        _topic(broker, 1, permission.INHERIT | (read_write if settings.broker_topic_enable else 0)),
        _topic(names.OFFSET_MOVED_EVENT, 1),
        _topic(names.SCHEDULE_TOPIC, SCHEDULE_TOPIC_QUEUES),
        _topic(names.reply_topic(cluster), 1),
    ]
    if settings.auto_create_topic_enable:
        queues = settings.default_topic_queue_nums
        presets.append(_topic(names.AUTO_CREATE_TOPIC, queues, permission.INHERIT | read_write))
    if settings.trace_topic_enable:
        presets.append(_topic(settings.msg_trace_topic_name, 1))
    return presets


def _topic(name: str, queues: int, perm: int = permission.READ | permission.WRITE) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
