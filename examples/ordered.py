"""Keep the messages of an order in order: one queue for each key, and a consumer that takes queues in order."""

import asyncio
import sys

from rocketd.client import Message, ReceivedMessage, SelectMessageQueueByHash
from rocketd.client.aio import Consumer, Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR
STEPS = ("created", "paid", "shipped")


async def main() -> None:
    """Send three steps of four orders, mixed."""
    async with Producer("example_ordered_producer", CLUSTER, send_timeout=30) as producer:
        for step in STEPS:
            for order in ("A17", "B18", "C19", "D20"):
                message = Message("ExampleOrdered", step.encode(), keys=[order])
                await producer.send(message, selector=SelectMessageQueueByHash(), key=order)

    seen: dict[str, list[str]] = {}
    done = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        seen.setdefault(message.keys[0], []).append(message.body.decode())
        if sum(map(len, seen.values())) == 12:
            done.set()

    consumer = Consumer(
        "example_ordered", CLUSTER, topics="ExampleOrdered", begin="earliest", handler=handle, order="queue"
    )
    async with consumer:
        await done.wait()
    for order, steps in sorted(seen.items()):
        print(order, *steps)


asyncio.run(main())
