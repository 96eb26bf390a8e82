"""Which consumers are online, and what their groups subscribe to.

Answers to Apache's ConsumerManager and ConsumerGroupInfo. Unlike there, a client whose heartbeats have stopped is
announced to the others of its group as one that has left.
"""

import threading
from collections.abc import Callable, Sequence

from twisted.logger import Logger

from rocketd.broker.clients import ClientChannelInfo, wanted_texts
from rocketd.common.log_throttle import LogThrottle, ThrottledLog
from rocketd.remoting.bodies import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel, SubscriptionData
from rocketd.remoting.interfaces import IConnection

IdsChangedListener = Callable[[str, Sequence[IConnection]], None]
"""Called with a group and the connections of those now in it, from the thread that saw the change; may not raise."""

GoneListener = Callable[[str], None]
"""Called with a group that nobody is in any more, from the thread that saw it; may not raise, nor ask ConsumerManager."""


class ConsumerGroupInfo:
    """One group that has consumers online. Changed by ConsumerManager only; its look-ups may be called from any thread."""

    __slots__ = ("channels", "consume_from_where", "consume_type", "group", "message_model", "subscriptions")

    def __init__(self, group: str) -> None:
        self.group = group
        self.consume_type: ConsumeType | None = None
        self.message_model: MessageModel | None = None
        self.consume_from_where: ConsumeFromWhere | None = None
        self.channels: dict[IConnection, ClientChannelInfo] = {}
        self.subscriptions: dict[str, SubscriptionData] = {}

    def clients(self) -> list[ClientChannelInfo]:
        """Copy the clients, in the order they came."""
        return list(self.channels.values())

    def client_ids(self) -> list[str]:
        """Name the clients; one that has two connections, because its old one is not known to be dead, is named once."""
        return list(dict.fromkeys(info.client_id for info in self.clients()))

    def find_client(self, client_id: str) -> ClientChannelInfo | None:
        """Return the client of that id; of its connections the latest, as an older one may be dead."""
        return next((info for info in reversed(self.clients()) if info.client_id == client_id), None)

    def find_subscription(self, topic: str) -> SubscriptionData | None:
        """Return what the group wants of a topic."""
        return self.subscriptions.get(topic)


class ConsumerManager:
    """All groups that have consumers online. Methods may be called from any thread.

    ``clock_ms`` tells monotonic milliseconds; ``scan_not_active`` is to be called every 10 s.
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
        """Have a listener told when a group's clients or topics change."""
        self._listeners.append(listener)

    def on_group_gone(self, listener: GoneListener) -> None:
        """Have a listener told when the last client of a group has left."""
        self._gone_listeners.append(listener)

    # ---------------------------------------------------------------- asking

    def find(self, group: str) -> ConsumerGroupInfo | None:
        """Return a group, None when nobody of it is online."""
        return self._groups.get(group)

    def all_groups(self) -> list[ConsumerGroupInfo]:
        """Copy the list of all groups, by name."""
        with self._guard:
            return [self._groups[name] for name in sorted(self._groups)]

    def groups_of_topic(self, topic: str) -> set[str]:
        """Name the groups that subscribe to a topic."""
        with self._guard:
            return {name for name, info in self._groups.items() if topic in info.subscriptions}

    # ---------------------------------------------------------------- coming and going

    def register(self, client: ClientChannelInfo, data: ConsumerData, notify: bool, *, quiet: bool = False) -> bool:
        """Take in what a heartbeat says of one group; returns whether its clients or topics changed.

        ``notify`` is whether the group's others are to be told of a change. With ``quiet``, the log is not told of a client
        that joins, nor of its topics: the caller sums up many groups of one heartbeat.
        """
        with self._guard:
            if client.connection.closed:
                # Its close was, or will be, announced with the lock free: nobody would take the client out again.
                return False
            info = self._groups.get(data.group_name)
            if info is None:
                info = self._groups[data.group_name] = ConsumerGroupInfo(data.group_name)
            joined = self._update_channel(info, client, data, quiet)
            topics_changed = self._update_subscriptions(info, data.subscription_data_set, quiet)
            members = list(info.channels)
        changed = joined or topics_changed
        if changed and notify:
            self._announce(data.group_name, members)
        return changed

    def unregister(self, group: str, connection: IConnection, notify: bool) -> None:
        """Take a client out of a group because it says so. ``notify`` as for ``register``."""
        with self._guard:
            info = self._groups.get(group)
            if info is None:
                return
            self._remove(info, connection, "has left")
            members = list(info.channels)
        if notify:
            self._announce(group, members)

    def connection_closed(self, connection: IConnection) -> None:
        """Take a client out of all its groups because its connection is gone."""
        with self._guard:
            changed = []
            for group in sorted(self._groups_of.get(connection, ())):
                info = self._groups[group]
                self._remove(info, connection, "has closed its connection to")
                changed.append((group, list(info.channels)))
        for group, members in changed:
            self._announce(group, members)

    def scan_not_active(self) -> None:
        """Take out the clients whose heartbeats have stopped for 120 s, and close their connections."""
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
        self, info: ConsumerGroupInfo, client: ClientChannelInfo, data: ConsumerData, quiet: bool
    ) -> bool:
        info.consume_type = data.consume_type
        info.message_model = data.message_model
        info.consume_from_where = data.consume_from_where
        client.wanted = wanted_texts(data.subscription_data_set)
        old = info.channels.get(client.connection)
        if old is not None and old.client_id == client.client_id:
            old.last_update = client.last_update
            old.wanted = client.wanted
            return False
        info.channels[client.connection] = client
        self._groups_of.setdefault(client.connection, set()).add(info.group)
        if old is None and not quiet:
            self._peer_log.info(
                f"joined {info.group}",
                "consumer group {group}: {client} has joined, {type} {model}",
                group=info.group,
                client=str(client),
                type=data.consume_type,
                model=data.message_model,
            )
        elif old is not None:
            self._peer_log.error(
                f"renamed {info.group}",
                "consumer group {group}: {old} now calls itself {client} on the same connection",
                group=info.group,
                old=str(old),
                client=str(client),
            )
        return old is None

    def _update_subscriptions(
        self, info: ConsumerGroupInfo, subscriptions: Sequence[SubscriptionData], quiet: bool
    ) -> bool:
        changed = False
        for subscription in subscriptions:
            old = info.subscriptions.get(subscription.topic)
            if old is None or subscription.sub_version > old.sub_version:
                info.subscriptions[subscription.topic] = subscription
            if old is None:
                changed = True
                if not quiet:
                    self._peer_log.info(
                        f"subscribes {info.group}",
                        "consumer group {group} subscribes to {new}",
                        group=info.group,
                        new=subscription,
                    )
            elif old.sub_string != subscription.sub_string and info.subscriptions[subscription.topic] is subscription:
                self._peer_log.info(
                    f"changes {info.group}",
                    "consumer group {group} now subscribes to {new}, before to {old}",
                    group=info.group,
                    old=old,
                    new=subscription,
                )
        for topic in info.subscriptions.keys() - {subscription.topic for subscription in subscriptions}:
            del info.subscriptions[topic]
            changed = True
            self._peer_log.warn(
                f"drops {info.group}",
                "consumer group {group} no longer subscribes to {topic}",
                group=info.group,
                topic=topic,
            )
        return changed

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
        """Tell the listeners; called without the lock."""
        for listener in self._listeners:
            listener(group, members)
