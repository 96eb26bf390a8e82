"""Have messages delivered later: after one of the broker's levels, after any time, or at a moment."""

import asyncio
import sys
from datetime import UTC, datetime, timedelta

from rocketd.client import Message
from rocketd.client.aio import Consumer, Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR
TOPIC = "ExampleDelayed"


async def main() -> None:
    """Send four messages at the same moment."""
    async with Producer("example_delayed_producer", CLUSTER) as producer:
        moment = datetime.now(UTC) + timedelta(seconds=2.5)
        await producer.send(Message(TOPIC, b"moment", deliver_at=moment))
        await producer.send(Message(TOPIC, b"1.7 s", deliver_after=1.7))
        await producer.send(Message(TOPIC, b"level 1", delay_level=1))  # a second
        await producer.send(Message(TOPIC, b"now"))

    async with Consumer("example_delayed", CLUSTER, topics=TOPIC, start="earliest") as consumer:
        for _ in range(4):
            message = await anext(consumer)
            print(message.body.decode(), "after", round((datetime.now(UTC) - message.born_at).total_seconds(), 1))


asyncio.run(main())
