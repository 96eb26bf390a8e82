"""Ask by a message, and wait for the reply of whoever consumes it."""

import asyncio
import sys

from rocketd.client import TEXT, Message, ReceivedMessage
from rocketd.client.aio import Consumer, Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR
TOPIC = "ExampleRequests"


async def main() -> None:
    """Be both: who asks and who answers."""
    asking = Producer("example_asking", CLUSTER, codec=TEXT)
    replying = Producer("example_replying", CLUSTER, codec=TEXT)

    async def answer(request: ReceivedMessage[str]) -> None:
        if request.tags == "question":
            await replying.reply(request, request.body.upper())

    async with asking, replying:
        await asking.send(Message(TOPIC, "makes the topic"))
        async with Consumer("example_requests", CLUSTER, topics=TOPIC, begin="earliest", handler=answer, codec=TEXT):
            for question in ("how", "when"):
                reply = await asking.request(Message(TOPIC, question, tags="question"), timeout=20)
                print(question, "->", reply.body)


asyncio.run(main())
