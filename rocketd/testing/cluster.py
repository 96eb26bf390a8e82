"""A whole cluster in the process of a test: the real servers, in memory, in a time that can be advanced."""

import threading
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType, TracebackType
from typing import Any, Self, TypeVar

from rocketd.acl.accounts import AccountConfig
from rocketd.broker.base.settings import MAX_PORT
from rocketd.broker.service import Broker
from rocketd.client.errors import ClientStateError, IllegalOptionError, check_topic
from rocketd.client.messages.codec import BYTES, Codec
from rocketd.client.messages.message import ReceivedMessage
from rocketd.client.runtime.fork import ForkGuard
from rocketd.client.runtime.thread_host import ThreadHost
from rocketd.client.settings.config import ClientConfig, Duration, milliseconds
from rocketd.common import permission
from rocketd.common.settings.declaration import ConfigError
from rocketd.common.suggest import did_you_mean
from rocketd.remoting.bodies.tables import TopicConfig
from rocketd.remoting.serving.server import ListenError
from rocketd.testing.authority import TlsFiles
from rocketd.testing.client_environment import ClusterEnvironment
from rocketd.testing.cluster_broker import ClusterBroker
from rocketd.testing.faults import Drop, Faults, What, check_number
from rocketd.testing.files import ClusterFiles, check_account
from rocketd.testing.machines import BrokerMachine, Machines
from rocketd.testing.options import Brokers, TlsMode, check_settings, plan_brokers, tls_mode
from rocketd.testing.quiescence import Quiescence
from rocketd.testing.servers import NAMESRV_PORT, Surroundings, load_broker_settings, load_namesrv_settings
from rocketd.testing.simulated.memory_network import HOST, MemoryNetwork
from rocketd.testing.simulated.virtual_time import VirtualTime
from rocketd.testing.sockets import Sockets
from rocketd.testing.stored_messages import stored_messages

T = TypeVar("T")

QUEUES = 4
"""Queues of a topic on each broker by default."""


class Cluster:
    """A name server and brokers, from ``start`` to ``stop``, or in a with block. Any thread may call it.

    - ``topics``, one or several, exist on all brokers from the start; others are created by the first send.
    - ``brokers`` is the number of masters, or their names, or their settings by name. The default is one master,
      ``broker-a``. A number gives ``broker-a``, ``broker-b`` and so on.
    - ``slaves`` is the number of slaves for each of them, ``broker-a:1`` and so on.
    - ``broker`` and ``namesrv`` are settings of all brokers and of the name server, by Apache's names, such as
      ``{"flushDiskType": "SYNC_FLUSH"}``.
    - ``tls`` gives the servers certificates of a throw-away authority. With True or ``"enforcing"`` they refuse plain
      connections, with ``"permissive"`` they accept both.
    - ``accounts`` make the brokers refuse requests without the rights of one of them.

    A method of the cluster is for all of its brokers. ``brokers["broker-a"]`` has the same methods for one of them.
    Raises IllegalTopicError, and IllegalOptionError for impossible options.
    """

    def __init__(
        self,
        *,
        topics: str | Iterable[str] = (),
        brokers: Brokers = 1,
        slaves: int = 0,
        broker: Mapping[str, object] | None = None,
        namesrv: Mapping[str, object] | None = None,
        tls: bool | TlsMode = False,
        accounts: Iterable[AccountConfig] = (),
    ) -> None:
        self._topics = (topics,) if isinstance(topics, str) else tuple(topics)
        for topic in self._topics:
            check_topic(topic)
        accounts = list(accounts)
        for account in accounts:
            check_account(account)
        mode = tls_mode(tls)
        plans = plan_brokers(brokers, slaves, dict(broker or {}))
        for settings in (*(plan.given for plan in plans), dict(namesrv or {})):
            check_settings(settings, tls=mode is not None, accounts=bool(accounts))
        for plan in plans:
            load_broker_settings(plan.settings())
        load_namesrv_settings(dict(namesrv or {}))
        self._files = ClusterFiles(mode, accounts, brokers_ask=slaves > 0)
        self._virtual = VirtualTime()
        self._network = MemoryNetwork()
        self._environment = ClusterEnvironment(self._virtual, self._network)
        self._faults = Faults()
        sockets = Sockets()
        around = Surroundings(self._virtual, self._network, self._faults, sockets)
        self._machines = Machines(plans, dict(namesrv or {}), around, self._files)
        self._brokers = {
            machine.plan.name: ClusterBroker(machine, self._machines, self._call, self._started)
            for machine in self._machines.brokers
        }
        self._quiescence = Quiescence(self._virtual, self._machines, self._environment, sockets)
        self._lock = threading.RLock()
        self._guard = ForkGuard("cluster")
        self._host: ThreadHost | None = None

    # ------------------------------------------------------------ life

    def start(self) -> Self:
        """Start all servers. Clients can be opened when this returns.

        Raises IllegalOptionError for settings with which a server does not start.
        """
        with self._lock:
            if self._host is not None:
                raise ClientStateError("this cluster is already started")
            self._host = ThreadHost.of_its_own("rocketd-testing")
            self._guard.begin()
            try:
                self._files.make()
                self._call(self._machines.start, self._host.reactor)
                for topic in self._topics:
                    self.create_topic(topic)
            except BaseException as error:
                self.stop()
                if isinstance(error, ConfigError):
                    raise IllegalOptionError(str(error)) from error
                raise
        return self

    def stop(self) -> None:
        """Stop all servers and release their resources. A second call does nothing. Close the clients before."""
        with self._lock:
            if self._host is None or self._guard.forked:
                return
            self._faults.clear()
            self.slow_fsync(0)
            host = self._host
            try:
                self._call(self._machines.stop)
            finally:
                self._host = None
                host.release()
                self._files.remove()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    # ------------------------------------------------------------ brokers

    @property
    def brokers(self) -> Mapping[str, ClusterBroker]:
        """The brokers by name: masters such as ``broker-a``, and slaves such as ``broker-a:1``."""
        return MappingProxyType(self._brokers)

    @property
    def broker(self) -> Broker:
        """The first broker itself, for inspection. Its parts document which threads may call them."""
        self._started()
        return self._machines.brokers[0].running.server

    # ------------------------------------------------------------ clients

    def client_options(self, **config: Any) -> dict[str, Any]:
        """Return keyword arguments for a client of ``rocketd.client``, its ``aio`` or its ``sync``: they connect it to
        this cluster.

        ``config`` are further options of ClientConfig. If the servers have TLS, the client uses it and trusts them,
        unless ``tls`` is given.
        """
        options: dict[str, Any] = {"namesrv": f"{HOST}:{NAMESRV_PORT}", "client_ip": HOST, **config}
        if self._files.tls is not None and "tls" not in config:
            options |= {"tls": True, "ca": self._files.tls.ca}
        return {"cluster": ClientConfig(environment=self._environment, **options)}

    @property
    def tls(self) -> TlsFiles | None:
        """The files for TLS: ``ca``, ``certificate`` and ``key``, from start to stop. None without TLS.

        Clients in other languages need ``ca``. Certificate and key are those of the servers. Clients can use them, too.
        """
        return self._files.tls

    def listen(self, port: int = 0) -> str:
        """Open the servers to programs in any language, on sockets of this machine's loopback address.

        ``port`` is the name server's, 0 for any free one. Return its address, ``127.0.0.1:PORT``. The brokers are
        restarted at new addresses. Message ids contain them, so call this before any message is sent.

        Raises IllegalOptionError for a port that is impossible or in use.
        """
        check_number("port", port, 0)
        if port > MAX_PORT:
            raise IllegalOptionError(f"port={port}: accepted is a port, at most {MAX_PORT}")
        try:
            return f"{HOST}:{self._call(self._machines.listen, port)}"
        except ListenError as error:
            raise IllegalOptionError(error.advise("port")) from error

    # ------------------------------------------------------------ time

    def now(self) -> datetime:
        """Return the time of servers and clients, in UTC."""
        return self._virtual.now()

    def advance(
        self,
        duration: Duration | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> None:
        """Advance the time of servers and clients. Everything due until then has happened, in order, when this returns.

        Raises IllegalOptionError without a duration, or if it is negative.
        """
        passing = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if duration is None and not passing:
            raise IllegalOptionError("advance() needs a duration, for example advance(hours=2)")
        total = sum(milliseconds("duration", each, zero=True) for each in (passing, duration or 0)) / 1000
        with self._lock:
            self._started()
            self._quiescence.advance(total)

    def settle(self) -> None:
        """Return when servers and clients have no more work at the present time. Slaves have all messages then."""
        with self._lock:
            self._started()
            self._quiescence.settle()

    # ------------------------------------------------------------ faults

    def drop(
        self, *requests: str | int, times: int | None = None, rate: float = 1.0, seed: int = 0, what: What = "request"
    ) -> Drop:
        """Lose requests from now on: ``times`` of them, or each with probability ``rate``, until ``end`` of the result
        is called.

        - ``requests`` are ``send``, ``pull``, ``heartbeat``, ``route``, ``commit``, ``retry``, ``end``, or request
          codes. Without any, all requests are meant, including those of brokers to the name server and to each other.
        - ``what`` is lost: the ``request``, the ``answer`` of a handled request, or the whole ``connection``.

        Raises IllegalOptionError.
        """
        return self._faults.drop(requests, times=times, rate=rate, seed=seed, what=what)

    def cut_connections(self) -> None:
        """Break all open connections. New ones may be made."""
        self._call(self._machines.cut_connections, self._machines.brokers, True)

    def slow_fsync(self, seconds: Duration) -> None:
        """Make each flush of a disk take this long in the cluster's time. 0 ends it."""
        for broker in self._brokers.values():
            broker.slow_fsync(seconds)

    def kill(self, *, power_cut: bool = False) -> None:
        """End all running brokers like ``kill -9``: writes and answers stop. With ``power_cut``, data not synced to the
        disks is lost.
        """
        self._call(self._machines.kill, self._machines.brokers, power_cut)

    def restart(self) -> None:
        """Start all brokers again with the content of their disks. Running ones are first stopped in order."""
        self._call(self._machines.restart, self._machines.brokers)

    # ------------------------------------------------------------ topics

    def create_topic(
        self, topic: str, *, queues: int = QUEUES, order: bool = False, brokers: str | Iterable[str] | None = None
    ) -> None:
        """Create or change a topic with so many queues on each broker, or on each of these brokers.

        Clients see it when this returns. Raises IllegalTopicError, and IllegalOptionError for a name without a master.
        """
        check_topic(topic)
        check_number("queues", queues, 1)
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=permission.READ | permission.WRITE,
            order=order,
        )
        self._call(self._machines.create_topic, config, self._masters(brokers))

    def messages(self, topic: str, *, codec: Codec[T] = BYTES) -> list[ReceivedMessage[T]]:  # type: ignore[assignment]
        """Return the messages of a topic by broker, queue and offset: all that were acknowledged before the call.

        Raises TopicNotFoundError if it does not exist, and ClientStateError if a master does not run. Topics of dead
        letters and retries exist from their first message on; before that, the result is empty.
        """
        self._started()
        return stored_messages([machine.running.server for machine in self._masters(None)], topic, codec)

    # ------------------------------------------------------------ parts

    def _masters(self, names: str | Iterable[str] | None) -> list[BrokerMachine]:
        masters = {machine.plan.name: machine for machine in self._machines.brokers if not machine.plan.is_slave}
        if names is None:
            return list(masters.values())
        names = [names] if isinstance(names, str) else list(names)
        for name in names:
            if name not in masters:
                raise IllegalOptionError(
                    f"brokers: {name!r} is not a master of this cluster: there are {', '.join(masters)}"
                    f"{did_you_mean(name, masters)}"
                )
        return [masters[name] for name in names]

    def _call(self, function: Any, *arguments: Any) -> Any:
        with self._lock:
            return self._started().call(function, *arguments)

    def _started(self) -> ThreadHost:
        self._guard.check()
        if self._host is None:
            raise ClientStateError("this cluster is not started: start it, or use it in a with block")
        return self._host
