"""Have messages delivered later: after one of the broker's levels, after any time, or at a point in time."""

import asyncio
import sys
from datetime import UTC, datetime, timedelta

from rocketd.client import Message
from rocketd.client.aio import Consumer, Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR
TOPIC = "ExampleDelayed"


async def main() -> None:
    """Send four messages at the same time."""
    async with Producer("example_delayed_producer", CLUSTER) as producer:
        begin = datetime.now(UTC)
        await producer.send(Message(TOPIC, b"moment", deliver_at=begin + timedelta(seconds=2.5)))
        await producer.send(Message(TOPIC, b"1.7 s", deliver_after=1.7))
        await producer.send(Message(TOPIC, b"level 1", delay_level=1))  # a second
        await producer.send(Message(TOPIC, b"now"))

    async with Consumer("example_delayed", CLUSTER, topics=TOPIC, begin="earliest") as consumer:
        waits: dict[str, float] = {}
        for _ in range(4):
            message = await anext(consumer)
            waits[message.body.decode()] = (datetime.now(UTC) - begin).total_seconds()
    for what, seconds in sorted(waits.items()):
        print(f"{what} after {seconds:.2f} s")


asyncio.run(main())
