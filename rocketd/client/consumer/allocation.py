"""Strategies to share the queues of a topic among the consumers of a group, sans-io.

Counterpart: `AllocateMessageQueueStrategy` and its six strategies (Apache). For the same lists they return the same queues
in the same order. So consumers of both kinds in one group neither miss nor share a queue: each member computes its share
from lists sorted alike (``sort_queues``, ``sort_client_ids``).
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import Final, Protocol

from rocketd.client.errors import AllocationError
from rocketd.common.names import room_of_broker
from rocketd.remoting.bodies.tables import MessageQueue

VIRTUAL_NODES: Final = 10
"""Places of one client on the ring of consistent hashing."""


class AllocationStrategy(Protocol):
    """A strategy to compute one client's share of a topic's queues.

    One object serves all topics, and is called repeatedly.
    """

    @property
    def name(self) -> str:
        """The name for logs and other programs."""

    def __call__(
        self, consumer_group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the share of ``client_id``.

        ``queues`` are all queues of a topic and ``client_ids`` all members of the group, both sorted. A client outside
        the group gets nothing; the caller should log this. Raises AllocationError if any argument except the group is
        empty.
        """


def sort_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Return queues in the order of Java's clients: names are compared by UTF-16 units, not by characters."""
    return sorted(queues, key=lambda queue: (_units(queue.topic), _units(queue.broker_name), queue.queue_id))


def sort_client_ids(client_ids: Iterable[str]) -> list[str]:
    """Return client ids in the order of Java's clients, by UTF-16 units."""
    return sorted(client_ids, key=_units)


def _units(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


class _AmongMembers:
    """Base of strategies to share among the members. Subclasses compute the share of a client in the group."""

    def __call__(
        self, consumer_group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the share of ``client_id``; see AllocationStrategy."""
        for what, given in (("client id", client_id), ("queues", queues), ("client ids", client_ids)):
            if not given:
                raise AllocationError(f"group {consumer_group!r} has nothing to share: no {what}")
        return self._share(consumer_group, client_id, queues, client_ids) if client_id in client_ids else []

    def _share(
        self, consumer_group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        raise NotImplementedError


@dataclass(frozen=True)
class AllocateMessageQueueAveragely(_AmongMembers):
    """The default strategy: each client gets neighbouring queues, and the first clients one more."""

    @property
    def name(self) -> str:
        """AVG."""
        return "AVG"

    def _share(
        self, consumer_group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        index = client_ids.index(client_id)
        share, more = divmod(len(queues), len(client_ids))
        begin = index * share + min(index, more)
        return list(queues[begin : begin + share + (index < more)])


@dataclass(frozen=True)
class AllocateMessageQueueAveragelyByCircle(_AmongMembers):
    """Deals the queues out one by one, in rounds."""

    @property
    def name(self) -> str:
        """AVG_BY_CIRCLE."""
        return "AVG_BY_CIRCLE"

    def _share(
        self, consumer_group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


@dataclass(frozen=True)
class AllocateMessageQueueByConfig:
    """Gives this client fixed queues, for any topic and any other members."""

    message_queues: Sequence[MessageQueue] = ()

    @property
    def name(self) -> str:
        """CONFIG."""
        return "CONFIG"

    def __call__(
        self, consumer_group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the fixed queues. The arguments are ignored."""
        return list(self.message_queues)


@dataclass(frozen=True)
class AllocateMessageQueueByMachineRoom(_AmongMembers):
    """Shares only queues of brokers ``room@broker`` in one of these rooms. The remainder is dealt out one by one."""

    rooms: Collection[str]

    @property
    def name(self) -> str:
        """MACHINE_ROOM."""
        return "MACHINE_ROOM"

    def _share(
        self, consumer_group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        near = [queue for queue in queues if room_of_broker(queue.broker_name) in self.rooms]
        index = client_ids.index(client_id)
        share, rest = divmod(len(near), len(client_ids))
        mine = near[index * share : (index + 1) * share]
        if index < rest:
            mine.append(near[index + share * len(client_ids)])
        return mine


@dataclass(frozen=True)
class AllocateMachineRoomNearby(_AmongMembers):
    """Shares a room's queues among the clients in the room, and queues of rooms without a client among all.

    ``strategy`` shares within both. ``broker_room`` and ``client_room`` return the room of a queue's broker and of a client.
    Raises AllocationError if a room is unknown.
    """

    strategy: AllocationStrategy
    broker_room: Callable[[MessageQueue], str | None]
    client_room: Callable[[str], str | None]

    @property
    def name(self) -> str:
        """MACHINE_ROOM_NEARBY and the name of the inner strategy."""
        return f"MACHINE_ROOM_NEARBY-{self.strategy.name}"

    def _share(
        self, consumer_group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        queues_in: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_in.setdefault(_known(self.broker_room(queue), queue), []).append(queue)
        clients_in: dict[str, list[str]] = {}
        for client in client_ids:
            clients_in.setdefault(_known(self.client_room(client), client), []).append(client)
        own = next(room for room, clients in clients_in.items() if client_id in clients)
        mine: list[MessageQueue] = []
        if own in queues_in:
            mine += self.strategy(consumer_group, client_id, queues_in[own], clients_in[own])
        for room in sorted(queues_in.keys() - clients_in.keys(), key=_units):
            mine += self.strategy(consumer_group, client_id, queues_in[room], client_ids)
        return mine


def _known(room: str | None, whose: MessageQueue | str) -> str:
    if not room:
        raise AllocationError(f"the machine room of {whose} is not known")
    return room


def hash_by_md5(key: str) -> int:
    """Return a place on the ring, 0 to 2^32 - 1: the first four bytes of the key's MD5."""
    # Java also encodes a lone surrogate as "?".
    return int.from_bytes(md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()[:4], "big")


@dataclass(frozen=True)
class AllocateMessageQueueConsistentHash(_AmongMembers):
    """Puts each client on a ring at ``virtual_nodes`` places. A queue goes to the next client, so a change moves few queues.

    ``hash_function`` returns a place on the ring. All clients of a group need the same function and number of virtual nodes.
    Raises AllocationError if ``virtual_nodes`` is below 0. With 0, each share is empty.
    """

    virtual_nodes: int = VIRTUAL_NODES
    hash_function: Callable[[str], int] = hash_by_md5

    def __post_init__(self) -> None:
        if self.virtual_nodes < 0:
            raise AllocationError(f"virtual_nodes is {self.virtual_nodes}, it may not be below 0")

    @property
    def name(self) -> str:
        """CONSISTENT_HASH."""
        return "CONSISTENT_HASH"

    def _share(
        self, consumer_group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        ring = self._ring(client_ids)
        if not ring:
            return []
        places = sorted(ring)
        return [
            queue
            for queue in queues
            if ring[places[bisect_left(places, self.hash_function(_java_text(queue))) % len(places)]] == client_id
        ]

    def _ring(self, client_ids: Iterable[str]) -> dict[int, str]:
        ring: dict[int, str] = {}
        standing: Counter[str] = Counter()
        for client in client_ids:
            # A client listed twice continues its count. If two places collide, the later client wins.
            first = standing[client]
            for number in range(first, first + self.virtual_nodes):
                place = self.hash_function(f"{client}-{number}")
                if place in ring:
                    standing[ring[place]] -= 1
                ring[place] = client
                standing[client] += 1
        return ring


def _java_text(queue: MessageQueue) -> str:
    """Return the queue's toString(), which Java's clients hash."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
