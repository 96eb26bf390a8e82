"""The two sides of a comparison, each a name server, a broker, and a second broker for starts and recoveries.

rocketd's are its ``twistd`` commands from this checkout under the running interpreter, Apache's come from
``tests.support.apache``. Both get the settings in ``SETTINGS``; everything else is each side's default.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tests.support import apache, wire
from tests.support.ports import free_broker_port, free_port
from tests.support.process import ServerError, ServerProcess

# The commit log's default of 1 GB a file is only slower to create; topics are created by the generator.
SETTINGS = {
    "brokerClusterName": "DefaultCluster",
    "brokerId": "0",
    "brokerIP1": "127.0.0.1",
    "autoCreateTopicEnable": "true",
    "mappedFileSizeCommitLog": "268435456",
}
START_LIMIT = 120.0  # seconds until a server must serve
_STOP_LIMIT = 30.0
_CHECKOUT = Path(__file__).resolve().parents[1]
_ROCKETD = ("-m", "rocketd")
_TWISTD = ("-c", "from twisted.scripts.twistd import run; run()")


class Launcher(Protocol):
    """How one side starts its two processes; neither call waits for them to serve."""

    name: str

    def namesrv(self, directory: Path, port: int) -> ServerProcess:
        """A name server whose files are all below ``directory``."""

    def broker(self, directory: Path, port: int, settings: Mapping[str, str]) -> ServerProcess:
        """A broker with its store in ``directory``/store."""


class RocketdLauncher:
    """rocketd from this checkout; compiled Python files go below ``scratch``, so that they leave no trace in it."""

    name = "rocketd"

    def __init__(self, scratch: Path) -> None:
        """Take a directory that outlives the servers."""
        self._scratch = scratch

    def namesrv(self, directory: Path, port: int) -> ServerProcess:
        """``twistd rocketd-namesrv``."""
        config = {
            "listenPort": str(port),
            "kvConfigPath": f"{directory}/kvConfig.json",
            "configStorePath": f"{directory}/namesrv.properties",
        }
        return self._spawn("namesrv", directory, config)

    def broker(self, directory: Path, port: int, settings: Mapping[str, str]) -> ServerProcess:
        """``twistd rocketd-broker``."""
        config = {
            "listenPort": str(port),
            "haListenPort": str(port + 1),
            "storePathRootDir": f"{directory}/store",
            **settings,
        }
        return self._spawn("broker", directory, config)

    def up(self, directory: Path, flags: Sequence[str], options: Mapping[str, str]) -> ServerProcess:
        """``rocketd up`` with its files below ``directory``; ``options`` are settings of the servers."""
        settings = [text for key, value in options.items() for text in ("-o", f"{key}={value}")]
        command = [*_ROCKETD, "up", "--data", str(directory / "data"), *flags, *settings]
        return self._run("up", command, directory)

    def _spawn(self, name: str, directory: Path, config: Mapping[str, str]) -> ServerProcess:
        file = directory / f"{name}.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        return self._run(name, [*_TWISTD, "-n", "--pidfile=", f"rocketd-{name}", "-c", str(file)], directory)

    def _run(self, name: str, arguments: Sequence[str], directory: Path) -> ServerProcess:
        environment = {
            "PYTHONPATH": os.pathsep.join(filter(None, (str(_CHECKOUT), os.environ.get("PYTHONPATH")))),
            "PYTHONPYCACHEPREFIX": str(self._scratch / "pycache"),
            "PYTHONDONTWRITEBYTECODE": "",  # a start that compiles everything again is none that a user sees
        }
        command = [sys.executable, *arguments]
        return ServerProcess(f"rocketd-{name}", command, directory / f"{name}.log", directory, environment)


class ApacheLauncher:
    """Apache RocketMQ 4.9.7 on the JVM in PATH."""

    name = "Apache"

    def __init__(
        self, namesrv_jvm: Sequence[str] = apache.NAMESRV_HEAP, broker_jvm: Sequence[str] = apache.BROKER_HEAP
    ) -> None:
        """Take the options of the JVMs. By default the broker has a heap of 2 GB."""
        self._namesrv_jvm = namesrv_jvm
        self._broker_jvm = broker_jvm

    def namesrv(self, directory: Path, port: int) -> ServerProcess:
        """Its name server (this one is waited for)."""
        return apache.start_namesrv(directory, port, self._namesrv_jvm)

    def broker(self, directory: Path, port: int, settings: Mapping[str, str]) -> ServerProcess:
        """Its broker."""
        return apache.spawn_broker(directory, port, settings["namesrvAddr"], settings, self._broker_jvm)


class Side:
    """One side's servers. ``namesrv`` and ``broker`` serve after ``start``; ``spare`` is started and killed as measured."""

    def __init__(self, launcher: Launcher, directory: Path, settings: Mapping[str, str]) -> None:
        """Choose ports; ``settings`` are broker settings over ``SETTINGS``."""
        self.name = launcher.name
        self._launcher = launcher
        self._directory = directory
        self._settings = {**SETTINGS, **settings}
        self._namesrv_port = free_port()
        self._ports = {"broker-a": free_broker_port()}
        self._running: dict[str, ServerProcess] = {}
        self.namesrv_address = f"127.0.0.1:{self._namesrv_port}"
        self.broker_address = self.address("broker-a")

    def start(self) -> None:
        """Start name server and broker and return once the broker is in the route."""
        self.start_namesrv()
        self.await_route(self.spawn("broker-a"), self.broker_address)

    def start_namesrv(self) -> None:
        """Start the name server alone and return once it serves."""
        directory = self._fresh("namesrv")
        namesrv = self._running["namesrv"] = self._launcher.namesrv(directory, self._namesrv_port)
        namesrv.wait_for("its port accepts", lambda: wire.accepts(self.namesrv_address), START_LIMIT)

    def store(self, broker: str) -> Path:
        """The store directory of a broker of this side, whether it is there or not."""
        return self._directory / broker / "store"

    def address(self, broker: str) -> str:
        """``host:port`` of a broker of this side, whether it runs or not."""
        if broker not in self._ports:
            self._ports[broker] = free_broker_port()
        return f"127.0.0.1:{self._ports[broker]}"

    def spawn(self, broker: str, own: Mapping[str, str] | None = None) -> ServerProcess:
        """Start the broker of that name, on the store that it left if there is one; returns at once.

        ``own`` are settings of this broker alone.
        """
        self.address(broker)
        settings = {**self._settings, "brokerName": broker, "namesrvAddr": self.namesrv_address, **(own or {})}
        process = self._launcher.broker(self._fresh(broker), self._ports[broker], settings)
        self._running[broker] = process
        return process

    def await_route(self, process: ServerProcess, address: str) -> None:
        """Return once the name server lists the broker at ``address``; ServerError when that does not come."""
        listed = f"{address} is in the route"
        process.wait_for(listed, lambda: wire.has_broker(self.namesrv_address, address), START_LIMIT)

    def pid(self, server: str) -> int:
        """The process id of ``namesrv`` or of a broker by its name; ServerError when it has ended."""
        process = self._running[server]
        if process.exit_code is not None:
            raise ServerError(f"{process.name} ended with {process.exit_code}\n{process.log}:\n{process.tail()}")
        return process.pid

    def kill(self, server: str) -> None:
        """SIGKILL to one of them, and wait for its end."""
        self._running.pop(server).kill()

    def end(self, server: str) -> None:
        """SIGTERM to one of them, and wait for its end; ServerError when that does not come."""
        self._running.pop(server).stop(_STOP_LIMIT)

    def stop(self) -> None:
        """SIGTERM to all that run, brokers first; ServerError when one does not end by itself."""
        while self._running:
            self._running.popitem()[1].stop(_STOP_LIMIT)

    def kill_all(self) -> None:
        """SIGKILL to all that run: the way out when something went wrong."""
        while self._running:
            self._running.popitem()[1].kill()

    def tracebacks(self) -> dict[str, int]:
        """How many Python tracebacks each of its logs has, for those that have any."""
        counts = {
            str(log.relative_to(self._directory)): log.read_text(errors="replace").count("Traceback (most recent call")
            for log in sorted(self._directory.glob("*/*.log"))
        }
        return {log: count for log, count in counts.items() if count}

    def _fresh(self, name: str) -> Path:
        directory = self._directory / name
        directory.mkdir(parents=True, exist_ok=True)
        return directory
