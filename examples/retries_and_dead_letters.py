"""Have messages come again, later, and find those that never could be consumed."""

import asyncio
import sys

from rocketd.client import Message, ReceivedMessage, Reject, Retry
from rocketd.client.aio import Consumer, Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR
GROUP, TOPIC = "example_retries", "ExampleRetries"


async def main() -> None:
    """Consume three messages: one at the second try, one never, one that is rejected at once."""
    async with Producer("example_retries_producer", CLUSTER) as producer:
        for body in (b"second try", b"never", b"nonsense"):
            await producer.send(Message(TOPIC, body))

    tries: dict[bytes, int] = {}
    consumed = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        tries[message.body] = tries.get(message.body, 0) + 1
        if message.body == b"nonsense":
            raise Reject  # no use in trying again: a dead letter
        if message.body == b"never" or message.reconsume_times == 0:
            raise Retry(delay=1)  # any exception has it come again; this one says when
        consumed.set()

    consumer = Consumer(GROUP, CLUSTER, topics=TOPIC, begin="earliest", handler=handle, max_reconsume_times=1)
    async with consumer:
        await consumed.wait()
        while b"never" not in tries or tries[b"never"] < 2:
            await asyncio.sleep(0.1)
    for body, count in sorted(tries.items()):
        print(body.decode(), "was tried", count, "times" if count > 1 else "time")

    async with Consumer(f"{GROUP}_dead", CLUSTER, topics=f"%DLQ%{GROUP}", begin="earliest") as dead_letters:
        print("dead:", *sorted([(await anext(dead_letters)).body.decode() for _ in range(2)]))


asyncio.run(main())
