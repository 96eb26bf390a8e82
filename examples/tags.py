"""Consume the messages of a topic that have one of some tags."""

import asyncio
import sys

from rocketd.client import Message
from rocketd.client.aio import Consumer, Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR


async def main() -> None:
    """Send six messages, of which four are wanted."""
    async with Producer("example_tags_producer", CLUSTER) as producer:
        for number, tag in enumerate(("pear", "apple", "nut", "apple", "pear", "nut")):
            await producer.send(Message("ExampleTags", b"%d" % number, tags=tag))
    consumer = Consumer("example_tags", CLUSTER, topics={"ExampleTags": "apple || pear"}, begin="earliest")
    async with consumer:
        messages = [await anext(consumer) for _ in range(4)]
    for message in sorted(messages, key=lambda message: message.body):
        print(message.body.decode(), message.tags)


asyncio.run(main())
