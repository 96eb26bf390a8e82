"""Live clusters for the tests of the Spark ring: rocketd's own servers, and Apache's, started once and told the same.

``ROCKETD, APACHE = "rocketd", "apache"`` name the kinds. `start_cluster` is a context manager; the fixtures are below.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import monotonic, sleep

import pytest

from rocketd.spark.ranges import Queue
from rocketd.spark.wire import BrokerCatalog, ClusterClient, ClusterOptions, Position, RawMessage, Sender
from rocketd.spark.wire.message import in_batches
from tests.support import apache, twistd_servers, wire
from tests.support.broker_settings import QUICK
from tests.support.jars import PeerUnavailableError
from tests.support.lacking import end_test_lacking
from tests.support.ports import free_broker_port, free_port
from tests.support.process import ServerProcess

APACHE, ROCKETD = "apache", "rocketd"
BROKER = "broker-a"
LIMIT = 120.0  # seconds

_JVM = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_numbers = count(1)


def await_condition(what, condition, limit=LIMIT):
    """Return the first true value of `condition()`; AssertionError when there is none within so many seconds."""
    ends = monotonic() + limit
    while not (value := condition()):
        assert monotonic() < ends, f"waited {limit:g} s in vain: {what}"
        sleep(0.02)
    return value


@dataclass
class LiveCluster:
    """A running name server with one broker, ``broker-a``. `namesrv` and `broker` are ``host:port``."""

    kind: str
    namesrv: str
    broker: str
    directory: Path
    properties: dict[str, str]
    options: ClusterOptions
    process: ServerProcess | None = None
    _cluster: ClusterClient | None = field(default=None, repr=False)

    @property
    def cluster(self) -> ClusterClient:
        """The cluster as the wire client has it."""
        if self._cluster is None:
            self._cluster = ClusterClient(self.options)
        return self._cluster

    @property
    def catalog(self) -> BrokerCatalog:
        """A new catalog."""
        return BrokerCatalog(self.options)

    def create_topic(self, queues: int = 4, name: str = "") -> str:
        """Create a topic, of a new name unless one is given; the name server has its route when this returns."""
        topic = name or f"topic-{next(_numbers)}"
        if self.options.access_key or self.options.tls:
            from rocketd.spark.wire import admin

            admin.create_topic(self.cluster, topic, queues)
        else:
            wire.create_topic(self.broker, topic, queues)
            wire.await_route(self.namesrv, topic, self.broker, LIMIT)
        return topic

    def queue(self, topic: str, queue_id: int = 0) -> Queue:
        """One of its queues."""
        return Queue(topic, BROKER, queue_id)

    def send(self, topic: str, messages: Sequence[RawMessage | bytes], queue_id: int = 0) -> list[Position]:
        """Store messages in this order in one queue; they can be read when this returns."""
        whole = [RawMessage(topic, one) if isinstance(one, bytes) else one for one in messages]
        queue = self.queue(topic, queue_id)
        items = ((queue, part) for part in in_batches(whole))
        stored: list[Position] = []
        for receipt in Sender(self.cluster, window=1).deliver(items, repeat_doubtful=False):
            stored += receipt.positions
        self.await_end(queue, stored[-1].queue_offset + 1)
        return stored

    def await_end(self, queue: Queue, end: int) -> None:
        """Return once the queue reaches so far: brokers build their queues behind the answer to a send."""
        await_condition(f"{queue} reaches {end}", lambda: self.catalog.bounds(queue)[1] >= end)

    def stop_broker(self) -> None:
        """Stop the broker; Apache's by a kill, which is faster."""
        assert self.process is not None
        if self.kind == APACHE:
            self.process.kill()
        else:
            self.process.stop()
            twistd_servers.check_log(self.process)
        self.process = None

    def start_broker(self) -> None:
        """Start the broker, on the store that it had."""
        port = int(self.broker.rpartition(":")[2])
        if self.kind == APACHE:
            self.process = apache.start_broker(self.directory, port, self.namesrv, self.properties, _JVM)
        else:
            self.process = twistd_servers.start_broker(self.directory, port, self.namesrv, self.properties)


@contextmanager
def start_cluster(
    kind: str,
    directory: Path,
    properties: dict[str, str] | None = None,
    namesrv_properties: dict[str, str] | None = None,
    **options: object,
) -> Iterator[LiveCluster]:
    """A name server and a broker in `directory`; `properties` are more for the broker, `options` for the client.

    Apache's name server takes no `namesrv_properties`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    namesrv_port, broker_port = free_port(), free_broker_port()
    namesrv, broker = f"127.0.0.1:{namesrv_port}", f"127.0.0.1:{broker_port}"
    known = ClusterOptions(namesrv, **{"timeout": 60.0, "patience": LIMIT, **options})  # type: ignore[arg-type]
    with ExitStack() as end:
        if kind == APACHE:
            end.callback(apache.start_namesrv(directory, namesrv_port, _JVM).kill)
        else:
            server = twistd_servers.start_namesrv(directory, namesrv_port, namesrv_properties)
            end.callback(twistd_servers.check_log, server)
            end.callback(server.stop)
        running = LiveCluster(kind, namesrv, broker, directory, {**QUICK, **(properties or {})}, known)
        running.start_broker()
        end.callback(lambda: running.process is not None and running.stop_broker())
        yield running


@pytest.fixture(scope="session")
def rocketd_cluster(tmp_path_factory):
    """rocketd's servers, for the whole session: each test makes new topics."""
    with start_cluster(ROCKETD, tmp_path_factory.mktemp("rocketd")) as running:
        yield running


@pytest.fixture(scope="session")
def apache_cluster(tmp_path_factory):
    """Apache's servers, for the whole session; heavy, so only for tests in which the difference matters."""
    try:
        apache.fetch_jars()
    except PeerUnavailableError as error:
        end_test_lacking(str(error))
    with start_cluster(APACHE, tmp_path_factory.mktemp("apache")) as running:
        yield running


@pytest.fixture(params=[ROCKETD, APACHE])
def live_cluster(request):
    """Either of them, in turn."""
    return request.getfixturevalue(f"{request.param}_cluster")
