"""The servers in tests of the Python client: rocketd's and Apache's, each told the same."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.interop.java_features import JavaFeatures
from tests.interop.mqadmin_driver import Driver
from tests.support import apache, twistd_servers, wire
from tests.support.broker_settings import ACCOUNTS, QUICK
from tests.support.ports import free_broker_port, free_port
from tests.support.process import ServerProcess

APACHE, ROCKETD = "apache", "rocketd"
LIMIT = 60.0  # seconds

LEVEL_2_SECONDS = 2
PROPERTIES = {
    # All delays but that of level 2 are a second.
    "messageDelayLevel": " ".join("1s" if level != 2 else f"{LEVEL_2_SECONDS}s" for level in range(1, 19)),
    # The machine may be busy: no send is refused because it waited.
    "waitTimeMillsInSendQueue": "60000",
    "osPageCacheBusyTimeOutMills": "60000",
    **QUICK,
}
_JVM = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass
class RunningServers:
    """Addresses of the servers of one ``kind``, and their topics."""

    kind: str
    namesrv: str
    broker: str

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Create a topic; the name server has its route when this returns."""
        wire.create_topic(self.broker, topic, queues)
        self.await_topic(topic)

    def await_topic(self, topic: str) -> None:
        """Return once the name server has the topic's route."""
        wire.await_route(self.namesrv, topic, self.broker, LIMIT)


class Servers(RunningServers):
    """A name server and a broker of one ``kind``, and Java programs beside them, which start when they are needed."""

    def __init__(self, kind: str, directory: Path, *, guarded: bool = False) -> None:
        """Start both in ``directory``. A ``guarded`` broker asks for credentials, and makes no topics by itself.

        One of rocketd's asks for TLS, too.
        """
        self._end = ExitStack()
        directory.mkdir(parents=True, exist_ok=True)
        properties = {**PROPERTIES, **(_guard(kind, directory) if guarded else {})}
        namesrv_port, broker_port = free_port(), free_broker_port()
        super().__init__(kind, f"127.0.0.1:{namesrv_port}", f"127.0.0.1:{broker_port}")
        self._directory = directory
        self._java: JavaFeatures | None = None
        self._driver: Driver | None = None
        try:
            if kind == APACHE:
                self._keep(apache.start_namesrv(directory, namesrv_port, _JVM))
                self._keep(apache.start_broker(directory, broker_port, self.namesrv, properties, _JVM))
            else:
                self._keep(twistd_servers.start_namesrv(directory, namesrv_port))
                self._keep(twistd_servers.start_broker(directory, broker_port, self.namesrv, properties))
        except BaseException:
            self._end.close()
            raise

    def _keep(self, server: ServerProcess) -> None:
        def end() -> None:
            if self.kind == APACHE:
                server.kill()  # faster, and nothing is to be learned from its end
            else:
                server.stop()
                twistd_servers.check_log(server)

        self._end.callback(end)

    @property
    def java(self) -> JavaFeatures:
        """Java's producers and consumers, in one JVM."""
        if self._java is None:
            self._java = self.new_java("java")
        return self._java

    def new_java(self, name: str) -> JavaFeatures:
        """Another JVM with producers and consumers."""
        home = self._directory / name
        home.mkdir()
        java = JavaFeatures(self.namesrv, home)
        self._end.callback(java.stop)
        return java

    def mqadmin(self, *words: str) -> str:
        """Return the output of a command of mqadmin. AssertionError if it complains."""
        if self._driver is None:
            self._driver = Driver(self._directory / "mqadmin", self.namesrv)
            self._end.callback(self._driver.stop)
        answer = self._driver.ask("mqadmin", words=[*words, "-n", self.namesrv])
        assert not answer["err"], answer["err"]
        printed: str = answer["out"]
        return printed

    def stop(self) -> None:
        """End all; AssertionError when a server of rocketd's logged a traceback."""
        self._end.close()


def _guard(kind: str, directory: Path) -> dict[str, str]:
    # Where Apache's servers are started with their home, and rocketd's are told that theirs is.
    home = directory / "home"
    (home / "conf").mkdir(parents=True)
    accounts = home / "conf" / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    accounts.chmod(0o600)
    guard = {"aclEnable": "true", "rocketmqHome": str(home), "autoCreateTopicEnable": "false"}
    # Apache's takes it only as a property of its JVM, which holds for both directions.
    return {**guard, "tls.server.mode": "enforcing"} if kind == ROCKETD else guard
