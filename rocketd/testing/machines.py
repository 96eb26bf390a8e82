"""The machines of a cluster: one for the name server, and one for each broker.

A machine keeps its disk and its address over restarts of its server. Coroutines belong to the servers' thread.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rocketd.broker.service import Broker
from rocketd.client.errors import ClientStateError
from rocketd.common.event_loop.reactor import IReactor
from rocketd.namesrv.service import NameServer
from rocketd.remoting.bodies.tables import TopicConfig
from rocketd.remoting.peer import peer_of
from rocketd.testing.files import ClusterFiles
from rocketd.testing.options import BrokerPlan
from rocketd.testing.servers import BrokerProcess, NameServerProcess, Surroundings
from rocketd.testing.simulated.memory_disk import MemoryDisk
from rocketd.testing.simulated.virtual_time import VirtualReactor

JOIN_SECONDS = 30.0
"""Real time for the master to accept a slave."""
LOOK_SECONDS = 0.001

_log = Logger()


class BrokerMachine:
    """The machine of a broker. ``process`` is None while the broker does not run."""

    def __init__(self, plan: BrokerPlan, around: Surroundings, files: ClusterFiles) -> None:
        self.plan = plan
        self.process: BrokerProcess | None = None
        self._around = around
        self._files = files
        self._disk = MemoryDisk(around.virtual)
        self._real_port: int | None = None

    @property
    def running(self) -> BrokerProcess:
        """The process. Raises ClientStateError if the broker does not run. Any thread."""
        process = self.process
        if process is None:
            raise ClientStateError(f"{self.plan.name} does not run: restart it")
        return process

    def listen(self) -> None:
        """Have the next start open a socket."""
        self._real_port = 0

    async def start(self, base: IReactor) -> None:
        """Start the broker with the content of its disk."""
        process = BrokerProcess(base, self._around, self._disk)
        settings = {**self._files.broker_settings(self.plan.name), **self.plan.settings()}
        if self._real_port is not None:
            process.reactor.open_for_real(0, self._real_port)
            settings["listenPort"] = 0
        await process.start(settings)
        if self._real_port is not None:
            self._real_port = process.server.port
        self.process = process

    async def stop(self) -> None:
        """Stop the broker in order, if it runs."""
        process, self.process = self.process, None
        if process is not None:
            await process.server.stopService()

    def cut_off(self, *, power_cut: bool) -> BrokerProcess | None:
        """Take network and disk from a running broker. Return its process, still to be stopped."""
        process, self.process = self.process, None
        if process is not None:
            process.cut_off()
            self._disk = process.disk.survivors(power_cut=power_cut)
        return process

    def slow_fsync(self, seconds: float) -> None:
        """Make each flush of the disk take so long; 0 ends it. Any thread."""
        self._disk.slow_fsync_seconds = seconds
        self._around.virtual.wake_sleepers()

    def close(self) -> None:
        """Release the disk."""
        self._disk.close_all()


class Machines:
    """All machines. Methods without ``async`` may be called by any thread."""

    def __init__(
        self,
        plans: Iterable[BrokerPlan],
        namesrv_settings: Mapping[str, object],
        around: Surroundings,
        files: ClusterFiles,
    ) -> None:
        self.brokers = [BrokerMachine(plan, around, files) for plan in plans]
        self._namesrv_settings = namesrv_settings
        self._around = around
        self._files = files
        self._name_server: NameServerProcess | None = None
        self._base: IReactor

    # ------------------------------------------------------------ start and stop

    async def start(self, base: IReactor) -> None:
        """Start all servers on a reactor."""
        self._base = base
        self._name_server = NameServerProcess(base, self._around, MemoryDisk(self._around.virtual))
        self._name_server.start({**self._files.server_settings(), **self._namesrv_settings})
        await self._start(self.brokers)

    async def stop(self) -> None:
        """Stop all servers and release their disks."""
        await self._stop(self.brokers)
        name_server, self._name_server = self._name_server, None
        if name_server is not None:
            await name_server.server.stopService()
            name_server.disk.close_all()
        for machine in self.brokers:
            machine.close()

    async def restart(self, machines: Sequence[BrokerMachine]) -> None:
        """Start brokers again. Running ones are first stopped in order."""
        await self._stop(machines)
        await self._start(machines)

    async def kill(self, machines: Sequence[BrokerMachine], power_cut: bool) -> None:
        """End the running ones of these brokers, all at the same moment. Raises ClientStateError if none runs."""
        processes = [machine.cut_off(power_cut=power_cut) for machine in machines]
        killed = [process for process in processes if process is not None]
        if not killed:
            names = ", ".join(machine.plan.name for machine in machines)
            raise ClientStateError(f"{names} cannot be killed: no broker runs")
        # They are unreachable, but their threads have to end.
        await gatherResults([process.server.stopService() for process in killed])
        for process in killed:
            process.disk.close_all()

    async def listen(self, port: int) -> int:
        """Open sockets: the name server's port, 0 for any, and ports of restarted brokers. Return the name server's."""
        name_server = self._name_server
        assert name_server is not None
        name_server.reactor.open_for_real(port, port)
        number = name_server.server.server.listen(port)
        for machine in self.brokers:
            machine.listen()
        await self.restart(self.brokers)
        return number

    async def cut_connections(self, machines: Sequence[BrokerMachine], name_server: bool) -> None:
        """Break the connections of these brokers, and those of the name server."""
        processes = [machine.process for machine in machines]
        for process in processes:
            if process is not None:
                process.abort_connections()
        if name_server and self._name_server is not None:
            self._name_server.abort_connections()

    async def _start(self, machines: Iterable[BrokerMachine]) -> None:
        for machine in sorted(machines, key=_place):
            await machine.start(self._base)
            if machine.plan.is_slave:
                await self._join(machine)

    async def _stop(self, machines: Iterable[BrokerMachine]) -> None:
        # Slaves first: a master gives them the rest of its log.
        for machine in sorted(machines, key=_place, reverse=True):
            await machine.stop()

    # ------------------------------------------------------------ slaves

    async def _join(self, machine: BrokerMachine) -> None:
        """Return when the master has accepted a slave, and the slave has the master's topics."""
        slave, master = machine.running.server, self._master_of(machine)
        if master is None:
            return
        until = self._base.seconds() + JOIN_SECONDS
        connection = None
        while not _is_accepted(slave, master):
            now = slave.replication.slave.connection
            # A master closes the connection if the logs differ.
            if (connection is not None and now is not connection) or self._base.seconds() > until:
                _log.warn("{name} does not follow its master", name=machine.plan.name)
                return
            connection = now
            await deferLater(self._base, LOOK_SECONDS)
        await self._copy_tables(slave)

    def _master_of(self, machine: BrokerMachine) -> Broker | None:
        plan = machine.plan
        masters = (
            each for each in self.brokers if each.plan.broker_name == plan.broker_name and not each.plan.is_slave
        )
        process = next(masters).process
        return None if process is None else process.server

    async def _copy_tables(self, slave: Broker) -> None:
        await slave.replication.synchronize.synchronize()
        taken: Deferred[None] = Deferred()
        slave.dispatcher.pool("admin").call(partial(self._base.callFromThread, taken.callback, None))
        await taken

    # ------------------------------------------------------------ topics

    async def create_topic(self, config: TopicConfig, machines: Sequence[BrokerMachine]) -> None:
        """Create or change a topic on masters. Name server and slaves know it when this returns."""
        for broker in [machine.running.server for machine in machines]:
            made: Deferred[None] = Deferred()
            broker.dispatcher.pool("admin").call(partial(_create_topic, broker, config, made))
            await made
        names = {machine.plan.broker_name for machine in machines}
        for machine in self.brokers:
            if machine.plan.is_slave and machine.plan.broker_name in names and machine.process is not None:
                await self._copy_tables(machine.process.server)

    # ------------------------------------------------------------ running parts

    def running(self) -> Mapping[str, Broker]:
        """Return the running brokers by name."""
        processes = [(machine.plan.name, machine.process) for machine in self.brokers]
        return {name: process.server for name, process in processes if process is not None}

    def processes(self) -> list[BrokerProcess]:
        """Return the running brokers."""
        return [machine.process for machine in self.brokers if machine.process is not None]

    def servers(self) -> list[Broker | NameServer]:
        """Return the running servers."""
        name_server = self._name_server
        return [*(each.server for each in self.processes()), *([] if name_server is None else [name_server.server])]

    def reactors(self) -> list[VirtualReactor]:
        """Return the reactors of the running servers."""
        name_server = self._name_server
        return [*(each.reactor for each in self.processes()), *([] if name_server is None else [name_server.reactor])]


def _place(machine: BrokerMachine) -> int:
    return machine.plan.place


def _is_accepted(slave: Broker, master: Broker) -> bool:
    connection = slave.replication.slave.connection
    if connection is None:
        return False
    own = peer_of(connection.transport.getHost()).address
    return any(each.address == own for each in master.replication.master.slaves)


def _create_topic(broker: Broker, config: TopicConfig, made: "Deferred[None]") -> None:
    broker.topics.update(config, lambda _: broker.when_registered(lambda: made.callback(None)))
