"""Shared code of the tests of writes."""

from rocketd.spark.ranges import QueueRange, ReadPlan
from rocketd.spark.sink.message import Outgoing
from rocketd.spark.sink.options import WriteOptions
from rocketd.spark.wire import read_range
from rocketd.spark.wire.unique_keys import unique_keys
from tests.spark.clusters import await_condition


def outgoing(topic, numbers, **more):
    """Ready messages with these numbers in their bodies."""
    return [
        Outgoing(topic, b"body %d" % n, b"UNIQ_KEY\x01%s\x02WAIT\x01true" % unique_keys(1)[0].encode(), **more)
        for n in numbers
    ]


def options_of(cluster, **more):
    """Write options for this cluster."""
    return WriteOptions.parse({"namesrv": cluster.namesrv, "retryTimeout": "120s", "sendTimeout": "60s", **more})


def count_of(cluster, topic):
    """How many messages can be read now."""
    catalog = cluster.catalog
    return sum(catalog.bounds(queue)[1] for queue in catalog.queues(topic))


def rows_of(cluster, topic, count, *columns):
    """The wanted columns of all messages by queue id, once there are so many messages."""
    await_condition(f"{topic} has {count} messages", lambda: count_of(cluster, topic) >= count)
    catalog = cluster.catalog
    plan = ReadPlan(columns)
    found = {}
    for queue in catalog.queues(topic):
        part = QueueRange(queue, *catalog.bounds(queue))
        found[queue.queue_id] = [row for batch in read_range(cluster.options, part, plan) for row in batch.to_pylist()]
    return found


def bodies(cluster, topic, count):
    """All bodies by queue id, once there are so many messages."""
    found = rows_of(cluster, topic, count, "body")
    return {queue: [row["body"] for row in rows] for queue, rows in found.items()}
