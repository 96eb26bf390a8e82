"""Apache RocketMQ's own name server and broker (4.9.7), run from jars that Maven fetches.

Used as the peer in benchmarks, and as the servers against which the interop programs are proved.
``python -m tests.support.apache --namesrv-port P --broker-port Q --dir D`` runs them in the foreground.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.support import wire
from tests.support.jars import jars_of
from tests.support.ports import free_broker_port, free_port
from tests.support.process import ServerError, ServerProcess
from tests.support.quick_java import COMPILER, WRITES, directory_of_archives, read_archive, write_archive

VERSION = "4.9.7"
START_LIMIT = 120.0  # seconds; a JVM on a busy machine takes its time

_POM = Path(__file__).with_name("apache.pom.xml")

# Without these a JVM of 17 refuses the reflection that the broker does on buffers and on Netty's behalf.
_OPENED = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
)
NAMESRV_HEAP = ("-Xms256m", "-Xmx512m")
BROKER_HEAP = ("-Xms2g", "-Xmx2g", "-XX:MaxDirectMemorySize=2g")

_LOOPBACK = "127.0.0.1"
_LOGBACK = '<configuration><root level="WARN"/></configuration>\n'


def fetch_jars() -> Path:
    """The directory of the jars, filled by Maven the first time; PeerUnavailableError when that cannot be."""
    return jars_of(_POM, f"apache-{VERSION}")


def _start(name: str, main: str, directory: Path, config: Mapping[str, str], jvm: Sequence[str]) -> ServerProcess:
    jars = fetch_jars()
    home = directory / "home"
    (home / "conf").mkdir(parents=True, exist_ok=True)
    for logger in ("namesrv", "broker", "tools"):
        (home / "conf" / f"logback_{logger}.xml").write_text(_LOGBACK)
    file = directory / f"{name}.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    properties = [f"-Drocketmq.home.dir={home}", f"-Duser.home={directory}"]
    # Not in benchmarks, which have the JVM as it is, nor in the runs that write the archives.
    if set(COMPILER) <= set(jvm) and not any(option.startswith(WRITES) for option in jvm):
        archives = directory_of_archives(jars.parent, jars.name, _write_archives)
        jvm = (*jvm, *read_archive(archives / f"{name}.jsa"))
    command = ["java", *_OPENED, *jvm, *properties, "-cp", f"{jars}/*", main, "-c", str(file)]
    return ServerProcess(f"Apache's {name}", command, directory / f"{name}.log", directory)


def _write_archives(directory: Path) -> None:
    """Write the classes of both servers into files named after them."""

    def jvm(name: str) -> tuple[str, ...]:
        return ("-Xms128m", "-Xmx512m", *COMPILER, *write_archive(directory / f"{name}.jsa"))

    port, broker_port = free_port(), free_broker_port()
    with tempfile.TemporaryDirectory() as files, contextlib.ExitStack() as running:
        namesrv = start_namesrv(Path(files), port, jvm("namesrv"))
        running.callback(namesrv.stop)
        properties = {"mappedFileSizeCommitLog": "1048576"}
        broker = start_broker(Path(files), broker_port, f"{_LOOPBACK}:{port}", properties, jvm("broker"))
        running.callback(broker.stop)


def start_namesrv(directory: Path, port: int, jvm: Sequence[str] = NAMESRV_HEAP) -> ServerProcess:
    """Start a name server whose files are all below ``directory``; returns once its port accepts."""
    _require_free(port)
    config = {
        "listenPort": str(port),
        "kvConfigPath": f"{directory}/kvConfig.json",
        "configStorePath": f"{directory}/namesrv.properties",
    }
    server = _start("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", directory, config, jvm)
    _await(server, f"port {port} accepts", lambda: wire.accepts(f"127.0.0.1:{port}"))
    return server


def spawn_broker(
    directory: Path,
    port: int,
    namesrv: str,
    properties: Mapping[str, str] | None = None,
    jvm: Sequence[str] = BROKER_HEAP,
) -> ServerProcess:
    """Start a master broker on 127.0.0.1, its store in ``directory``/store, ``properties`` over the ones given here.

    Returns at once, so that a caller can measure the time until the broker serves.
    """
    _require_free(port)
    config = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": "0",
        "brokerIP1": _LOOPBACK,
        "namesrvAddr": namesrv,
        "listenPort": str(port),
        "haListenPort": str(port + 1),
        "storePathRootDir": f"{directory}/store",
        "autoCreateTopicEnable": "true",
        "mappedFileSizeCommitLog": "268435456",
        **(properties or {}),
    }
    return _start("broker", "org.apache.rocketmq.broker.BrokerStartup", directory, config, jvm)


def start_broker(
    directory: Path,
    port: int,
    namesrv: str,
    properties: Mapping[str, str] | None = None,
    jvm: Sequence[str] = BROKER_HEAP,
) -> ServerProcess:
    """Start a broker as ``spawn_broker`` does, and return once it serves.

    That is: its port accepts and the name server ``namesrv`` (``host:port``) lists it.
    """
    server = spawn_broker(directory, port, namesrv, properties, jvm)
    address = f"{(properties or {}).get('brokerIP1', _LOOPBACK)}:{port}"
    _await(server, f"{address} accepts", lambda: wire.accepts(address))
    _await(server, f"{address} is in the route", lambda: wire.has_broker(namesrv, address))
    return server


def _require_free(port: int) -> None:
    # Otherwise another listener on the port would pass for the server that could not start.
    if wire.accepts(f"127.0.0.1:{port}"):
        raise ServerError(f"port {port} is in use")


def _await(server: ServerProcess, what: str, condition: Callable[[], bool]) -> None:
    try:
        server.wait_for(what, condition, START_LIMIT)
    except BaseException:
        server.kill()
        raise


class ApacheCluster:
    """A name server and one master broker, both of Apache's, on loopback; a context manager.

    ``namesrv`` and ``broker`` are their processes, ``namesrv_address`` and ``broker_address`` are ``host:port``.
    """

    def __init__(
        self,
        directory: Path,
        namesrv_port: int | None = None,
        broker_port: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Take the settings of a start; ports that are not given are free ones."""
        self.directory = directory
        self.namesrv_port = namesrv_port or free_port()
        self.broker_port = broker_port or free_broker_port()
        self.properties = dict(properties or {})
        self.namesrv_address = f"127.0.0.1:{self.namesrv_port}"
        self.broker_address = f"127.0.0.1:{self.broker_port}"
        self.namesrv: ServerProcess | None = None
        self.broker: ServerProcess | None = None

    def start(self) -> None:
        """Start both and return once the broker is in the route; nothing is left running when that fails."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.namesrv = start_namesrv(self.directory, self.namesrv_port)
        try:
            self.start_broker()
        except BaseException:
            self.namesrv.kill()
            raise

    def start_broker(self) -> None:
        """Start the broker (again) on the same store."""
        self.broker = start_broker(self.directory, self.broker_port, self.namesrv_address, self.properties)

    def stop(self) -> None:
        """End both with SIGTERM, the broker first."""
        for server in (self.broker, self.namesrv):
            if server is not None:
                server.stop()

    def kill(self) -> None:
        """End both with SIGKILL."""
        for server in (self.broker, self.namesrv):
            if server is not None:
                server.kill()

    def __enter__(self) -> ApacheCluster:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    def leave(*_: object) -> None:
        sys.exit(0)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen servers until one ends or a signal comes; prints one JSON line once they are ready."""
    parser = argparse.ArgumentParser(description="Run Apache RocketMQ's own servers on loopback, in the foreground.")
    parser.add_argument("--namesrv-port", type=int, help="start a name server on this port")
    parser.add_argument("--broker-port", type=int, help="start a broker on this port (it also takes it - 2 and it + 1)")
    parser.add_argument("--namesrv-addr", help="name server of the broker; default: the one started here")
    parser.add_argument("--dir", type=Path, required=True, help="where logs, configuration and store go")
    parser.add_argument("-o", "--option", action="append", default=[], metavar="KEY=VALUE", help="broker property")
    given = parser.parse_args(arguments)
    namesrv = given.namesrv_addr or (f"127.0.0.1:{given.namesrv_port}" if given.namesrv_port else None)
    if given.namesrv_port is None and given.broker_port is None:
        parser.error("nothing to start: give --namesrv-port, --broker-port or both")
    if given.broker_port is not None and namesrv is None:
        parser.error("a broker needs --namesrv-addr or --namesrv-port")
    directory = given.dir.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    running: dict[str, ServerProcess] = {}
    with _ended_by_signals():
        try:
            if given.namesrv_port is not None:
                running["namesrv"] = start_namesrv(directory, given.namesrv_port)
            if given.broker_port is not None:
                properties = dict(option.split("=", 1) for option in given.option)
                running["broker"] = start_broker(directory, given.broker_port, str(namesrv), properties)
            pids = {name: server.pid for name, server in running.items()}
            print(json.dumps({"namesrv": namesrv, "brokerPort": given.broker_port, "pids": pids}), flush=True)
            return list(running.values())[-1].wait()
        finally:
            for server in reversed(running.values()):
                server.stop()


if __name__ == "__main__":
    sys.exit(main())
