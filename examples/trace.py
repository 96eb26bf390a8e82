"""Have the fate of each message told in the trace topic; the broker needs traceTopicEnable=true."""

import asyncio
import sys

from rocketd.client import Message, ReceivedMessage
from rocketd.client.aio import Consumer, Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR


async def main() -> None:
    """Send and consume with trace, and read what was told of it."""
    async with Producer("example_trace_producer", CLUSTER, trace=True) as producer:
        sent = await producer.send(Message("ExampleTrace", b"traced", keys=["A17"]))

    consumed = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        if message.msg_id == sent.msg_id:
            consumed.set()

    topic = "ExampleTrace"
    async with Consumer("example_trace", CLUSTER, topics=topic, begin="earliest", handler=handle, trace=True):
        await consumed.wait()

    kinds: set[str] = set()
    topic = "RMQ_SYS_TRACE_TOPIC"
    async with Consumer("example_trace_reader", CLUSTER, topics=topic, begin="earliest") as consumer:
        async for message in consumer:
            if sent.msg_id in message.keys:  # the message's id, and its keys
                # Records end with \x02, fields with \x01; the first field is the kind.
                kinds.update(record.split("\x01")[0] for record in message.body.decode().split("\x02") if record)
            if {"Pub", "SubBefore", "SubAfter"} <= kinds:
                break
    print(*sorted(kinds))


asyncio.run(main())
