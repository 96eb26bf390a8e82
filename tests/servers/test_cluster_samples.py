"""Brokers that run the sample files of clusters, and daemons that the commands of the guide start and stop."""

import os
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from rocketd.remoting.bodies.tables import ClusterInfo, KVTable, TopicRouteData
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from tests.servers.load import await_dispatched, message, pull_all
from tests.support import wire
from tests.support.patience import PATIENT
from tests.support.places import ROOT
from tests.support.ports import free_broker_port, free_port
from tests.support.process import ServerProcess
from tests.support.server_processes import SOURCES

PAGE = ROOT / "docs" / "howto" / "start-and-stop.md"
LIMIT = 120.0  # seconds
SETS = {
    "2m-2s-async": ("ASYNC_MASTER", {"broker-a": 2, "broker-b": 2}),
    "2m-2s-sync": ("SYNC_MASTER", {"broker-a": 2, "broker-b": 2}),
    "2m-noslave": ("ASYNC_MASTER", {"broker-a": 1, "broker-b": 1, "broker-trace": 1}),
}
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


def environment(directory):
    path = os.pathsep.join(filter(None, (SOURCES, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "HOME": str(directory)}


def options(**settings):
    return [word for key, value in settings.items() for word in ("--option", f"{key}={value}")]


class SampleCluster:
    """A name server, and brokers with the files of one directory below etc/, each with a free port and a new store."""

    def __init__(self, directory, name):
        self.directory = directory
        self.samples = ROOT / "etc" / name
        self.namesrv_address = f"127.0.0.1:{free_port()}"
        self.addresses = {}
        self.processes = {}

    def start_namesrv(self):
        port = self.namesrv_address.partition(":")[2]
        settings = {"listenPort": port, "kvConfigPath": str(self.directory / "kvConfig.json")}
        process = self._spawn("namesrv", "rocketd-namesrv", ROOT / "etc" / "namesrv.conf", options(**settings))
        process.wait_for("it accepts", lambda: wire.accepts(self.namesrv_address), LIMIT)

    def start_broker(self, file):
        name = file.stem
        self.addresses[name] = f"127.0.0.1:{free_broker_port()}"
        settings = {
            "listenPort": self.addresses[name].partition(":")[2],
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "storePathRootDir": str(self.directory / name),
            "mappedFileSizeCommitLog": "1048576",
            "mappedFileSizeConsumeQueue": "60000",
            "diskMaxUsedSpaceRatio": "99",
            "registerNameServerPeriod": "10000",
            **PATIENT,
        }
        arguments = ["--namesrv-addr", self.namesrv_address, *options(**settings)]
        self._spawn(name, "rocketd-broker", file, arguments)

    def await_registered(self, name):
        """Return when the name server knows the broker."""
        address = self.addresses[name]
        self.processes[name].wait_for("it is registered", lambda: wire.has_broker(self.namesrv_address, address), LIMIT)

    def start_all(self):
        """Start masters, then slaves; returns when all are registered and every slave follows its master."""
        self.start_namesrv()
        files = sorted(self.samples.iterdir())
        slaves = [file for file in files if file.stem.endswith("-s")]
        for group in ([file for file in files if file not in slaves], slaves):
            for file in group:
                self.start_broker(file)
            for file in group:
                self.await_registered(file.stem)
        for file in slaves:
            master = self.addresses[file.stem.removesuffix("-s")]
            self.processes[file.stem].wait_for("it follows its master", partial(has_slave, master), LIMIT)

    def await_copy(self, master, slave):
        """Return when the slave has every byte of the master's log, and serves it."""

        def is_copied():
            offsets = {runtime(self.addresses[name])["commitLogMaxOffset"] for name in (master, slave)}
            return len(offsets) == 1

        self.processes[slave].wait_for("it has the log", is_copied, LIMIT)
        await_dispatched(self.addresses[slave])

    def end(self):
        for process in self.processes.values():
            if process.exit_code is None:
                process.kill()

    def _spawn(self, name, command, file, arguments):
        twistd = str(Path(sys.executable).with_name("twistd"))
        words = [sys.executable, twistd, "-n", "--pidfile=", command, "--config", str(file), *arguments]
        log = self.directory / f"{name}.log"
        self.processes[name] = ServerProcess(name, words, log, self.directory, environment(self.directory))
        return self.processes[name]


def runtime(address):
    return KVTable.decode(wire.call(address, RequestCode.GET_BROKER_RUNTIME_INFO).body).table


def has_slave(address):
    return any(name.startswith("haSlave_") and int(offset) >= 0 for name, offset in runtime(address).items())


def broker_config(address):
    text = wire.call(address, RequestCode.GET_BROKER_CONFIG).body.decode()
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


@pytest.fixture
def make_cluster(tmp_path):
    made = []

    def make(name):
        made.append(SampleCluster(tmp_path, name))
        made[0].start_all()
        return made[0]

    yield make
    for cluster in made:
        cluster.end()
        for process in cluster.processes.values():
            assert "Traceback" not in process.log.read_text()


def bodies(address):
    return [stored.body for stored in pull_all(address, 0)]


def brokers_with_trace_topic(namesrv):
    answer = wire.call(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TRACE_TOPIC})
    return [data.broker_name for data in TopicRouteData.decode(answer.body or b"{}").broker_datas]


def send(address):
    command = message("single", 0)
    return wire.call(address, command.code, command.ext_fields, command.body).code


@pytest.mark.parametrize("name", sorted(SETS))
def test_sample_set_makes_one_cluster_with_replicating_slaves(name, make_cluster):
    role, brokers = SETS[name]
    cluster = make_cluster(name)
    info = ClusterInfo.decode(wire.call(cluster.namesrv_address, RequestCode.GET_BROKER_CLUSTER_INFO).body)
    assert info.cluster_addr_table == {"DefaultCluster": set(brokers)}
    for broker, count in brokers.items():
        master = cluster.addresses[broker]
        assert broker_config(master)["brokerRole"] == role
        assert send(master) == ResponseCode.SUCCESS
        expected = {0: master}
        if count == 2:
            slave = expected[1] = cluster.addresses[f"{broker}-s"]
            cluster.await_copy(broker, f"{broker}-s")
            assert bodies(slave) == bodies(master)
            assert len(bodies(slave)) == 1
        assert info.broker_addr_table[broker].broker_addrs == expected
    assert brokers_with_trace_topic(cluster.namesrv_address) == [name for name in brokers if name == "broker-trace"]
    assert {process.stop() for process in reversed(cluster.processes.values())} == {0}


def commands_of_the_page():
    """The page's commands that start, stop and reload daemons, in its order."""
    return [line for line in PAGE.read_text().splitlines() if line.startswith(("twistd --pidfile=", "kill "))]


def await_true(condition, limit=LIMIT):
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, f"waited {limit:g} s in vain"
        threading.Event().wait(0.05)


class Daemons:
    """Runs lines of the page in bash, each with further words, and knows the processes of the daemons they start."""

    def __init__(self, directory):
        self._directory = directory
        self._ends = {}

    def run(self, line, words=()):
        result = subprocess.run(
            ["bash", "-c", f"{line} {shlex.join(words)}"],
            cwd=self._directory,
            env={**environment(self._directory), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert (result.returncode, result.stderr) == (0, ""), line

    def start(self, line, words):
        """Run a line that starts a daemon."""
        self.run(line, words)
        (name,) = (word.partition("=")[2] for word in shlex.split(line) if word.startswith("--pidfile="))
        file = self._directory / name
        self._ends[file] = os.pidfd_open(int(file.read_text()))

    def stop(self, line):
        """Run a line that stops a daemon, and wait for the end of the process; it removes its file."""
        self.run(line)
        file = self._directory / line.partition("cat ")[2].rstrip(")")
        end = self._ends[file]
        assert select.select([end], [], [], LIMIT)[0], line
        assert not file.exists()

    def end(self):
        for end in self._ends.values():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(end, signal.SIGKILL)
            os.close(end)


@pytest.fixture
def daemons(tmp_path):
    made = Daemons(tmp_path)
    yield made
    made.end()


def test_commands_of_the_page_start_reload_and_stop_daemons(daemons, tmp_path):
    (tmp_path / "etc").symlink_to(ROOT / "etc")
    namesrv, broker = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_broker_port()}"
    start_namesrv, start_broker, stop_broker, stop_namesrv, reload_broker = commands_of_the_page()
    # Other ports than those of the sample files: these may be in use.
    daemons.start(start_namesrv, options(listenPort=namesrv.partition(":")[2]))
    assert wire.accepts(namesrv)
    settings = {
        "listenPort": broker.partition(":")[2],
        "namesrvAddr": namesrv,
        "brokerIP1": "127.0.0.1",
        "diskMaxUsedSpaceRatio": "99",
    }
    daemons.start(start_broker, options(**settings))
    await_true(lambda: wire.has_broker(namesrv, broker))
    daemons.run(reload_broker)
    await_true(lambda: "SIGHUP" in (tmp_path / "broker.log").read_text())
    daemons.stop(stop_broker)
    assert not wire.has_broker(namesrv, broker)
    assert not (tmp_path / "store" / "abort").exists()
    daemons.stop(stop_namesrv)
    assert {log.name for log in tmp_path.glob("*.log")} == {"namesrv.log", "broker.log"}
    assert "Traceback" not in "".join(log.read_text() for log in tmp_path.glob("*.log"))
