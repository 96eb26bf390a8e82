"""How the queues of a topic are shared among the consumers of a group, sans-io.

Answers to AllocateMessageQueueStrategy and the six strategies that Apache's client has. Promises the same queues in the
same order for the same lists, so that consumers of both kinds in one group neither miss nor share a queue: each member
computes its own share, from lists that all have sorted alike (``sort_queues``, ``sort_client_ids``).
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import Final, Protocol

from rocketd.client.errors import AllocationError
from rocketd.remoting.bodies import MessageQueue

VIRTUAL_NODES: Final = 10
"""Places of one client on the ring of consistent hashing."""


class AllocationStrategy(Protocol):
    """Computes one client's share of a topic's queues; the same object serves all topics and is asked again and again."""

    @property
    def name(self) -> str:
        """What logs and other programs call it."""

    def __call__(
        self, consumer_group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the share of ``client_id``: of all queues of a topic, among all members of the group, both sorted.

        A client that is not among the members gets nothing: the caller should log that. Raises AllocationError when one
        of the arguments but the group is empty.
        """


def sort_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Return queues in the order in which Java's clients have them: names go by UTF-16 units, not by characters."""
    return sorted(queues, key=lambda queue: (_units(queue.topic), _units(queue.broker_name), queue.queue_id))


def sort_client_ids(client_ids: Iterable[str]) -> list[str]:
    """Return client ids in the order in which Java's clients have them, by UTF-16 units."""
    return sorted(client_ids, key=_units)


def room_of_broker(broker_name: str) -> str | None:
    """Return the machine room in a name like ``room@broker``, None if the name has not just these two parts."""
    # "room@broker@" still has two parts: Java's split leaves out empty ones at the end.
    parts = broker_name.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None


def _units(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


class _AmongMembers(ABC):
    """A strategy that shares among the members; subclasses say how, for a client that is one."""

    __slots__ = ()

    def __call__(
        self, consumer_group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the share of ``client_id``; see AllocationStrategy."""
        for what, given in (("client id", client_id), ("queues", queues), ("client ids", client_ids)):
            if not given:
                raise AllocationError(f"group {consumer_group!r} has nothing to share: no {what}")
        return self._share(consumer_group, client_id, queues, client_ids) if client_id in client_ids else []

    @abstractmethod
    def _share(
        self, consumer_group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]: ...


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueAveragely(_AmongMembers):
    """Gives each client neighbouring queues, the first clients one more. What is used when nothing is said."""

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


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueAveragelyByCircle(_AmongMembers):
    """Deals the queues out one by one, round and round."""

    @property
    def name(self) -> str:
        """AVG_BY_CIRCLE."""
        return "AVG_BY_CIRCLE"

    def _share(
        self, consumer_group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueByConfig:
    """Gives this client the queues it was made with, of whatever topic and whoever else is in the group."""

    message_queues: Sequence[MessageQueue] = ()

    @property
    def name(self) -> str:
        """CONFIG."""
        return "CONFIG"

    def __call__(
        self, consumer_group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues it was made with; looks at none of the arguments."""
        return list(self.message_queues)


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueByMachineRoom(_AmongMembers):
    """Shares only the queues of brokers named ``room@broker`` with one of these rooms; what is left over goes one by one."""

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


@dataclass(frozen=True, slots=True)
class AllocateMachineRoomNearby(_AmongMembers):
    """Shares a room's queues among the clients in that room; queues of rooms without a client among all.

    ``strategy`` does the sharing within both. ``broker_room`` and ``client_room`` tell where a queue's broker and a client
    are. Raises AllocationError when they do not know.
    """

    strategy: AllocationStrategy
    broker_room: Callable[[MessageQueue], str | None]
    client_room: Callable[[str], str | None]

    @property
    def name(self) -> str:
        """MACHINE_ROOM_NEARBY and the inner strategy's name."""
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
    # Java encodes a lone surrogate as "?" too.
    return int.from_bytes(md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()[:4], "big")


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueConsistentHash(_AmongMembers):
    """Puts each client on a ring at ``virtual_nodes`` places; a queue goes to the next client. Few queues move at a change.

    ``hash_function`` gives places on the ring; all clients of a group must have the same one, and as many virtual nodes.
    Raises AllocationError for a number of virtual nodes below 0; with 0, nobody gets anything.
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
            # A client that is listed twice goes on counting; where two places collide, the later client stands.
            first = standing[client]
            for number in range(first, first + self.virtual_nodes):
                place = self.hash_function(f"{client}-{number}")
                if place in ring:
                    standing[ring[place]] -= 1
                ring[place] = client
                standing[client] += 1
        return ring


def _java_text(queue: MessageQueue) -> str:
    """Return what Java's clients hash, the queue's toString()."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
