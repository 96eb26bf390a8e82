"""The servers of the interop ring: rocketd's two twistd commands, each as a child process."""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import rocketd
from tests.support import wire
from tests.support.patience import PATIENT
from tests.support.ports import free_broker_port, free_port
from tests.support.process import ServerProcess

START_LIMIT = 120.0  # seconds
_SIGNS_OF_TROUBLE = ("Traceback (most recent call last)", "Unhandled Error")
_SOURCES = Path(rocketd.__file__).parents[1]


def start_namesrv(directory: Path, port: int, properties: Mapping[str, str] | None = None) -> ServerProcess:
    """Start a name server on 127.0.0.1 whose files are all below ``directory``; returns once its port accepts."""
    config = {
        "listenPort": str(port),
        "kvConfigPath": f"{directory}/kvConfig.json",
        "configStorePath": f"{directory}/namesrv.properties",
        **(properties or {}),
    }
    server = _spawn("namesrv", directory, config)
    _await(server, f"port {port} accepts", lambda: wire.accepts(f"127.0.0.1:{port}"))
    return server


def start_broker(
    directory: Path, port: int, namesrv: str, properties: Mapping[str, str] | None = None
) -> ServerProcess:
    """Start a broker, its store in ``directory``/store; returns once its port accepts and ``namesrv`` lists it."""
    config = {
        "brokerName": "broker-a",
        "brokerClusterName": "DefaultCluster",
        "brokerId": "0",
        "namesrvAddr": namesrv,
        "listenPort": str(port),
        "brokerIP1": "127.0.0.1",
        "storePathRootDir": f"{directory}/store",
        "autoCreateTopicEnable": "true",
        "mappedFileSizeCommitLog": "67108864",
        **PATIENT,
        **(properties or {}),
    }
    server = _spawn("broker", directory, config)
    _await(server, f"port {port} accepts", lambda: wire.accepts(f"127.0.0.1:{port}"))
    host = config["brokerIP1"]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    _await(server, f"{address} is in the route", lambda: wire.has_broker(namesrv, address))
    return server


def check_log(process: ServerProcess) -> None:
    """AssertionError when a server logged a traceback."""
    log = process.log.read_text(errors="replace")
    for sign in _SIGNS_OF_TROUBLE:
        assert sign not in log, f"{process.log}:\n{log[max(0, log.index(sign) - 500) :][:4000]}"


def _spawn(name: str, directory: Path, config: Mapping[str, str]) -> ServerProcess:
    cwd = directory / name
    cwd.mkdir(parents=True, exist_ok=True)
    file = cwd / f"{name}.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    twistd = Path(sys.executable).with_name("twistd")
    path = os.pathsep.join(filter(None, (str(_SOURCES), os.environ.get("PYTHONPATH"))))
    return ServerProcess(
        f"rocketd-{name}",
        # Without a pid file, which one that is killed would leave.
        [sys.executable, str(twistd), "-n", "--pidfile", "", f"rocketd-{name}", "-c", str(file)],
        cwd / f"{name}.log",
        cwd,
        {"PYTHONPATH": path, "HOME": str(cwd)},
    )


def _await(server: ServerProcess, what: str, condition: Callable[[], bool]) -> None:
    try:
        server.wait_for(what, condition, START_LIMIT)
    except BaseException:
        server.kill()
        raise


class RocketdCluster:
    """A name server and one broker in ``directory``; ``namesrv_address`` and ``broker_address`` are ``host:port``."""

    def __init__(self, directory: Path, properties: Mapping[str, str] | None = None) -> None:
        """Choose free ports; ``properties`` are more for the broker."""
        self.directory = directory
        namesrv_port, broker_port = free_port(), free_broker_port()
        self.namesrv_address = f"127.0.0.1:{namesrv_port}"
        self.broker_address = f"127.0.0.1:{broker_port}"
        self._ports = namesrv_port, broker_port
        self._properties = dict(properties or {})
        self.processes: list[ServerProcess] = []

    def start(self) -> None:
        """Start both; returns once the broker is in the route. Nothing is left running when that fails."""
        namesrv_port, broker_port = self._ports
        self.processes.append(start_namesrv(self.directory, namesrv_port))
        try:
            self.processes.append(start_broker(self.directory, broker_port, self.namesrv_address, self._properties))
        except BaseException:
            self.processes[0].kill()
            raise

    def stop(self) -> None:
        """Stop both, the broker first, by SIGTERM; AssertionError unless both end with 0 and logged no traceback."""
        exits = {process.name: process.stop() for process in reversed(self.processes)}
        assert exits == dict.fromkeys(exits, 0), exits
        for process in self.processes:
            check_log(process)
