"""Send messages together. What exceeds the size limit becomes several requests; consume them in lists."""

import asyncio
import sys

from rocketd.client import Message, ReceivedMessage
from rocketd.client.aio import Consumer, Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR


async def main() -> None:
    """Send 100 messages of 1 kB, with requests of 32 kB at most."""
    messages = [Message("ExampleBatch", b"%04d" % number + bytes(996)) for number in range(100)]
    async with Producer("example_batch_producer", CLUSTER, max_message_size=32_768) as producer:
        results = await producer.send_batch(messages)
    print(len(results), "results")

    numbers: set[int] = set()
    done = asyncio.Event()

    async def handle(several: list[ReceivedMessage]) -> None:
        numbers.update(int(message.body[:4]) for message in several)
        if len(numbers) == 100:
            done.set()

    consumer = Consumer("example_batch", CLUSTER, topics="ExampleBatch", begin="earliest", handler=handle, batch=16)
    async with consumer:
        await done.wait()
    print("consumed", min(numbers), "to", max(numbers))


asyncio.run(main())
