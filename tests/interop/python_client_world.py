"""The world of a test of the Python client: a face, and the servers of one kind."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any

from rocketd.client import ClientConfig, Message
from tests.interop.python_client_faces import LIMIT, Face, Held
from tests.interop.python_client_servers import APACHE, RunningServers
from tests.support.store_wire import await_dispatched

QUEUES = 4
_numbers = count(1)


def fresh(prefix: str) -> str:
    """An unused name of a topic or group, in this process or another."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


@dataclass(frozen=True)
class World:
    """Makes topics at the servers, and clients of the face."""

    servers: RunningServers
    face: Face

    @property
    def kind(self) -> str:
        return self.servers.kind

    def topic(self, queues: int = QUEUES) -> str:
        """A new topic."""
        name = fresh(f"Topic-{self.face.name}")
        self.servers.create_topic(name, queues)
        return name

    def await_topic(self, topic: str) -> None:
        """Return once the name server has the topic's route."""
        self.servers.await_topic(topic)

    def await_dispatch(self) -> None:
        """Return once all that was sent can be read and queried: brokers answer before."""
        await_dispatched(self.servers.broker)

    def check_none_twice(self, got: Iterable[Any], wanted: Iterable[Any]) -> None:
        """AssertionError unless all of these came, nothing else, and none of them twice; twice from Apache's broker.

        It may store the offset that a pull carries after it has answered that pull with messages that came meanwhile, and
        so go back behind the offset that a consumer stored when it gave its queue up.
        """
        first, second = sorted(got), sorted(wanted)
        if self.kind == APACHE:
            first, second = sorted(set(first)), sorted(set(second))
        assert first == second

    def group(self) -> str:
        """A new group."""
        return fresh(f"G-{self.face.name}")

    def producer(self, group: str | None = None, cluster: ClientConfig | str | None = None, **options: Any) -> Held:
        """A producer, to be opened by ``with``."""
        usual = {"send_timeout": LIMIT}  # messages sent again on a machine that hangs come twice
        client = self.face.module.Producer(
            group or self.group(), cluster or self.servers.namesrv, **{**usual, **options}
        )
        return Held(self.face, client)

    def consumer(
        self,
        group: str,
        topics: Any,
        handler: Callable[..., Any] | None,
        cluster: ClientConfig | str | None = None,
        **options: Any,
    ) -> Held:
        """Return a consumer of all messages, with short intervals; to be opened by ``with``."""
        usual = {"begin": "earliest", "rebalance_interval": 1.0, "persist_interval": 0.5}
        client = self.face.module.Consumer(
            group, cluster or self.servers.namesrv, topics=topics, handler=handler, **{**usual, **options}
        )
        return Held(self.face, client)

    def admin(self, cluster: ClientConfig | str | None = None) -> Held:
        """Administration; to be opened by ``with``."""
        return Held(self.face, self.face.module.Admin(cluster or self.servers.namesrv))


def numbered(name: str, numbers: int) -> list[bytes]:
    """Bodies by number."""
    return [f"{name}-{number}".encode() for number in range(numbers)]


def send_all(producer: Held, topic: str, bodies: list[bytes]) -> list[Any]:
    """Send one message after the other, in turn to each of the topic's queues, beginning with the first."""
    queues = producer.publish_queues(topic)
    return [
        producer.send(Message(topic, body), queue=queues[number % len(queues)]) for number, body in enumerate(bodies)
    ]
