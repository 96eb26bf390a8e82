"""Name server and broker as child processes, to be killed, stopped and started again on the same store."""

import os
import subprocess
import sys
from pathlib import Path

import rocketd
from tests.support import wire
from tests.support.patience import PATIENT
from tests.support.ports import free_broker_port, free_port
from tests.support.process import ServerProcess

START_LIMIT = 120.0  # seconds
TOPIC = "LoadTest"
QUEUES = 4
SOURCES = str(Path(rocketd.__file__).parents[1])


class ServerProcesses:
    """Both servers in one directory. ``properties`` are more settings of the broker."""

    def __init__(self, directory: Path, **properties: str) -> None:
        self.directory = directory
        self.namesrv_address = f"127.0.0.1:{free_port()}"
        self.broker_address = f"127.0.0.1:{free_broker_port()}"
        host, _, port = self.broker_address.partition(":")
        self.ha_address = f"{host}:{int(port) + 1}"
        """The port for slaves."""
        self.store = directory / "store"
        self.broker_config = {
            "namesrvAddr": self.namesrv_address,
            "listenPort": port,
            "brokerIP1": "127.0.0.1",
            "brokerName": "broker-a",
            "storePathRootDir": str(self.store),
            "mappedFileSizeCommitLog": "1048576",
            "mappedFileSizeConsumeQueue": "60000",
            "diskMaxUsedSpaceRatio": "99",
            **PATIENT,
            **properties,
        }
        self.processes: list[ServerProcess] = []

    def start_namesrv(self) -> ServerProcess:
        """Start the name server; returns when it accepts connections."""
        process = self._spawn(
            "namesrv",
            {
                "listenPort": self.namesrv_address.partition(":")[2],
                "kvConfigPath": str(self.directory / "kvConfig.json"),
                "configStorePath": str(self.directory / "namesrv.properties"),
            },
        )
        process.wait_for("it accepts", lambda: wire.accepts(self.namesrv_address), START_LIMIT)
        return process

    def start_broker(self, *, registered: bool = True) -> ServerProcess:
        """Start the broker; returns when it accepts connections and, if wanted, is known to the name server."""
        process = self._spawn("broker", self.broker_config)
        process.wait_for("it accepts", lambda: wire.accepts(self.broker_address), START_LIMIT)
        if registered:
            process.wait_for("it is registered", self.is_registered, START_LIMIT)
        return process

    def is_registered(self) -> bool:
        """Whether the name server knows the broker."""
        return wire.has_broker(self.namesrv_address, self.broker_address)

    def run_broker(self, **changes: str) -> "subprocess.CompletedProcess[str]":
        """Run a broker that is expected to end by itself, with some settings changed."""
        config = self._write("failing", {**self.broker_config, **changes})
        return subprocess.run(
            self._command("broker", config),
            cwd=self.directory,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_LIMIT,
            check=False,
        )

    def kill_all(self) -> None:
        """Kill all running servers."""
        for process in self.processes:
            if process.exit_code is None:
                process.kill()

    def _spawn(self, name: str, config: dict[str, str]) -> ServerProcess:
        log = self.directory / f"{name}-{len(self.processes)}.log"
        command = self._command(name, self._write(name, config))
        process = ServerProcess(name, command, log, self.directory, self._environment())
        self.processes.append(process)
        return process

    def _write(self, name: str, config: dict[str, str]) -> Path:
        path = self.directory / f"{name}.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        return path

    def _command(self, name: str, config: Path) -> list[str]:
        twistd = str(Path(sys.executable).with_name("twistd"))
        return [sys.executable, twistd, "-n", "--pidfile", "", f"rocketd-{name}", "-c", str(config)]

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, (SOURCES, os.environ.get("PYTHONPATH"))))
        return {**os.environ, "PYTHONPATH": path, "HOME": str(self.directory)}
