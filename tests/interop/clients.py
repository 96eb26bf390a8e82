"""The client programs of the interop ring, and their servers."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.interop.toolchain import PROGRAMS, Run, run_client
from tests.support import wire
from tests.support.lacking import end_test_lacking


@dataclass(frozen=True)
class Cluster:
    """Addresses of the servers under test."""

    namesrv: str
    broker: str


@dataclass(frozen=True)
class Clients:
    """Runs the programs against the cluster, each run in a new home directory."""

    cluster: Cluster
    homes: Callable[[str], Path]

    def require(self, *names: str) -> None:
        """Skip (or fail) unless these programs can be built here."""
        for name in names:
            reason = PROGRAMS[name].missing()
            if reason is not None:
                end_test_lacking(reason)

    def run(self, name: str, command: str, topic: str, *arguments: object, jvm: tuple[str, ...] = ()) -> Run:
        """Run one program once; see toolchain.run_client."""
        self.require(name)
        namesrv = self.cluster.namesrv
        home = self.homes(f"{name}-{command}")
        return run_client(name, command, "--namesrv", namesrv, "--topic", topic, *arguments, home=home, jvm=jvm)

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Create a topic at the broker; the name server has its route when this returns."""
        wire.create_topic(self.cluster.broker, topic, queues)
        wire.await_route(self.cluster.namesrv, topic, self.cluster.broker)
