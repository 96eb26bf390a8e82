"""Use a producer in forked workers: make it before the fork if you like, open it in each worker."""

import multiprocessing
import sys

from rocketd.client import Message
from rocketd.client.errors import ForkedClientError
from rocketd.client.sync import Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR
of_parent = Producer("example_fork_parent", CLUSTER)
of_workers = Producer("example_fork_worker", CLUSTER)


def work(number: int) -> str:
    """Send with a client of this process."""
    try:
        of_parent.send(Message("ExampleFork", b"by the parent's client"))
    except ForkedClientError:
        with of_workers as producer:
            producer.send(Message("ExampleFork", b"by worker %d" % number))
        return "sent with its own"
    return "sent with the parent's"


with of_parent:
    of_parent.send(Message("ExampleFork", b"by the parent"))
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        for line in pool.map(work, range(2), chunksize=1):
            print(line)
