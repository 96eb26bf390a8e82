"""Finds problems within consumer groups.

- The subscriptions of members differ.
- Two clients use one client id.
- Queues are not read by any member.
- A new group wants only new messages, but was started at the first one.

In Apache's broker each of them loses or doubles messages silently. The facts from heartbeats, pulls and commits are
compared every few seconds, and at a request of an administrator. Each group with problems is logged once a minute, with
its clients. A difference younger than ``groupGuardGraceTime`` is ignored: a rolling deployment causes some.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from twisted.logger import Logger

from rocketd.broker.clients.client import ClientChannelInfo
from rocketd.broker.clients.consumers import ConsumerGroupInfo
from rocketd.broker.clients.parts import GroupParts
from rocketd.common.logs.throttle import LogThrottle
from rocketd.common.names import RETRY_PREFIX
from rocketd.common.permission import is_readable
from rocketd.remoting.bodies.groups import GroupProblem, GroupProblemKind, GroupProblems
from rocketd.remoting.bodies.tables import ConsumeFromWhere, ConsumeType

TOLD_MS = 600_000
"""The minimum time a wrong beginning is reported: the group may read all old messages within seconds."""
_NAMED = 5
"""The maximum number of clients named in a text."""

_Key = tuple[str, GroupProblemKind, str]


BEGINNINGS_LIMIT = 10_000
"""The number of groups whose beginnings are remembered: clients may ask for the offsets of invented groups."""


class _Beginning(NamedTuple):
    """``end`` is the queue's end when a group was first told to begin at 0, ``at`` the time in ms."""

    end: int
    at: int


class GroupGuard:
    """Checks the online groups. Any thread, but ``check`` and ``problems`` are slow for hot paths."""

    _log = Logger()

    def __init__(self, broker: GroupParts) -> None:
        """The tables are read only on demand."""
        self._broker = broker
        self._settings = broker.settings.broker
        self._used: dict[tuple[str, str, int], int] = {}
        self._begun: dict[str, dict[tuple[str, int], _Beginning]] = {}
        self._guard = threading.Lock()
        self._since: dict[_Key, int] = {}
        self._counted: set[_Key] = set()
        self._logged: set[str] = set()
        self._throttle = LogThrottle(lambda: broker.clock_ms() / 1000)
        self.counts = dict.fromkeys(GroupProblemKind, 0)
        """The number of problems of each kind since the start, including past ones."""

    # ---------------------------------------------------------------- events

    def queue_used(self, group: str, topic: str, queue_id: int) -> None:
        """Record that a member of a group read from a queue, or committed an offset of it."""
        self._used[group, topic, queue_id] = self._broker.clock_ms()

    def begun_at_first(self, group: str, topic: str, queue_id: int) -> None:
        """Record that a group without an offset in a queue was told to begin at 0.

        The broker says so while all messages of the queue are in memory.
        """
        if topic.startswith(RETRY_PREFIX) or self._knows(group, topic):
            return
        if group not in self._begun and len(self._begun) >= BEGINNINGS_LIMIT:
            return
        # An empty queue counts too: messages sent while the group is online do not surprise members that join later.
        # The group's wish is checked later, because its heartbeat may come after its question.
        beginning = _Beginning(self._broker.store.get_max_offset(topic, queue_id), self._broker.clock_ms())
        self._begun.setdefault(group, {}).setdefault((topic, queue_id), beginning)

    # ---------------------------------------------------------------- problems

    def check(self) -> None:
        """Check all groups and log their problems. Call it every few seconds."""
        now = self._broker.clock_ms()
        problems = self.problems()
        self._forget_groups_offline()
        self._forget_beginnings(now)
        by_group: dict[str, list[GroupProblem]] = {}
        for problem in problems:
            by_group.setdefault(problem.group, []).append(problem)
        for group in self._logged - by_group.keys():
            self._throttle.clear(group)
        self._logged = set(by_group)
        for group, found in by_group.items():
            suffix = self._throttle.admit(group)
            if suffix is not None:
                self._log.warn(
                    "consumer group {group}: {problems}{suffix}",
                    group=group,
                    problems="; ".join(problem.text for problem in found),
                    suffix=suffix,
                )

    def problems(self, group: str | None = None) -> list[GroupProblem]:
        """Return the problems that have lasted for the grace time, in one group or in all."""
        now = self._broker.clock_ms()
        consumers = self._broker.consumers
        infos = consumers.all_groups() if group is None else [consumers.find(group)]
        found = [problem for info in infos if info is not None for problem in self._problems_of_group(info, now)]
        with self._guard:
            return self._lasting_problems(found, group, now)

    def _lasting_problems(self, found: list[GroupProblem], group: str | None, now: int) -> list[GroupProblem]:
        """Return the problems that have lasted, and count the new ones; other problems of these groups are over."""
        by_key = {
            (problem.group, problem.kind, problem.topic or ",".join(problem.clients)): problem for problem in found
        }
        for key in [key for key in self._since if key not in by_key and group in (None, key[0])]:
            del self._since[key]
            self._counted.discard(key)
        lasting = []
        wall_ms = self._broker.now_ms() - self._broker.clock_ms()
        for key, problem in by_key.items():
            since = self._since.setdefault(key, now)
            problem.since = since + wall_ms
            if now - since < self._grace_of(problem):
                continue
            lasting.append(problem)
            if key not in self._counted:
                self._counted.add(key)
                self.counts[problem.kind] += 1
        return lasting

    def answer(self, group: str | None) -> GroupProblems:
        """Return the answer to an administrator about one group or all."""
        return GroupProblems(self.problems(group), {str(kind): count for kind, count in self.counts.items()})

    def _grace_of(self, problem: GroupProblem) -> int:
        """Return the grace time of a problem in ms.

        Unread queues are found only after it anyway. Duplicate ids differ from a reconnected client: both have sent
        heartbeats.
        """
        if problem.kind is GroupProblemKind.DIFFERENT_SUBSCRIPTIONS:
            return int(self._settings.group_guard_grace_time)
        return 0

    def _problems_of_group(self, info: ConsumerGroupInfo, now: int) -> Iterator[GroupProblem]:
        clients = info.clients()
        yield from _different_subscriptions(info.group, clients)
        yield from _duplicate_ids(info.group, clients)
        yield from self._unread_queues(info, clients, now)
        yield from self._first_instead_of_last(info, clients, now)

    # ---------------------------------------------------------------- unread queues

    def _unread_queues(
        self, info: ConsumerGroupInfo, clients: Sequence[ClientChannelInfo], now: int
    ) -> Iterator[GroupProblem]:
        """Compare readable queues with those read. Slaves are skipped, and groups that pull on their own schedule."""
        broker, grace = self._broker, self._settings.group_guard_grace_time
        config = broker.groups.get(info.group)
        if (
            broker.settings.store.broker_role == "SLAVE"
            or info.consume_type is not ConsumeType.CONSUME_PASSIVELY
            or not is_readable(self._settings.broker_permission)
            or not clients
            or now - min(client.since for client in clients) < grace
            or (config is not None and not config.consume_enable)
        ):
            return
        for name in sorted(info.subscriptions):
            topic = broker.topics.select(name)
            if topic is None or not is_readable(topic.perm):
                continue
            unread = [
                queue_id
                for queue_id in range(topic.read_queue_nums)
                if now - self._used.get((info.group, name, queue_id), -grace) >= grace
            ]
            waiting = sum(self._waiting(info.group, name, queue_id) for queue_id in unread)
            # Some clients read their retry topic only if it has messages.
            if waiting or (unread and not name.startswith(RETRY_PREFIX)):
                yield GroupProblem(
                    info.group,
                    GroupProblemKind.UNREAD_QUEUES,
                    f"queue {', '.join(map(str, unread))} of {name} has no reader, {waiting} messages wait there; "
                    f"members are {_names(clients)}",
                    topic=name,
                    clients=[str(client) for client in clients],
                    queues=unread,
                    waiting=waiting,
                )

    def _waiting(self, group: str, topic: str, queue_id: int, end: int | None = None) -> int:
        """Return the number of messages a group has left in a queue, up to ``end`` if given."""
        store = self._broker.store
        first = max(self._broker.offsets.query(group, topic, queue_id), store.get_min_offset(topic, queue_id), 0)
        last = store.get_max_offset(topic, queue_id)
        return int(max(0, (last if end is None else min(end, last)) - first))

    def _forget_groups_offline(self) -> None:
        for key in list(self._used):
            if self._broker.consumers.find(key[0]) is None:
                self._used.pop(key, None)

    # ---------------------------------------------------------------- groups that began at the first message

    def _knows(self, group: str, topic: str) -> bool:
        """Whether a group has an offset in any queue of a topic. Then another queue is new, not the group."""
        config = self._broker.topics.select(topic)
        queues = range(0 if config is None else config.read_queue_nums)
        return any(self._broker.offsets.query(group, topic, queue_id) >= 0 for queue_id in queues)

    def _first_instead_of_last(
        self, info: ConsumerGroupInfo, clients: Sequence[ClientChannelInfo], now: int
    ) -> Iterator[GroupProblem]:
        """Report a wrong beginning for ``TOLD_MS``, and longer while some of the old messages are unread."""
        # Outdated names are not compared: C++ peers send ordinals, and that of their first offset is one of these names
        # here.
        if info.consume_from_where is not ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET:
            return
        by_topic: dict[str, list[tuple[int, int, int]]] = {}
        for (topic, queue_id), begun in sorted(self._begun.get(info.group, {}).copy().items()):
            left = self._waiting(info.group, topic, queue_id, begun.end)
            if begun.end > 0 and topic in info.subscriptions and (left or now - begun.at < TOLD_MS):
                by_topic.setdefault(topic, []).append((queue_id, begun.end, left))
        for topic, found in by_topic.items():
            queues, ends, lefts = zip(*found, strict=True)
            waiting = sum(lefts)
            rest = "none of them is unread"
            if waiting:
                rest = (
                    f"{waiting} of them are unread; to skip all messages, wait some seconds, until the group has an "
                    f"offset in every queue, then run: mqadmin skipAccumulatedMessage -g {info.group} -t {topic}"
                )
            yield GroupProblem(
                info.group,
                GroupProblemKind.FIRST_INSTEAD_OF_LAST_OFFSET,
                f"wants CONSUME_FROM_LAST_OFFSET and began at the first message in queue {', '.join(map(str, queues))} of "
                f"{topic}, because the whole queue was still in memory: {sum(ends)} messages at that time, {rest}",
                topic=topic,
                clients=[str(client) for client in clients],
                queues=list(queues),
                waiting=waiting,
            )

    def _forget_beginnings(self, now: int) -> None:
        """Remove the beginnings of offline groups, of other topics, and those no longer reported."""
        for group, begun in self._begun.copy().items():
            info = self._broker.consumers.find(group)
            if info is None:
                self._begun.pop(group, None)
                continue
            for (topic, queue_id), (end, at) in begun.copy().items():
                # A committed offset decides: the group will not be told to begin again.
                consumed = self._broker.offsets.query(group, topic, queue_id)
                if topic not in info.subscriptions or (now - at >= TOLD_MS and consumed >= end):
                    begun.pop((topic, queue_id), None)


def _different_subscriptions(group: str, clients: Sequence[ClientChannelInfo]) -> Iterator[GroupProblem]:
    """Compare the members' subscriptions topic by topic. The retry topic is common to all members and is skipped."""
    if all(client.wanted == clients[0].wanted for client in clients):
        return
    for topic in sorted({topic for client in clients for topic in client.wanted if not topic.startswith(RETRY_PREFIX)}):
        sides: dict[str, list[ClientChannelInfo]] = {}
        for client in clients:
            sides.setdefault(client.wanted.get(topic, ""), []).append(client)
        if len(sides) > 1:
            texts = [
                f"{_names(members)} {'subscribe to ' + repr(wanted) if wanted else 'do not subscribe'}"
                for wanted, members in sorted(sides.items(), reverse=True)
            ]
            yield GroupProblem(
                group,
                GroupProblemKind.DIFFERENT_SUBSCRIPTIONS,
                f"of {topic}, {', '.join(texts)}: its messages will be lost, let all members subscribe alike",
                topic=topic,
                clients=[str(client) for client in clients],
            )


def _duplicate_ids(group: str, clients: Sequence[ClientChannelInfo]) -> Iterator[GroupProblem]:
    """Find ids alive on two connections: the older one has sent a heartbeat since the newer one came."""
    by_id: dict[str, list[ClientChannelInfo]] = {}
    for client in clients:
        by_id.setdefault(client.client_id, []).append(client)
    for client_id, twins in by_id.items():
        newest = max(twin.since for twin in twins)
        alive = [twin for twin in twins if twin.since == newest or twin.last_update > newest]
        if len(alive) > 1:
            addresses = ", ".join(twin.connection.address for twin in alive)
            yield GroupProblem(
                group,
                GroupProblemKind.DUPLICATE_CLIENT_ID,
                f"client id {client_id} is used by {addresses}: they count as one client and do not share the queues, "
                "give each a different instance name",
                clients=[str(twin) for twin in alive],
            )


def _names(clients: Sequence[ClientChannelInfo]) -> str:
    named = ", ".join(client.client_id for client in clients[:_NAMED])
    return named if len(clients) <= _NAMED else f"{named} and {len(clients) - _NAMED} more"
