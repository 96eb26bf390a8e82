"""The systemd units in etc/: checked by systemd, and their commands run as a machine with these paths would run them."""

import configparser
import importlib.util
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import wire
from tests.support.lacking import end_test_lacking
from tests.support.patience import PATIENT
from tests.support.places import ROOT
from tests.support.ports import free_broker_port, free_port
from tests.support.process import ServerProcess
from tests.support.server_processes import SOURCES, START_LIMIT

UNITS = ROOT / "etc" / "systemd"
NAMES = sorted(path.name for path in UNITS.iterdir())
HOST = "host"
HIGHEST_EXPOSURE = 20
"""In tenths. systemd calls a service below 2.0 OK."""
PROGRAM = "/opt/rocketd/bin/rocketd"


class Manager:
    """The socket of a service manager. Collects the messages of the processes."""

    def __init__(self, directory):
        self.path = str(directory / "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.setblocking(False)
        self.lines = []

    def has(self, *lines):
        try:
            while True:
                self.lines += self._socket.recv(4096).decode().split("\n")
        except BlockingIOError:
            return all(line in self.lines for line in lines)

    def close(self):
        self._socket.close()


class Machine:
    """A directory in place of the machine's, and the processes of its units."""

    def __init__(self, directory):
        self.directory = directory
        self.processes = []

    def configuration(self, name, **settings):
        (self.directory / f"{name}.conf").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def start(self, unit, instance="", **environment):
        """Run the command of a unit, with the log as its journal."""
        parser = configparser.ConfigParser(strict=False, interpolation=None)
        parser.optionxform = str
        parser.read(UNITS / unit)
        line = parser["Service"]["ExecStart"].replace("%i", instance).replace("%l", HOST)
        for path, here in (
            (PROGRAM, Path(sys.executable).with_name("rocketd")),
            ("/etc/rocketd", self.directory),
            ("/var/lib/rocketd", self.directory / "state"),
        ):
            assert path in line or path == "/var/lib/rocketd"
            line = line.replace(path, str(here))
        log = self.directory / f"{unit}-{instance}.log"
        log.touch()
        journal = f"{log.stat().st_dev}:{log.stat().st_ino}"
        variables = {**os.environ, "PYTHONPATH": SOURCES, "JOURNAL_STREAM": journal, **environment}
        process = ServerProcess(unit, shlex.split(line), log, self.directory, variables)
        self.processes.append(process)
        return process


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    try:
        yield machine
    finally:
        for process in machine.processes:
            process.kill()


@pytest.fixture
def manager(tmp_path):
    manager = Manager(tmp_path)
    yield manager
    manager.close()


def systemd_analyze(*words):
    if shutil.which("systemd-analyze") is None:
        end_test_lacking("needs systemd-analyze: apt install systemd")
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, timeout=START_LIMIT, check=False)


def test_units_run_one_cluster_with_two_brokers(machine):
    namesrv = f"127.0.0.1:{free_port()}"
    machine.configuration("namesrv", listenPort=namesrv.partition(":")[2])
    server = machine.start("rocketd-namesrv.service")
    server.wait_for("it accepts", lambda: wire.accepts(namesrv), START_LIMIT)
    machine.configuration("broker", namesrvAddr=namesrv, brokerIP1="127.0.0.1", **PATIENT)
    first = free_broker_port(2)
    for number in range(2):
        broker = machine.start("rocketd-broker@.service", str(number), ROCKETD_FIRST_PORT=str(first))
        address = f"127.0.0.1:{first + 10 * number}"
        broker.wait_for("it is registered", lambda: wire.has_broker(namesrv, address), START_LIMIT)  # noqa: B023
        assert (machine.directory / "state" / f"broker-{number}" / "commitlog").is_dir()


def test_service_manager_hears_of_start_life_reload_and_stop(machine, manager):
    port = free_broker_port()
    machine.configuration("broker", brokerIP1="127.0.0.1", **PATIENT)
    broker = machine.start(
        "rocketd-broker@.service",
        "0",
        ROCKETD_FIRST_PORT=str(port),
        NOTIFY_SOCKET=manager.path,
        WATCHDOG_USEC="3000000",
    )
    status = f"STATUS=broker {HOST}-0 serves at 127.0.0.1:{port}"
    broker.wait_for("it is ready and alive", lambda: manager.has("READY=1", status, "WATCHDOG=1"), START_LIMIT)
    assert wire.accepts(f"127.0.0.1:{port}")
    manager.lines.clear()
    os.kill(broker.pid, signal.SIGHUP)
    broker.wait_for("it has reloaded", lambda: manager.has("RELOADING=1", "READY=1"), START_LIMIT)
    assert broker.stop() == 0
    assert manager.has("STOPPING=1")
    lines = broker.log.read_text().splitlines()
    assert [line for line in lines if line.startswith("<6>[rocketd.broker.service") and "serves on port" in line]
    assert [line for line in lines if not line.startswith("<")] == []


def test_console_unit_is_ready_and_stops(machine, manager):
    for package in ("klein", "jinja2"):
        if importlib.util.find_spec(package) is None:
            end_test_lacking(f"needs {package}: pip install -e '.[console]'")
    machine.configuration("console", namesrvAddr="127.0.0.1:1", consolePort="0")
    console = machine.start("rocketd-console.service", NOTIFY_SOCKET=manager.path)
    console.wait_for("it is ready", lambda: manager.has("READY=1"), START_LIMIT)
    assert console.stop() == 0
    assert [line for line in console.log.read_text().splitlines() if not line.startswith("<")] == []


def test_failed_start_of_a_unit_ends_with_status_1_and_is_never_ready(machine, manager):
    machine.configuration("namesrv", listenPort="no number")
    server = machine.start("rocketd-namesrv.service", NOTIFY_SOCKET=manager.path)
    assert server.wait() == 1
    assert not manager.has("READY=1")
    assert "listenPort = no number" in server.tail()


@pytest.mark.parametrize("name", NAMES)
def test_unit_passes_checks_of_systemd_and_exposes_little(name, tmp_path):
    done = systemd_analyze("security", "--offline=yes", f"--threshold={HIGHEST_EXPOSURE}", str(UNITS / name))
    assert done.returncode == 0, done.stdout
    program = tmp_path / "rocketd"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    # With another name than that of a unit which may be installed here.
    unit = tmp_path / name.replace("rocketd", "checked")
    unit.write_text((UNITS / name).read_text().replace(PROGRAM, str(program)))
    done = systemd_analyze("verify", "--man=no", str(unit))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
