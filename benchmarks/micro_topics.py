"""Cost of new topics: CPU time of a broker and of its name server for each, among few and among many.

Eight connections create topics, one after the other each. With ``--kind groups`` they create consumer groups, with
``--kind offsets`` they commit the first offset of a group in a topic. The servers are real processes. Nothing is asserted:
the figures are printed.

    python -m benchmarks.micro_topics [--among N ...] [--count N] [--connections N] [--kind KIND]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.attacks.peer import Peer, heartbeat, request
from benchmarks.growth.dimensions import TOPIC, write_topics
from benchmarks.servers import RocketdLauncher, Side
from benchmarks.usage import cpu_seconds
from tests.support.wire import UPDATE_AND_CREATE_TOPIC

UPDATE_CONSUMER_OFFSET = 15
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
GROUP = "Committing"


def new_topic(name: str) -> bytes:
    """Encode the creation of a topic."""
    fields = {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    return request(UPDATE_AND_CREATE_TOPIC, fields)


def new_group(name: str) -> bytes:
    """Encode the creation of a consumer group."""
    return request(UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps({"groupName": name}).encode())


def first_offset(name: str) -> bytes:
    """Encode the commit of an offset in queue 0. The digits in the name are those of the topic."""
    number = int("".join(filter(str.isdigit, name)))
    fields = {"consumerGroup": GROUP, "topic": f"{TOPIC}{number}", "queueId": "0", "commitOffset": "0"}
    return request(UPDATE_CONSUMER_OFFSET, fields)


def write_groups(store: Path, count: int) -> None:
    """Write the table of groups of a broker that has never run."""
    table = {f"Group{number}": {"groupName": f"Group{number}"} for number in range(count)}
    form = {"dataVersion": {"counter": count, "timestamp": 1_700_000_000_000}, "subscriptionGroupTable": table}
    (store / "config" / "subscriptionGroup.json").write_text(json.dumps(form))


def write_offsets(store: Path, count: int) -> None:
    """Write the table of offsets of a broker that has never run: four queues in each of so many topics."""
    table = {f"{TOPIC}{number}@Other": dict.fromkeys(map(str, range(4)), 0) for number in range(count)}
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))


KINDS = {"topics": new_topic, "groups": new_group, "offsets": first_offset}


def measure(directory: Path, among: int, count: int, connections: int, kind: str) -> str:
    """Start servers with a table of this size, create ``count`` names, and return the line of the figures."""
    encode = KINDS[kind]
    side = Side(RocketdLauncher(directory), directory / str(among), {})
    store = side.store("broker-a")
    write_topics(store, {"topics": among, "groups": 10, "offsets": 10_000}[kind])
    if kind == "groups":
        write_groups(store, among)
    elif kind == "offsets":
        write_offsets(store, among)
    side.start()

    def create(worker: int) -> None:
        peer = Peer(side.broker_address)
        peer.ask(heartbeat(f"client{worker}", [GROUP]))
        for number in range(worker, count, connections):
            code = peer.ask(encode(f"New{number}"))
            if code:
                raise RuntimeError(f"the broker answered with code {code}")
        peer.close()

    try:
        time.sleep(1.0)
        servers = (side.pid("broker-a"), side.pid("namesrv"))
        before, began = [cpu_seconds(pid) for pid in servers], time.monotonic()
        with ThreadPoolExecutor(connections) as pool:
            list(pool.map(create, range(connections)))
        took = time.monotonic() - began
        time.sleep(2.0)  # writes and registrations that follow are part of the cost
        broker, namesrv = (1000 * (cpu_seconds(pid) - cpu) / count for pid, cpu in zip(servers, before, strict=True))
        side.stop()
    finally:
        side.kill_all()
    return (
        f"among {among:,} {kind}: {count / took:,.0f} a second; CPU {broker:.2f} ms each at the broker, "
        f"{namesrv:.2f} ms at the name server"
    )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--among", type=int, nargs="+", default=[10, 10_000])
    parser.add_argument("--count", type=int, default=800)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--kind", choices=list(KINDS), default="topics")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        for among in given.among:
            print(measure(Path(directory), among, given.count, given.connections, given.kind), flush=True)


if __name__ == "__main__":
    main()
