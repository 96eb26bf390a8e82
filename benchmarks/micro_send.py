"""Cost of sends without sockets: CPU time of one thread for each message, from requests' bytes to answers' bytes.

Cuts frames, handles them as the send pool's thread does, on a real store, and dispatches what was stored. ``send`` are
single messages of 1 KB in groups of 48 from eight connections, ``batch`` are batches of 32, ``lone`` is one message at a
time. Making the requests is not counted. Nothing is asserted: the figures are printed. Compare two trees, or ROCKETD_PURE=1
with the compiled core, by runs in turn, and their medians or minima: the machine's clock wanders.

    python -m benchmarks.micro_send [--rounds N] [--directory DIR] [send] [batch] [lone]
"""

import argparse
import shutil
import statistics
import struct
import tempfile
import time
from collections.abc import Iterator, Sequence

from twisted.internet.task import Clock

from rocketd import core
from rocketd.broker.send.processor import SendMessageProcessor
from rocketd.remoting.bodies.tables import TopicConfig
from rocketd.remoting.serving.pools import Job
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.frame import FrameDecoder
from tests.support.broker import RecordingConnection, SmallBroker

CONNECTIONS = 8
QUEUES = 8
GROUP = 6
"""Messages of one connection that the storage thread finds together, under a load of single sends."""
BATCH = 32
BODY = bytes(range(256)) * 4
MESSAGES = {"send": 4_800, "batch": 5_120, "lone": 2_000}
STORE = {
    "mappedFileSizeCommitLog": str(1 << 30),
    "mappedFileSizeConsumeQueue": "6000000",
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
}


class SystemClock(Clock):
    """The system's time, for the one part that takes a clock."""

    def seconds(self) -> float:
        """Seconds since 1970."""
        return time.time()


class Requests:
    """Makes requests as unmodified Java clients do: each message with a unique key of its own."""

    def __init__(self) -> None:
        self._run = f"{time.time_ns():016X}"
        self._count = 0

    def properties(self) -> str:
        """Property string of the next message."""
        self._count += 1
        return f"UNIQ_KEY\x01{self._run}{self._count:016X}\x02WAIT\x01true\x02TAGS\x01TagA"

    def single(self, queue_id: int) -> bytes:
        """The next message alone."""
        return self._frame(RequestCode.SEND_MESSAGE_V2, queue_id, self.properties(), BODY)

    def batch(self, queue_id: int) -> bytes:
        """The next messages in a batch."""
        parts = []
        for _ in range(BATCH):
            own = self.properties().encode()
            parts.append(struct.pack(">iiiii", 22 + len(BODY) + len(own), 0, 0, 0, len(BODY)))
            parts += (BODY, struct.pack(">h", len(own)), own)
        return self._frame(RequestCode.SEND_BATCH_MESSAGE, queue_id, "WAIT\x01true", b"".join(parts))

    def _frame(self, code: int, queue_id: int, properties: str, body: bytes) -> bytes:
        escaped = properties.replace("\x01", "\\u0001").replace("\x02", "\\u0002")
        is_batch = str(code == RequestCode.SEND_BATCH_MESSAGE).lower()
        born_ms = time.time_ns() // 1_000_000
        header = (
            f'{{"code":{int(code)},"extFields":{{"a":"Group","b":"BenchmarkTopic","c":"TBW102","d":"4","e":"{queue_id}",'
            f'"f":"0","g":"{born_ms}","h":"0","i":"{escaped}","j":"0","k":"false","l":"0","m":"{is_batch}"}},'
            f'"flag":0,"language":"JAVA","opaque":{self._count},"serializeTypeCurrentRPC":"JSON","version":401}}'
        ).encode()
        return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body

    def rounds(self, mode: str) -> list[list[bytes]]:
        """What each connection receives, round after round."""
        count = MESSAGES[mode]
        if mode == "lone":
            return [[self.single(n % QUEUES)] for n in range(count)]
        if mode == "batch":
            return [[self.batch(n) for n in range(CONNECTIONS)] for _ in range(count // (CONNECTIONS * BATCH))]
        return [
            [b"".join([self.single(n) for n in range(GROUP)]) for _ in range(CONNECTIONS)]
            for _ in range(count // (CONNECTIONS * GROUP))
        ]


class Silent(RecordingConnection):
    """Forgets its answers."""

    def write(self, buffers: Sequence[bytes | memoryview]) -> None:
        """As the real one takes them."""


class Inline:
    """The way of a request from read bytes to its answer and into queues and index, all in this thread."""

    def __init__(self, broker: SmallBroker) -> None:
        self._broker = broker
        self._processor = SendMessageProcessor(broker)
        self._decoders = [FrameDecoder() for _ in range(CONNECTIONS)]
        self._connections = [Silent() for _ in range(CONNECTIONS)]
        broker.store.holds_dispatch = True

    def run(self, rounds: list[list[bytes]]) -> None:
        """Handle all of it."""
        for received in rounds:
            now_ms = self._broker.clock_ms()
            jobs = [
                Job(self._processor, connection, decoder.feed(data), now_ms)
                for data, decoder, connection in zip(received, self._decoders, self._connections, strict=False)
            ]
            self._processor.process_jobs(jobs)
            self._broker.store.release_dispatch(True)


def measure(mode: str, rounds: int, directory: str | None) -> Iterator[float]:
    """CPU µs of a message, round by round; a first one, which warms up, is left out."""
    root = tempfile.mkdtemp(prefix="rocketd-micro-send-", dir=directory)
    broker = SmallBroker(root, SystemClock(), **STORE)
    broker.start()
    try:
        broker.topics.update(TopicConfig("BenchmarkTopic", QUEUES, QUEUES))
        requests, inline = Requests(), Inline(broker)
        inline.run(requests.rounds(mode))
        for _ in range(rounds):
            received = requests.rounds(mode)
            began = time.thread_time()
            inline.run(received)
            yield (time.thread_time() - began) / MESSAGES[mode] * 1e6
    finally:
        broker.stop()
        shutil.rmtree(root)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("mode", nargs="*", help="send, batch, lone; all unless given")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument(
        "--directory", help="where to put the store, such as /dev/shm; a temporary directory unless given"
    )
    options = parser.parse_args()
    if unknown := set(options.mode) - set(MESSAGES):
        parser.error(f"unknown: {', '.join(unknown)}")
    print(core.kind())
    for mode in options.mode or MESSAGES:
        costs = list(measure(mode, options.rounds, options.directory))
        print(f"{mode:5} {statistics.median(costs):6.2f} µs/message CPU, median; {min(costs):6.2f} least", flush=True)


if __name__ == "__main__":
    main()
