"""Choose the queue of a message: in turn, one that is named, by a key, at random, or by a rule of one's own."""

import asyncio
import sys
from collections.abc import Sequence
from random import Random
from typing import Any

from rocketd.client import Message, MessageQueue, SelectMessageQueueByHash, SelectMessageQueueByRandom
from rocketd.client.aio import Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR


def by_size(queues: Sequence[MessageQueue], message: Message[Any], key: Any) -> MessageQueue:
    """Take the last queue for long messages, the first for others; ``key`` is what was given to ``send``."""
    return queues[-1] if len(message.body) > key else queues[0]


async def main() -> None:
    """Send to each kind of queue."""
    async with Producer("example_queues_producer", CLUSTER) as producer:
        message = Message("ExampleQueues", b"x")
        in_turn = {(await producer.send(message)).queue.queue_id for _ in range(8)}
        queues = await producer.publish_queues("ExampleQueues")
        print("in turn:", len(in_turn) == len(queues))
        print("named:", (await producer.send(message, queue=queues[2])).queue.queue_id)
        by_key = {
            (await producer.send(message, selector=SelectMessageQueueByHash(), key="A17")).queue for _ in range(3)
        }
        print("by key:", len(by_key), "queue")
        anywhere = await producer.send(message, selector=SelectMessageQueueByRandom(Random()))
        print("at random:", anywhere.queue in queues)
        print("own rule:", (await producer.send(message, selector=by_size, key=0)).queue == queues[-1])


asyncio.run(main())
