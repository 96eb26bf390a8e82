"""Iterate over messages: one is consumed when the next is asked for, and comes again when the loop fails."""

import asyncio
import sys

from rocketd.client import Message
from rocketd.client.aio import Consumer, Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR


async def consume(fail_at: bytes | None) -> list[str]:
    """Consume until the last message, in order."""
    bodies: list[str] = []
    consumer = Consumer("example_iteration", CLUSTER, topics="ExampleIteration", begin="earliest", order="queue")
    async with consumer:
        async for message in consumer:
            if message.body == fail_at:
                raise ValueError("this one is too hard")
            bodies.append(message.body.decode())
            print("consumed", message.body.decode())
            if message.body == b"4":
                break
    return bodies


async def main() -> None:
    """Fail once in the middle, and go on there."""
    async with Producer("example_iteration_producer", CLUSTER) as producer:
        first = await producer.send(Message("ExampleIteration", b"0"))
        for number in range(1, 5):
            await producer.send(Message("ExampleIteration", b"%d" % number), queue=first.queue)
    try:
        await consume(fail_at=b"2")
    except ValueError as error:
        print("failed:", error)
    await consume(fail_at=None)


asyncio.run(main())
