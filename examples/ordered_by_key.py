"""Handle the messages of a key one after the other, and those of other keys of the same queue meanwhile."""

import asyncio
import sys
from collections import Counter

from rocketd.client import Message, ReceivedMessage
from rocketd.client.aio import Consumer, Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR


async def main() -> None:
    """Send all to one queue, whose messages a consumer with ``order="queue"`` would take one by one."""
    async with Producer("example_keyed_producer", CLUSTER, send_timeout=30) as producer:
        await producer.send(Message("ExampleKeyed", b"makes the topic", keys=["none"]))
        queue = (await producer.publish_queues("ExampleKeyed"))[0]
        for number in range(5):
            for customer in ("ann", "bob", "eve"):
                await producer.send(Message("ExampleKeyed", b"%d" % number, keys=[customer]), queue=queue)

    running: Counter[str] = Counter()
    together = same = 0
    seen: dict[str, str] = {}
    done = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        nonlocal together, same
        customer = message.keys[0]
        running[customer] += 1
        together, same = max(together, running.total()), max(same, running[customer])
        await asyncio.sleep(0.05)
        running[customer] -= 1
        if customer != "none":
            seen[customer] = seen.get(customer, "") + message.body.decode()
        if sum(map(len, seen.values())) == 15:
            done.set()

    topic = "ExampleKeyed"
    async with Consumer("example_keyed", CLUSTER, topics=topic, begin="earliest", handler=handle, order="key"):
        await done.wait()
    print("at once:", together > 1, "of one key:", same)
    for customer, numbers in sorted(seen.items()):
        print(customer, numbers)


asyncio.run(main())
