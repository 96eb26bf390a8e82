"""The servers that the interop ring drives: rocketd's two twistd commands, each a process of its own."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import rocketd
from benchmarks.peers import wire
from benchmarks.peers.ports import free_broker_port, free_port
from benchmarks.peers.process import ServerProcess

START_LIMIT = 60.0  # seconds
_SIGNS_OF_TROUBLE = ("Traceback (most recent call last)", "Unhandled Error")
_SOURCES = Path(rocketd.__file__).parents[1]


class RocketdCluster:
    """A name server and one broker in ``directory``; ``namesrv_address`` and ``broker_address`` are ``host:port``."""

    def __init__(self, directory: Path, properties: Mapping[str, str] | None = None) -> None:
        """Choose free ports and write the two configuration files; ``properties`` are more for the broker."""
        self.directory = directory
        namesrv_port, broker_port = free_port(), free_broker_port()
        self.namesrv_address = f"127.0.0.1:{namesrv_port}"
        self.broker_address = f"127.0.0.1:{broker_port}"
        self._configure(
            "namesrv",
            {
                "listenPort": str(namesrv_port),
                "kvConfigPath": f"{directory}/kvConfig.json",
                "configStorePath": f"{directory}/namesrv.properties",
            },
        )
        self._configure(
            "broker",
            {
                "brokerName": "broker-a",
                "brokerClusterName": "DefaultCluster",
                "brokerId": "0",
                "namesrvAddr": self.namesrv_address,
                "listenPort": str(broker_port),
                "brokerIP1": "127.0.0.1",
                "storePathRootDir": f"{directory}/store",
                "autoCreateTopicEnable": "true",
                "mappedFileSizeCommitLog": "67108864",
                **(properties or {}),
            },
        )
        self.processes: list[ServerProcess] = []

    def start(self) -> None:
        """Start both; returns once the broker is in the route. Nothing is left running when that fails."""
        try:
            namesrv = self._spawn("namesrv")
            address = self.namesrv_address
            namesrv.wait_for(f"{address} accepts", lambda: wire.accepts(address), START_LIMIT)
            broker = self._spawn("broker")
            address = self.broker_address
            broker.wait_for(f"{address} accepts", lambda: wire.accepts(address), START_LIMIT)
            broker.wait_for(
                f"{address} is in the route", lambda: wire.has_broker(self.namesrv_address, address), START_LIMIT
            )
        except BaseException:
            for process in self.processes:
                process.kill()
            raise

    def stop(self) -> None:
        """Stop both, the broker first, by SIGTERM; AssertionError unless both end with 0 and logged no traceback."""
        exits = {process.name: process.stop() for process in reversed(self.processes)}
        assert exits == dict.fromkeys(exits, 0), exits
        for process in self.processes:
            log = process.log.read_text(errors="replace")
            for sign in _SIGNS_OF_TROUBLE:
                assert sign not in log, f"{process.log}:\n{log[log.index(sign) - 500 :][:4000]}"

    def _configure(self, name: str, config: Mapping[str, str]) -> None:
        (self.directory / name).mkdir(parents=True)
        text = "".join(f"{key}={value}\n" for key, value in config.items())
        (self.directory / name / f"{name}.conf").write_text(text)

    def _spawn(self, name: str) -> ServerProcess:
        cwd = self.directory / name
        twistd = Path(sys.executable).with_name("twistd")
        path = os.pathsep.join(filter(None, (str(_SOURCES), os.environ.get("PYTHONPATH"))))
        process = ServerProcess(
            f"rocketd-{name}",
            [sys.executable, str(twistd), "-n", f"rocketd-{name}", "-c", str(cwd / f"{name}.conf")],
            cwd / f"{name}.log",
            cwd,
            {"PYTHONPATH": path, "HOME": str(cwd)},
        )
        self.processes.append(process)
        return process
