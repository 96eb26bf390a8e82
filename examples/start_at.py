"""Begin a new group in the past: at the first message, at a point in time, or with what comes next."""

import asyncio
import sys
from datetime import UTC, datetime
from uuid import uuid4

from rocketd.client import Message
from rocketd.client.aio import Consumer, Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR
TOPIC = "ExampleStart"


async def first_of_group_that_starts(begin: str | datetime) -> str:
    """Return the first message that a new group gets."""
    async with Consumer(f"example_start_{uuid4().hex[:8]}", CLUSTER, topics=TOPIC, begin=begin) as consumer:
        return (await anext(consumer)).body.decode()


async def main() -> None:
    """Send three messages to one queue with a little time between."""
    async with Producer("example_start_producer", CLUSTER) as producer:
        queue = (await producer.send(Message(TOPIC, b"oldest"))).queue
        await asyncio.sleep(0.3)
        moment = datetime.now(UTC)
        await asyncio.sleep(0.3)
        await producer.send(Message(TOPIC, b"after the moment"), queue=queue)
        print("earliest:", await first_of_group_that_starts("earliest"))
        print("a moment:", await first_of_group_that_starts(moment))


asyncio.run(main())
