"""A small blocking client for tasks: reads, sends and administers live clusters, rocketd's and Apache's, without Twisted.

What the rest of the pipeline uses:

- `ClusterOptions(namesrv, access_key=…, secret_key=…, tls=…, timeout=…, patience=…)`: picklable, names a cluster.
- `BrokerCatalog(options)`: the Catalog of `rocketd.spark.ranges`; its `cluster` is a `Cluster`.
- `read_range(options_or_cluster, part, plan, on_loss=None)`: batches of a range.
- `Cluster(options)`: `topics()`, `queues(topic)`, `write_queues(topic)`, `master(broker)`, `ask(broker, code, header)`;
  holds no socket. `admin` and `offsets` are functions over it.
- `Message(topic, body, tags=…, keys=…, properties=…, flag=…, unique_key=…)`.
- `Sender(cluster, group=…, window=…)`: `send(queue, message)`, `send_batch(queue, messages)`, pipelined `submit(queue,
  messages, token)` with `receipts()` and `finish()`; `deliver(items)` does it all.
- `Transactions(cluster, group)`: `begin(queue, message)` gives a `Half`, which is picklable; `end(halves, commit=…)`.

All errors are BrokerErrors with `code`, `retriable` and `doubtful` (a send that may have been stored all the same);
UnreachableError, NoMasterError and UnknownTopicError are kinds of it. Connections are kept per process and thread.
"""

from rocketd.spark.wire.catalog import BrokerCatalog
from rocketd.spark.wire.cluster import Cluster
from rocketd.spark.wire.connection import close_connections
from rocketd.spark.wire.faults import NoMasterError, UnknownTopicError
from rocketd.spark.wire.message import Message
from rocketd.spark.wire.options import ClusterOptions
from rocketd.spark.wire.read import read_range
from rocketd.spark.wire.request import Position, Receipt
from rocketd.spark.wire.send import Sender
from rocketd.spark.wire.transactions import Half, Transactions

__all__ = [
    "BrokerCatalog",
    "Cluster",
    "ClusterOptions",
    "Half",
    "Message",
    "NoMasterError",
    "Position",
    "Receipt",
    "Sender",
    "Transactions",
    "UnknownTopicError",
    "close_connections",
    "read_range",
]
