"""Cost of pulls without sockets: CPU time of one thread for each pull, from the request's frame to the answer's buffers.

The pulls ask for 1 and for 32 messages of 1 KB, which were stored in batches of 32 to eight queues. Nothing is asserted: the
times are printed. Compare two trees, or ROCKETD_PURE=1 with the compiled core, by runs in turn, and their minima: the
machine's clock wanders.

    python -m benchmarks.micro_pull [--rounds N] [--directory DIR]
"""

import argparse
import shutil
import statistics
import struct
import tempfile
import time
from collections.abc import Iterator

from benchmarks.micro_send import QUEUES, STORE, Inline, Requests, Silent, SystemClock
from rocketd import core
from rocketd.broker.pull.processor import PullMessageProcessor
from rocketd.remoting.bodies.tables import TopicConfig
from rocketd.remoting.serving.pools import Job
from rocketd.remoting.wire.frame import FrameDecoder
from tests.support.broker import SmallBroker

TOPIC = "BenchmarkTopic"
PULLS = 1_500
FILLS = 12
"""Rounds of sends that fill the store, of 5,120 messages each: more than the caches of a processor hold."""


def request(queue_id: int, offset: int, limit: int) -> bytes:
    """Return a pull as Java's pull consumer makes it."""
    header = (
        f'{{"code":11,"extFields":{{"consumerGroup":"Group","topic":"{TOPIC}","queueId":"{queue_id}",'
        f'"queueOffset":"{offset}","maxMsgNums":"{limit}","sysFlag":"4","commitOffset":"0","suspendTimeoutMillis":"0",'
        f'"subscription":"*","subVersion":"0","expressionType":"TAG"}},"flag":0,"language":"JAVA","opaque":{offset},'
        f'"serializeTypeCurrentRPC":"JSON","version":401}}'
    ).encode()
    return struct.pack(">II", 4 + len(header), len(header)) + header


def measure(limit: int, rounds: int, directory: str | None) -> Iterator[float]:
    """CPU µs of a pull, round by round; a first one, which warms up, is left out."""
    root = tempfile.mkdtemp(prefix="rocketd-micro-pull-", dir=directory)
    broker = SmallBroker(root, SystemClock(), **STORE)
    broker.start()
    try:
        broker.topics.update(TopicConfig(TOPIC, QUEUES, QUEUES))
        requests, inline = Requests(), Inline(broker)
        for _ in range(FILLS):
            inline.run(requests.rounds("batch"))
        end = broker.store.get_max_offset(TOPIC, 0)
        processor, connection = PullMessageProcessor(broker), Silent()
        for counted in range(rounds + 1):
            jobs = []
            for number in range(PULLS):
                queue_id, offset = number % QUEUES, number // QUEUES * limit % (end - limit)
                frames = FrameDecoder().feed(request(queue_id, offset, limit))
                jobs.append([Job(processor, connection, frames, 0)])
            began = time.thread_time()
            for job in jobs:
                processor.process_jobs(job)
            if counted:
                yield (time.thread_time() - began) / PULLS * 1e6
    finally:
        broker.stop()
        shutil.rmtree(root)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument(
        "--directory", help="where to put the store, such as /dev/shm; a temporary directory unless given"
    )
    options = parser.parse_args()
    print(core.kind())
    for limit in (1, 32):
        costs = list(measure(limit, options.rounds, options.directory))
        print(f"of {limit:2} {statistics.median(costs):6.2f} µs/pull CPU, median; {min(costs):6.2f} least", flush=True)


if __name__ == "__main__":
    main()
