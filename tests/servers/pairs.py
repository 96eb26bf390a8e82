"""A master and a slave as processes."""

from rocketd.remoting.bodies.tables import (
    KVTable,
)
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from tests.servers.load import Connection
from tests.support.server_processes import TOPIC, ServerProcesses

CATCH_UP_LIMIT = 60.0  # seconds


class Pair:
    """Name server, master and slave. ``master_settings`` and ``slave_settings`` are added to those of the brokers."""

    def __init__(self, directory, role="ASYNC_MASTER", **settings):
        (directory / "slave").mkdir()
        common = {"brokerIP2": "127.0.0.1", "registerNameServerPeriod": "10000", **settings}
        self.master_servers = ServerProcesses(directory, brokerRole=role, **common)
        self.slave_servers = ServerProcesses(directory / "slave", brokerRole="SLAVE", brokerId="1", **common)
        namesrv = self.slave_servers.namesrv_address = self.master_servers.namesrv_address
        self.slave_servers.broker_config["namesrvAddr"] = namesrv
        self.master_address = self.master_servers.broker_address
        self.slave_address = self.slave_servers.broker_address
        self.master = self.slave = None
        self.others = []

    def start(self):
        self.master_servers.start_namesrv()
        self.start_master()
        self.start_slave()

    def start_master(self):
        self.master = self.master_servers.start_broker()

    def start_slave(self):
        """Start the slave; returns when the master knows it."""
        self.slave = self.slave_servers.start_broker()
        self.await_slave()

    def await_slave(self):
        self.master.wait_for("the slave is there", lambda: slaves(self.master_address), CATCH_UP_LIMIT)

    def await_copy(self):
        """Return when the slave has every byte of the master's log, and both show it."""

        def is_copied():
            master, slave = (runtime(address) for address in (self.master_address, self.slave_address))
            same = master["commitLogMaxOffset"] == slave["commitLogMaxOffset"]
            return same and master["dispatchBehindBytes"] == slave["dispatchBehindBytes"] == "0"

        self.slave.wait_for("the slave has the log", is_copied, CATCH_UP_LIMIT)

    def await_topic(self):
        """Return when the slave knows the topic of the load, which it asks its master for every 10 s."""
        fields = {"topic": TOPIC}

        def is_known():
            return ask(self.slave_address, RequestCode.GET_TOPIC_STATS_INFO, fields).code == ResponseCode.SUCCESS

        self.slave.wait_for("the topic is copied", is_known, CATCH_UP_LIMIT)

    def check_same_logs(self):
        """The files of both logs are the same, but for files that hold nothing yet."""
        contents = []
        for servers in (self.master_servers, self.slave_servers):
            files = ((file.name, file.read_bytes()) for file in sorted((servers.store / "commitlog").iterdir()))
            contents.append({name: data for name, data in files if any(data)})
        assert contents[0] == contents[1]

    def end(self):
        for servers in self.others:
            servers.kill_all()
        self.slave_servers.kill_all()
        self.master_servers.kill_all()

    def logs(self):
        processes = (*self.master_servers.processes, *self.slave_servers.processes)
        processes += tuple(process for servers in self.others for process in servers.processes)
        return "".join(process.log.read_text() for process in processes)


def ask(address, code, fields=None, body=b""):
    connection = Connection(address)
    try:
        return connection.ask(RemotingCommand(code, fields or {}, body))
    finally:
        connection.close()


def runtime(address):
    return KVTable.decode(ask(address, RequestCode.GET_BROKER_RUNTIME_INFO).body).table


def slaves(address):
    """Reported offsets by the address of the slave."""
    table = runtime(address)
    return {name: int(offset) for name, offset in table.items() if name.startswith("haSlave_") and int(offset) >= 0}
