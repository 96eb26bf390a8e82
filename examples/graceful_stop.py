"""Stop at SIGTERM: pull no more, let handlers end, store the offsets, leave the group."""

import asyncio
import os
import signal
import sys

from rocketd.client import Message, ReceivedMessage
from rocketd.client.aio import Consumer, Producer, run

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR


async def main() -> None:
    """Be stopped in the middle of a message."""

    async def handle(message: ReceivedMessage) -> None:
        print("begins", message.body.decode())
        os.kill(os.getpid(), signal.SIGTERM)  # as the supervisor would do
        await asyncio.sleep(0.5)
        print("has handled", message.body.decode())

    async with Producer("example_stop_producer", CLUSTER) as producer:
        await producer.send(Message("ExampleStop", b"the message"))
    await run(Consumer("example_stop", CLUSTER, topics="ExampleStop", begin="earliest", handler=handle, grace=10))
    print("stopped")


asyncio.run(main())
