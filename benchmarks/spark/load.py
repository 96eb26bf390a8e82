"""Fills a topic with messages that do not compress: random bodies of 512 bytes, keys, and eight tags in turn."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rocketd.spark.ranges import Queue
from rocketd.spark.wire import ClusterOptions, RawMessage, Sender
from tests.support import wire

BODY_BYTES = 512
QUEUES = 8
TAGS = tuple(f"tag-{number}" for number in range(8))
_BATCH = 256


def fill(namesrv: str, broker: str, topic: str, count: int, broker_name: str = "broker-a") -> None:
    """Send so many messages, spread evenly over the queues of a new topic, and return when the broker has them all."""
    wire.create_topic(broker, topic, QUEUES)
    wire.await_route(namesrv, topic, broker)
    for _ in Sender(ClusterOptions(namesrv), window=8).deliver(
        _batches(topic, broker_name, count), repeat_doubtful=False
    ):
        pass


def _batches(topic: str, broker_name: str, count: int) -> Iterator[tuple[Queue, list[RawMessage]]]:
    for turn, first in enumerate(range(0, count, _BATCH)):
        numbers = range(first, min(first + _BATCH, count))
        bodies = os.urandom(BODY_BYTES * len(numbers))
        messages = [
            RawMessage(
                topic, bodies[at * BODY_BYTES : (at + 1) * BODY_BYTES], TAGS[number % len(TAGS)], f"key-{number}"
            )
            for at, number in enumerate(numbers)
        ]
        yield Queue(topic, broker_name, turn % QUEUES), messages
