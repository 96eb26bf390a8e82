"""A real Kafka broker (KRaft, one node) from jars that Maven fetches, and the jars of Spark's own Kafka source.

Used as the peer in ``benchmarks.spark``.
"""

from __future__ import annotations

import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path

from tests.support import wire
from tests.support.jars import jars_of
from tests.support.ports import free_port
from tests.support.process import ServerError, ServerProcess

VERSION = "3.9.1"
HEAP = ("-Xms2g", "-Xmx2g")
START_LIMIT = 120.0  # seconds; a JVM on a busy machine takes its time


def connector_jars() -> list[Path]:
    """The jars of Spark's Kafka source, fetched the first time; PeerUnavailableError when that cannot be."""
    return sorted(jars_of(Path(__file__).with_name("kafka_connector.pom.xml"), "kafka-connector").glob("*.jar"))


def start_kafka(directory: Path, heap: Sequence[str] = HEAP) -> tuple[ServerProcess, str]:
    """Start a broker whose files are all below ``directory``; returns it and its address once its port accepts."""
    jars = jars_of(Path(__file__).with_name("kafka.pom.xml"), f"kafka-{VERSION}")
    directory.mkdir(parents=True, exist_ok=True)
    port, controller = free_port(), free_port()
    config = directory / "kafka.properties"
    config.write_text(
        "process.roles=broker,controller\n"
        "node.id=1\n"
        f"controller.quorum.voters=1@127.0.0.1:{controller}\n"
        "controller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        f"log.dirs={directory}/log\n"
        "offsets.topic.replication.factor=1\n"
        "transaction.state.log.replication.factor=1\n"
        "transaction.state.log.min.isr=1\n"
        "auto.create.topics.enable=true\n"
        "num.partitions=8\n"
    )
    java = ["java", *heap, "-cp", f"{jars}/*"]
    cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    format_log = [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(config)]
    done = subprocess.run(format_log, capture_output=True, text=True, timeout=START_LIMIT)
    if done.returncode != 0:
        raise ServerError(f"Kafka's storage could not be made:\n{done.stdout}{done.stderr}")
    server = ServerProcess("Kafka", [*java, "kafka.Kafka", str(config)], directory / "kafka.log", directory)
    address = f"127.0.0.1:{port}"
    server.wait_for(f"port {port} accepts", lambda: wire.accepts(address), START_LIMIT)
    return server, address
