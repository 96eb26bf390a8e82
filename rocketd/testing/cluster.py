"""A whole cluster in the process of a test: the real name server and broker on memory, in a time that can be put forward.

No counterpart in Apache.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from twisted.internet.defer import Deferred

from rocketd.broker.service import Broker
from rocketd.client.codec import BYTES, Codec
from rocketd.client.config import ClientConfig, Duration, milliseconds
from rocketd.client.errors import ClientStateError, IllegalOptionError, TopicNotFoundError, check_topic
from rocketd.client.hosting.fork import ForkGuard
from rocketd.client.hosting.thread_host import ThreadHost
from rocketd.client.message import ReceivedMessage
from rocketd.client.wire_message import received_message
from rocketd.common import permission
from rocketd.common.names import DLQ_PREFIX, RETRY_PREFIX
from rocketd.common.suggest import did_you_mean
from rocketd.remoting.bodies import MessageQueue, TopicConfig
from rocketd.store.record import decode_message
from rocketd.testing.faults import Drop, Faults, What, check_number
from rocketd.testing.memory_disk import MemoryDisk
from rocketd.testing.memory_network import HOST, MemoryNetwork
from rocketd.testing.rest import Rest
from rocketd.testing.servers import NAMESRV_PORT, BrokerProcess, NameServerProcess, check_settings
from rocketd.testing.sockets import Sockets
from rocketd.testing.surroundings import ClientSurroundings
from rocketd.testing.virtual_time import VirtualReactor, VirtualTime

T = TypeVar("T")

QUEUES = 4
"""Of a topic that is made without saying how many."""
READ_AT_ONCE = 1000


class Cluster:
    """A name server and a broker, ``broker-a``, from ``start`` to ``stop``, or in a with block. Any thread may call it.

    ``topics``, one or several, are there from the beginning, others when they are first sent to. ``broker`` and ``namesrv``
    are settings by Apache's names, such as ``{"flushDiskType": "SYNC_FLUSH"}``. Raises IllegalTopicError, and
    IllegalOptionError for settings they cannot have.
    """

    def __init__(
        self,
        *,
        topics: str | Iterable[str] = (),
        broker: Mapping[str, object] | None = None,
        namesrv: Mapping[str, object] | None = None,
    ) -> None:
        self._topics = (topics,) if isinstance(topics, str) else tuple(topics)
        for topic in self._topics:
            check_topic(topic)
        self._settings = dict(broker or {})
        self._namesrv_settings = dict(namesrv or {})
        for settings in (self._settings, self._namesrv_settings):
            check_settings(settings)
        self._virtual = VirtualTime()
        self._network = MemoryNetwork()
        self._surroundings = ClientSurroundings(self._virtual, self._network)
        self._faults = Faults()
        self._sockets = Sockets()
        self._real_port: int | None = None
        self._lock = threading.RLock()
        self._guard = ForkGuard("cluster")
        self._host: ThreadHost | None = None
        self._name_server: NameServerProcess | None = None
        self._broker: BrokerProcess | None = None
        self._disk = MemoryDisk(self._virtual)
        self._rest = Rest(
            self._virtual,
            self._reactors,
            self._pools,
            lambda: [server.table_writer for server in self._servers()],
            lambda: None if self._broker is None else self._broker.server,
            lambda: bool(self._surroundings.reactors()),
            self._flushes,
            lambda begun: self._sockets.rest(begun, self._servers()),
            lambda seconds: self._sockets.time_passes(seconds, self._servers()),
        )

    # ------------------------------------------------------------ life

    def start(self) -> Self:
        """Start both servers; clients can be opened when this returns."""
        with self._lock:
            if self._host is not None:
                raise ClientStateError("this cluster is started already")
            self._host = ThreadHost.of_its_own("rocketd-testing")
            self._guard.begin()
            try:
                self._call(self._bring_up)
            except BaseException:
                self._host.release()
                self._host = None
                raise
        return self

    def stop(self) -> None:
        """Stop both servers, and let go of all they had; a second call does nothing. Close the clients before."""
        with self._lock:
            if self._host is None or self._guard.forked:
                return
            self._faults.clear()
            self._disk.slow_fsync_seconds = 0.0
            self._virtual.wake_sleepers()
            host = self._host
            try:
                self._call(self._bring_down)
            finally:
                self._host = None
                host.release()
                self._disk.close_all()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    async def _bring_up(self) -> None:
        assert self._host is not None
        base = self._host.reactor
        self._name_server = NameServerProcess(base, self._virtual, self._network, MemoryDisk(self._virtual))
        self._name_server.start(self._namesrv_settings, self._faults, self._sockets)
        await self._start_broker()
        for topic in self._topics:
            await self._create_topic(topic, QUEUES, order=False)

    async def _start_broker(self) -> None:
        assert self._host is not None
        process = BrokerProcess(self._host.reactor, self._virtual, self._network, self._disk)
        settings = self._settings
        if self._real_port is not None:
            process.reactor.open_for_real(self._real_port)
            settings = {**settings, "listenPort": self._real_port}
        await process.start(settings, self._faults, self._sockets)
        if self._real_port is not None:
            self._real_port = process.server.port
        self._broker = process

    async def _bring_down(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.server.stopService()
        name_server, self._name_server = self._name_server, None
        if name_server is not None:
            await name_server.server.stopService()
            name_server.disk.close_all()

    # ------------------------------------------------------------ clients

    def client_options(self, **config: Any) -> dict[str, Any]:
        """Return keyword arguments for any client of ``rocketd.client``, its ``aio`` or its ``sync``: they lead it here.

        ``config`` are further options of ClientConfig.
        """
        options: dict[str, Any] = {"namesrv": f"{HOST}:{NAMESRV_PORT}", "client_ip": HOST, **config}
        return {"cluster": ClientConfig(surroundings=self._surroundings, **options)}

    def listen(self, port: int = 0) -> str:
        """Open the servers to programs of any language, on sockets of this machine's loopback address.

        ``port`` is the name server's, 0 for any that is free. Returns its address, ``127.0.0.1:PORT``. The broker is started
        anew for it, at an address that is in the messages' ids: call it before there are any.
        """
        with self._lock:
            number: int = self._call(self._listen, port)
        return f"{HOST}:{number}"

    async def _listen(self, port: int) -> int:
        self._running()
        assert self._name_server is not None
        self._name_server.reactor.open_for_real(port)
        number = self._name_server.server.server.listen(port)
        self._real_port = 0
        await self._restart()
        return number

    # ------------------------------------------------------------ time

    def now(self) -> datetime:
        """Return the time that servers and clients have, in UTC."""
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
        """Let time pass, for servers and clients: what is due meanwhile happens, in its order, before this returns.

        Raises IllegalOptionError without a duration, or for one that is negative.
        """
        passing = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if duration is None and not passing:
            raise IllegalOptionError("advance needs to know by how much: by seconds or a timedelta, or such as hours=2")
        total = sum(milliseconds("duration", each, zero=True) for each in (passing, duration or 0)) / 1000
        with self._lock:
            self._started()
            self._rest.advance(total)

    def settle(self) -> None:
        """Return when servers and clients have done all that is to be done now."""
        with self._lock:
            self._started()
            self._rest.settle()

    # ------------------------------------------------------------ faults

    def drop(
        self, *requests: str | int, times: int | None = None, rate: float = 1.0, seed: int = 0, what: What = "request"
    ) -> Drop:
        """Lose requests from now on: ``times`` of them, or each with a chance of ``rate``, until the result's ``end``.

        ``requests`` are ``send``, ``pull``, ``heartbeat``, ``route``, ``commit``, ``retry``, ``end``, or request codes; all
        requests, those of the broker to the name server as well, where none is named.
        ``what`` is lost instead: the ``request``, the ``answer`` to what was carried out, or the ``connection``. Raises
        IllegalOptionError.
        """
        return self._faults.drop(requests, times=times, rate=rate, seed=seed, what=what)

    def cut_connections(self) -> None:
        """Break all connections there are; new ones may be made."""
        self._call(self._abort_all)

    async def _abort_all(self) -> None:
        for server in self._servers():
            for connection in list(server.server.connections):
                connection.abort()

    def slow_fsync(self, seconds: Duration) -> None:
        """Have each flush of the disk take so long, in the cluster's time; 0 ends it."""
        self._disk.slow_fsync_seconds = milliseconds("seconds", seconds, zero=True) / 1000
        self._virtual.wake_sleepers()

    def kill(self, *, power_cut: bool = False) -> None:
        """End the broker as ``kill -9`` does: nothing more is written or answered. With ``power_cut``, what was not
        synced to the disk is lost as well.
        """
        with self._lock:
            self._call(self._kill, power_cut)

    async def _kill(self, power_cut: bool) -> None:
        process, self._broker = self._broker, None
        if process is None:
            raise ClientStateError("the broker does not run")
        process.reactor.cut_off()
        for connection in list(process.server.server.connections):
            connection.abort()
        self._disk = process.disk.survivors(power_cut=power_cut)
        # Nobody hears of it any more; its threads have to end.
        await process.server.stopService()
        process.disk.close_all()

    def restart(self) -> None:
        """Start the broker again, with what is on its disk; one that runs is stopped in order before."""
        with self._lock:
            self._call(self._restart)

    async def _restart(self) -> None:
        process, self._broker = self._broker, None
        if process is not None:
            await process.server.stopService()
        await self._start_broker()

    # ------------------------------------------------------------ topics

    def create_topic(self, topic: str, *, queues: int = QUEUES, order: bool = False) -> None:
        """Make a topic, or change it; clients that ask know it when this returns. Raises IllegalTopicError."""
        check_topic(topic)
        check_number("queues", queues, 1)
        with self._lock:
            self._call(self._create_topic, topic, queues, order)

    async def _create_topic(self, topic: str, queues: int, order: bool) -> None:
        broker = self._running().server
        made: Deferred[None] = Deferred()
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=permission.READ | permission.WRITE,
            order=order,
        )

        def make() -> None:
            broker.topics.update(config, lambda _: broker.when_registered(lambda: made.callback(None)))

        broker.dispatcher.pool("admin").call(make)
        await made

    def messages(self, topic: str, *, codec: Codec[T] = BYTES) -> list[ReceivedMessage[T]]:  # type: ignore[assignment]
        """Return what lies in a topic, by queue and offset: all that was acknowledged before the call.

        Raises TopicNotFoundError for one that is not there. Those of dead letters and retries are by their first message,
        and are empty before.
        """
        server = self._running().server
        store = server.store
        if server.topics.select(topic) is None and not topic.startswith((DLQ_PREFIX, RETRY_PREFIX)):
            own = sorted(
                each.topic_name for each in server.topics.all_topics() if not _of_broker(server, each.topic_name)
            )
            raise TopicNotFoundError(
                f"topic {topic!r} is not in this cluster, as nothing made it or was sent to it; there are "
                f"{', '.join(own) or 'none'}{did_you_mean(topic, own)}"
            )
        self._rest.wait_for_dispatch(store)
        name = self._running().server.settings.broker.broker_name
        found: list[ReceivedMessage[T]] = []
        for queue_id in sorted(number for known, number in store.queue_keys() if known == topic):
            queue = MessageQueue(topic, name, queue_id)
            offset = store.get_min_offset(topic, queue_id)
            while entries := store.queue_entries(topic, queue_id, offset, READ_AT_ONCE):
                offset += len(entries)
                records = [store.look_message(physical_offset) for physical_offset, _, _ in entries]
                found += [
                    received_message(decode_message(record), queue, codec) for record in records if record is not None
                ]
        return found

    @property
    def broker(self) -> Broker:
        """The broker itself, to look into; what may be called from any thread, its parts say."""
        return self._running().server

    # ------------------------------------------------------------ parts

    def _call(self, function: Any, *arguments: Any) -> Any:
        return self._started().call(function, *arguments)

    def _started(self) -> ThreadHost:
        self._guard.check()
        if self._host is None:
            raise ClientStateError("this cluster is not started: start it, or use it in a with block")
        return self._host

    def _running(self) -> BrokerProcess:
        self._started()
        if self._broker is None:
            raise ClientStateError("the broker does not run: restart it")
        return self._broker

    def _reactors(self) -> Sequence[VirtualReactor]:
        servers = [process.reactor for process in (self._broker, self._name_server) if process is not None]
        return [*servers, *self._surroundings.reactors()]

    def _pools(self) -> list[Any]:
        return [pool for server in self._servers() for pool in server.dispatcher.pools.values()]

    def _servers(self) -> list[Any]:
        return [process.server for process in (self._broker, self._name_server) if process is not None]

    def _flushes(self) -> bool:
        """Whether everything that is stored is synced at once."""
        if self._broker is None:
            return False
        synchronous: bool = self._broker.server.settings.store.flush_disk_type == "SYNC_FLUSH"
        return synchronous and not self._disk.slow_fsync_seconds


def _of_broker(server: Broker, topic: str) -> bool:
    return server.topics.is_system_topic(topic) or topic.startswith((DLQ_PREFIX, RETRY_PREFIX))
