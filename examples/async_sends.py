"""Have many sends under way at once, and look at each result."""

import asyncio
import sys

from rocketd.client import Message, RocketMQError
from rocketd.client.aio import Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR


async def main() -> None:
    """Send 200 messages at once. They share one connection, so each gets more time."""
    async with Producer("example_async_producer", CLUSTER, send_timeout=30) as producer:
        messages = [Message("ExampleAsync", b"message %d" % number) for number in range(200)]
        results = await asyncio.gather(*map(producer.send, messages), return_exceptions=True)
    failed = [result for result in results if isinstance(result, RocketMQError)]
    print(f"{len(results) - len(failed)} sent, {len(failed)} failed")


asyncio.run(main())
