"""A small blocking client for tasks, without Twisted, for clusters of rocketd and of Apache.

The API for the rest of the pipeline:

- `ClusterOptions(namesrv, access_key=…, secret_key=…, tls=…, timeout=…, patience=…)`: picklable, names a cluster.
- `BrokerCatalog(options)`: the Catalog of `rocketd.spark.ranges`; its `cluster` is a `ClusterClient`.
- `read_range(options_or_cluster, part, plan, on_loss=None)`: batches of a range.
- `ClusterClient(options)`: `topics()`, `queues(topic)`, `write_queues(topic)`, `master(broker)`, `answer(broker,
  request)`; holds no socket. `admin` and `offsets` are functions over it.
- `RawMessage(topic, body, tags=…, keys=…, properties=…, flag=…, unique_key=…)`.
- `Sender(cluster, group=…, window=…)`: `send(queue, message)`, `send_batch(queue, messages)`, pipelined `submit(queue,
  messages, token)` with `receipts()` and `finish()`; `deliver(items)` combines them with retries.
- `Transactions(cluster, group)`: `begin(queue, message)` returns a picklable `Half`; `end(halves, commit=…)`.

Cluster errors are `ClusterError`s with `code`, `retriable` and `doubtful` (a send may have been stored although it
failed). NoAnswerError, NoMasterError and UnknownTopicError are subclasses. Connections are kept per process and thread.

Invariant: nothing is sent twice unless the caller allows it, because a repeated send can store a message twice.
"""

from rocketd.spark.wire.catalog import BrokerCatalog
from rocketd.spark.wire.cluster import ClusterClient
from rocketd.spark.wire.connection import close_connections
from rocketd.spark.wire.faults import NoMasterError, UnknownTopicError
from rocketd.spark.wire.message import RawMessage
from rocketd.spark.wire.options import ClusterOptions
from rocketd.spark.wire.read import read_range
from rocketd.spark.wire.request import Position, SendReceipt
from rocketd.spark.wire.send import Sender
from rocketd.spark.wire.transactions import Half, Transactions

__all__ = [
    "BrokerCatalog",
    "ClusterClient",
    "ClusterOptions",
    "Half",
    "NoMasterError",
    "Position",
    "RawMessage",
    "SendReceipt",
    "Sender",
    "Transactions",
    "UnknownTopicError",
    "close_connections",
    "read_range",
]
