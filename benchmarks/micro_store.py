"""Cost of the store alone: CPU time of the process, all threads, for each message.

Appends groups of 1 KB messages with a unique key to eight queues, with consume queues and index behind them, then reads
them in pulls of 32. Making the messages is measured apart and taken off. Nothing is asserted: the figures are printed.

    python benchmarks/micro_store.py [--messages N] [--group N] [--body BYTES] [--no-index] [--directory DIR]
    [--profile]
"""

import argparse
import cProfile
import pstats
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator

from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.format.message import MessageInner
from rocketd.store.format.record import body_crc
from rocketd.store.message_store import MessageStore

QUEUES = 8
BORN_HOST = b"\x7f\x00\x00\x01\x00\x00\xc3\x50"
STORE_HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"


def groups_of_messages(count: int, group: int, body: bytes) -> Iterator[list[MessageInner]]:
    """Groups as the send pool's thread makes them: round-robin over the queues, a unique key for each message."""
    now = int(time.time() * 1000)
    for begin in range(0, count, group):
        messages = []
        for number in range(begin, min(begin + group, count)):
            unique = f"7F0000010A2B18B4AAC2{number:012X}"
            properties = b"UNIQ_KEY\x01" + unique.encode() + b"\x02CLUSTER\x01DefaultCluster\x02TAGS\x01TagA"
            messages.append(
                MessageInner(
                    "BenchmarkTopic", number % QUEUES, 0, 0, now, BORN_HOST, 0, 0, body, properties, 2598919, (unique,)
                )
            )
        yield messages


def cpu_of(work: Callable[[], None]) -> tuple[float, float]:
    """CPU seconds of the process and wall seconds of a piece of work."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--group", type=int, default=48)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--no-index", action="store_true")
    parser.add_argument("--batch", action="store_true", help="append each group as one batch of one queue")
    parser.add_argument("--directory", help="where to put the store; a temporary directory unless given")
    parser.add_argument("--profile", action="store_true", help="profile the appending thread")
    options = parser.parse_args()

    count, body = options.messages, bytes(range(256)) * (options.body // 256 + 1)
    body = body[: options.body]
    directory = tempfile.mkdtemp(prefix="rocketd-micro-store-", dir=options.directory)
    config = MessageStoreConfig(
        store_path_root_dir=directory, message_index_enable=not options.no_index, disk_space_warning_level_ratio=1.0
    )
    store = MessageStore(config, STORE_HOST)
    store.start()
    try:

        def make() -> None:
            for _ in groups_of_messages(count, options.group, body):
                pass

        def append() -> None:
            put = store.put_batch if options.batch else store.put_messages
            for messages in groups_of_messages(count, options.group, body):
                put(messages)
            while store.dispatch_behind_bytes():
                time.sleep(0.001)

        def pull() -> None:
            for queue_id in range(QUEUES):
                offset = 0
                while (found := store.get_messages("BenchmarkTopic", queue_id, offset, 32, None)).count:
                    offset = found.next_begin_offset

        def restart() -> None:
            store.stop()
            again = MessageStore(config, STORE_HOST)
            again.start()
            again.stop()

        making, _ = cpu_of(make)
        profiler = cProfile.Profile() if options.profile else None
        if profiler is not None:
            profiler.enable()
        appending, append_wall = cpu_of(append)
        if profiler is not None:
            profiler.disable()
            pstats.Stats(profiler).sort_stats("tottime").print_stats(15)
        pulling, pull_wall = cpu_of(pull)
        restarting, restart_wall = cpu_of(restart)
        crc, _ = cpu_of(lambda: [body_crc(body) for _ in range(10_000)] and None)
        print(f"messages {count}, groups of {options.group}, body {options.body} bytes, index {not options.no_index}")
        print(f"append and dispatch  {(appending - making) / count * 1e6:6.2f} µs/message CPU")
        print(f"  wall               {append_wall / count * 1e6:6.2f} µs/message, with making the messages")
        print(f"  making messages    {making / count * 1e6:6.2f} µs/message CPU, taken off")
        print(f"  body CRC           {crc / 10_000 * 1e6:6.2f} µs/message CPU, within")
        print(f"pull of 32           {pulling / count * 1e6:6.2f} µs/message CPU, {pull_wall / count * 1e6:.2f} wall")
        print(f"stop and clean start {restarting:6.2f} s CPU, {restart_wall:.2f} s wall")
    finally:
        store.stop()
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
