"""The online consumers, and the subscriptions of their groups.

Unlike in Apache's broker, a client whose heartbeats have stopped is announced to its group like one that has left.

Counterpart: `ConsumerManager`, `ConsumerGroupInfo` (Apache).
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from twisted.logger import Logger, LogLevel

from rocketd.broker.clients.client import ClientChannelInfo, wanted_texts
from rocketd.common.logs.throttle import LogThrottle, ThrottledLog
from rocketd.remoting.bodies.tables import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel, SubscriptionData
from rocketd.remoting.interfaces import IConnection

Lines = list[tuple[LogLevel, str, str, Mapping[str, object]]]
"""Log lines to write after the lock is released: level, kind, text and values."""

IdsChangedListener = Callable[[str, Sequence[IConnection]], None]
"""Called with a group and the connections of its members, in the thread that saw the change. It must not raise."""

GoneListener = Callable[[str], None]
"""Called with a group without members, in the thread that saw it. It must not raise or use ConsumerManager."""


class ConsumerGroupInfo:
    """An online consumer group. Only ConsumerManager changes it; look-ups may be called from any thread."""

    __slots__ = ("channels", "consume_from_where", "consume_type", "group", "message_model", "subscriptions")

    def __init__(self, group: str) -> None:
        self.group = group
        self.consume_type: ConsumeType | None = None
        self.message_model: MessageModel | None = None
        self.consume_from_where: ConsumeFromWhere | None = None
        self.channels: dict[IConnection, ClientChannelInfo] = {}
        self.subscriptions: dict[str, SubscriptionData] = {}

    def clients(self) -> list[ClientChannelInfo]:
        """Copy the clients, in the order of arrival."""
        return list(self.channels.values())

    def client_ids(self) -> list[str]:
        """Return the client ids. A client with two connections, the old one not yet known to be dead, appears once."""
        return list(dict.fromkeys(info.client_id for info in self.clients()))

    def find_client(self, client_id: str) -> ClientChannelInfo | None:
        """Return the client with an id, on its latest open connection: an older one may be dead."""
        return next(
            (info for info in reversed(self.clients()) if info.client_id == client_id and not info.connection.closed),
            None,
        )

    def find_subscription(self, topic: str) -> SubscriptionData | None:
        """Return the group's subscription to a topic."""
        return self.subscriptions.get(topic)


class ConsumerManager:
    """All online consumer groups. Any thread.

    ``clock_ms`` returns monotonic milliseconds. Call ``scan_not_active`` every 10 s.
    """

    _log = Logger()

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._peer_log = ThrottledLog(self._log, LogThrottle(kinds=100))
        self._guard = threading.Lock()
        self._groups: dict[str, ConsumerGroupInfo] = {}
        self._groups_of: dict[IConnection, set[str]] = {}
        self._listeners: list[IdsChangedListener] = []
        self._gone_listeners: list[GoneListener] = []

    def on_ids_changed(self, listener: IdsChangedListener) -> None:
        """Register a listener for changes of a group's clients or topics."""
        self._listeners.append(listener)

    def on_group_gone(self, listener: GoneListener) -> None:
        """Register a listener for groups whose last client has left."""
        self._gone_listeners.append(listener)

    # ---------------------------------------------------------------- queries

    def find(self, group: str) -> ConsumerGroupInfo | None:
        """Return a group; None if it is offline."""
        return self._groups.get(group)

    def all_groups(self) -> list[ConsumerGroupInfo]:
        """Copy the list of all groups, sorted by name."""
        with self._guard:
            return [self._groups[name] for name in sorted(self._groups)]

    def count_further(self, connection: IConnection, groups: Collection[str]) -> tuple[int, int]:
        """Return the number of a connection's groups not in ``groups``, and the number of its subscriptions in them."""
        with self._guard:
            further = self._groups_of.get(connection, set()).difference(groups)
            return len(further), sum([len(self._groups[group].channels[connection].wanted) for group in further])

    def groups_of_topic(self, topic: str) -> set[str]:
        """Return the names of the groups subscribed to a topic."""
        with self._guard:
            return {name for name, info in self._groups.items() if topic in info.subscriptions}

    # ---------------------------------------------------------------- registration

    def register(self, client: ClientChannelInfo, data: ConsumerData, notify: bool, *, quiet: bool = False) -> bool:
        """Record one group of a heartbeat; return whether its clients or topics changed.

        ``notify`` is whether to notify the group's other members of a change. With ``quiet``, a joining client and its
        topics are not logged: the caller summarizes many groups of one heartbeat.
        """
        client.wanted = wanted_texts(data.subscription_data_set)
        lines: Lines = []
        with self._guard:
            if client.connection.closed:
                # Its close was, or will be, announced without the lock: the client would never be removed.
                return False
            info = self._groups.get(data.group_name)
            if info is None:
                info = self._groups[data.group_name] = ConsumerGroupInfo(data.group_name)
            joined = self._update_channel(info, client, data, quiet, lines)
            topics_changed = self._update_subscriptions(info, data.subscription_data_set, quiet, lines)
            members = list(info.channels)
        for level, kind, text, values in lines:
            self._peer_log.emit(level, kind, text, **values)
        changed = joined or topics_changed
        if changed and notify:
            self._announce(data.group_name, members)
        return changed

    def unregister(self, group: str, connection: IConnection, notify: bool) -> None:
        """Remove a client from a group at its request. ``notify`` is as for ``register``."""
        with self._guard:
            info = self._groups.get(group)
            if info is None:
                return
            self._remove(info, connection, "has left")
            members = list(info.channels)
        if notify:
            self._announce(group, members)

    def connection_closed(self, connection: IConnection) -> None:
        """Remove the client of a closed connection from all its groups, one by one: others need the lock meanwhile."""
        with self._guard:
            groups = sorted(self._groups_of.get(connection, ()))
        for group in groups:
            with self._guard:
                info = self._groups.get(group)
                if info is None:
                    continue
                self._remove(info, connection, "has closed its connection to")
                members = list(info.channels)
            self._announce(group, members)

    def scan_not_active(self) -> None:
        """Remove clients without a heartbeat for 120 s, and close their connections."""
        self._peer_log.flush()
        now = self._clock_ms()
        changed: dict[str, ConsumerGroupInfo] = {}
        expired = []
        with self._guard:
            for info in list(self._groups.values()):
                for client in info.clients():
                    if client.is_expired(now):
                        self._remove(info, client.connection, "has sent no heartbeat for 120 s to")
                        changed[info.group] = info
                        expired.append(client.connection)
            members = {group: list(info.channels) for group, info in changed.items()}
        for connection in dict.fromkeys(expired):
            connection.close()
        for group, remaining in members.items():
            self._announce(group, remaining)

    # ---------------------------------------------------------------- within, with the lock held

    def _update_channel(
        self, info: ConsumerGroupInfo, client: ClientChannelInfo, data: ConsumerData, quiet: bool, lines: Lines
    ) -> bool:
        info.consume_type = data.consume_type
        info.message_model = data.message_model
        info.consume_from_where = data.consume_from_where
        old = info.channels.get(client.connection)
        if old is not None and old.client_id == client.client_id:
            old.last_update = client.last_update
            old.wanted = client.wanted
            return False
        info.channels[client.connection] = client
        self._groups_of.setdefault(client.connection, set()).add(info.group)
        if old is None and not quiet:
            text = "consumer group {group}: {client} has joined, {type} {model}"
            values = {"client": str(client), "type": data.consume_type, "model": data.message_model}
            lines.append((LogLevel.info, f"joined {info.group}", text, {"group": info.group, **values}))
        elif old is not None:
            text = "consumer group {group}: {old} now calls itself {client} on the same connection"
            named = {"group": info.group, "old": str(old), "client": str(client)}
            lines.append((LogLevel.error, f"renamed {info.group}", text, named))
        return old is None

    def _update_subscriptions(
        self, info: ConsumerGroupInfo, subscriptions: Sequence[SubscriptionData], quiet: bool, lines: Lines
    ) -> bool:
        group = info.group
        added = changed = 0
        for subscription in subscriptions:
            old = info.subscriptions.get(subscription.topic)
            if old is None or subscription.sub_version > old.sub_version:
                info.subscriptions[subscription.topic] = subscription
            if old is None:
                added += 1
                if added == 1 and not quiet:
                    text = "consumer group {group} subscribes to {new}"
                    lines.append((LogLevel.info, f"subscribes {group}", text, {"group": group, "new": subscription}))
            elif old.sub_string != subscription.sub_string and info.subscriptions[subscription.topic] is subscription:
                changed += 1
                if changed == 1:
                    text = "consumer group {group} now subscribes to {new}, before to {old}"
                    both = {"group": group, "old": old, "new": subscription}
                    lines.append((LogLevel.info, f"changes {group}", text, both))
        dropped = info.subscriptions.keys() - {subscription.topic for subscription in subscriptions}
        for topic in dropped:
            del info.subscriptions[topic]
        if dropped:
            text = "consumer group {group} no longer subscribes to {topic}"
            lines.append((LogLevel.warn, f"drops {group}", text, {"group": group, "topic": min(dropped)}))
        more = (added - 1 if not quiet else 0, changed - 1, len(dropped) - 1)
        for what, count in zip(("subscribes", "changes", "drops"), more, strict=True):
            if count > 0:
                text = "consumer group {group} {what} {count} more topics"
                lines.append(
                    (LogLevel.info, f"{what} more {group}", text, {"group": group, "what": what, "count": count})
                )
        return bool(added or dropped)

    def _remove(self, info: ConsumerGroupInfo, connection: IConnection, how: str) -> None:
        client = info.channels.pop(connection, None)
        if client is not None:
            groups = self._groups_of[connection]
            groups.discard(info.group)
            if not groups:
                del self._groups_of[connection]
            self._peer_log.info(
                f"left {info.group}",
                "{client} {how} consumer group {group}, {left} left",
                client=str(client),
                how=how,
                group=info.group,
                left=len(info.channels),
            )
        if not info.channels and self._groups.pop(info.group, None) is not None:
            for listener in self._gone_listeners:
                listener(info.group)

    def _announce(self, group: str, members: Sequence[IConnection]) -> None:
        """Call the listeners; called without the lock."""
        for listener in self._listeners:
            listener(group, members)
