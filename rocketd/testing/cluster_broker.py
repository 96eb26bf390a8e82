"""One broker of a cluster, for the tests."""

from collections.abc import Callable
from typing import Any, TypeVar

from rocketd.broker.service import Broker
from rocketd.client.messages.codec import BYTES, Codec
from rocketd.client.messages.message import ReceivedMessage
from rocketd.client.settings.config import Duration, milliseconds
from rocketd.testing.machines import BrokerMachine, Machines
from rocketd.testing.stored_messages import stored_messages

T = TypeVar("T")


class ClusterBroker:
    """One broker of a cluster, from `Cluster.brokers`. Any thread may call it."""

    def __init__(
        self, machine: BrokerMachine, machines: Machines, call: Callable[..., Any], started: Callable[[], object]
    ) -> None:
        """``call`` runs a coroutine function in the servers' thread. ``started`` raises ClientStateError if the cluster is
        not started.
        """
        self._machine = machine
        self._machines = machines
        self._call = call
        self._started = started

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}, {'running' if self.is_running else 'not running'}>"

    @property
    def name(self) -> str:
        """The name of a master, or for example ``broker-a:1`` for its slave."""
        return self._machine.plan.name

    @property
    def is_slave(self) -> bool:
        """Whether it is a slave."""
        return self._machine.plan.is_slave

    @property
    def is_running(self) -> bool:
        """Whether it runs: it was not killed, or was restarted since."""
        return self._machine.process is not None

    @property
    def server(self) -> Broker:
        """The broker itself, for inspection. Its parts document which threads may call them."""
        self._started()
        return self._machine.running.server

    def kill(self, *, power_cut: bool = False) -> None:
        """End this broker like ``kill -9``: writes and answers stop.

        With ``power_cut``, data not synced to its disk is lost.
        """
        self._call(self._machines.kill, [self._machine], power_cut)

    def restart(self) -> None:
        """Start this broker again with the content of its disk. A running one is first stopped in order.

        A slave follows its master when this returns. The slaves of a restarted master follow it within 5 s of the
        cluster's time.
        """
        self._call(self._machines.restart, [self._machine])

    def cut_connections(self) -> None:
        """Break all connections of this broker: to clients, to the name server, between master and slave."""
        self._call(self._machines.cut_connections, [self._machine], False)

    def slow_fsync(self, seconds: Duration) -> None:
        """Make each flush of this broker's disk take this long in the cluster's time. 0 ends it."""
        self._machine.slow_fsync(milliseconds("seconds", seconds, zero=True) / 1000)

    def messages(self, topic: str, *, codec: Codec[T] = BYTES) -> list[ReceivedMessage[T]]:  # type: ignore[assignment]
        """Return the messages of a topic in this broker, by queue and offset. See `Cluster.messages`."""
        return stored_messages([self.server], topic, codec, at=self.name, others=self._machines.running())
