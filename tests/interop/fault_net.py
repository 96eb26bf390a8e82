"""Two brokers and a name server, each behind a proxy, and clients of one face that know only the proxies."""

from dataclasses import dataclass
from typing import Any, Self

from rocketd.client import ClientConfig
from tests.interop.fault_proxy import FaultProxy, Proxies
from tests.interop.python_client_faces import Face, Held
from tests.interop.python_client_servers import LIMIT
from tests.interop.python_client_world import fresh
from tests.support import wire
from tests.support.store_wire import await_dispatched, max_offset

A, B = "broker-a", "broker-b"
QUEUES = 2  # of each topic at each broker


@dataclass
class Where:
    """Addresses of the servers of one ``kind``; ``brokers`` has those of A and B."""

    kind: str
    namesrv: str
    brokers: dict[str, str]

    @classmethod
    def of(cls, kind: str, namesrv: str, brokers: str) -> Self:
        """Parse the form of ``text``."""
        return cls(kind, namesrv, dict(zip((A, B), brokers.split(","), strict=True)))

    @property
    def text(self) -> str:
        """The brokers, for another process."""
        return ",".join(self.brokers[name] for name in (A, B))

    def create_topic(self, topic: str, *names: str) -> str:
        """Create a topic at these brokers, and return its name; the name server has its route then."""
        for name in names:
            wire.create_topic(self.brokers[name], topic, QUEUES)
        for name in names:
            wire.await_route(self.namesrv, topic, self.brokers[name], LIMIT)
        return topic


class Net:
    """Fresh proxies: ``a`` and ``b`` before the brokers, two of ``names`` before the name server; and clients of a face.

    Without proxies the clients know the servers themselves.
    """

    def __init__(self, where: Where, face: Face, proxies: Proxies | None = None) -> None:
        self.face = face
        self._where = where
        self._instance = fresh("instance")
        self.names: list[FaultProxy] = []
        if proxies is None:
            return
        self.a, self.b = (proxies.proxy(where.brokers[name]) for name in (A, B))
        addresses = {where.brokers[A]: self.a.address, where.brokers[B]: self.b.address}
        self.names = [proxies.proxy(where.namesrv, addresses) for _ in range(2)]

    def stored(self, topic: str) -> int:
        """Return how many messages broker A has of a topic only on A; without the proxies."""
        await_dispatched(self._where.brokers[A])
        return sum(max_offset(self._where.brokers[A], topic, queue_id) for queue_id in range(QUEUES))

    def config(self, **options: Any) -> ClientConfig:
        """Return the config of clients: short intervals, both name servers. They share one instance by default."""
        usual: dict[str, Any] = {
            "namesrv": [name.address for name in self.names] or self._where.namesrv,
            "instance_name": self._instance,
            "timeout": 3.0,
            "route_interval": 0.3,
            "heartbeat_interval": 1.0,
        }
        return ClientConfig(**{**usual, **options})

    def topic(self, *names: str) -> str:
        """A new topic at these brokers; at both unless some are named."""
        return self._where.create_topic(fresh(f"Topic-{self.face.name}"), *(names or (A, B)))

    def producer(self, config: ClientConfig | None = None, **options: Any) -> Held:
        """A producer, to be opened by ``with``."""
        return Held(self.face, self.face.module.Producer(fresh("P"), config or self.config(), **options))

    def consumer(self, topic: str, handler: Any, config: ClientConfig | None = None, **options: Any) -> Held:
        """A consumer of all there is, which shares queues and stores offsets often; to be opened by ``with``."""
        usual = {"begin": "earliest", "rebalance_interval": 0.5, "persist_interval": 0.2}
        more: Any = {"topics": topic, "handler": handler, **usual, **options}
        return Held(self.face, self.face.module.Consumer(fresh("G"), config or self.config(), **more))

    def polling(self, topic: str) -> Held:
        """The same, to be polled."""
        usual: Any = {"begin": "earliest", "rebalance_interval": 0.5, "persist_interval": 0.2}
        return Held(self.face, self.face.module.LitePullConsumer(fresh("G"), self.config(), topics=topic, **usual))
