"""Send a message and consume it, with asyncio."""

import asyncio
import sys

from rocketd.client import Message
from rocketd.client.aio import Consumer, Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR


async def main() -> None:
    """Send first: the broker makes the topic of its first message."""
    async with Producer("example_quickstart_producer", CLUSTER) as producer:
        result = await producer.send(Message("ExampleQuickstart", b"hello", tags="greeting"))
        print("sent to queue", result.queue.queue_id in range(4), "status", result.status)
    async with Consumer("example_quickstart", CLUSTER, topics="ExampleQuickstart", begin="earliest") as consumer:
        async for message in consumer:
            print("consumed", message.body.decode(), "with tag", message.tags)
            break


asyncio.run(main())
