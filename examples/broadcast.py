"""Have every consumer get all messages; each keeps its offsets in a file of its own."""

import asyncio
import sys
from tempfile import TemporaryDirectory

from rocketd.client import ClientConfig, Message
from rocketd.client.aio import Consumer, Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR
TOPIC = "ExampleBroadcast"


def consumer_named(name: str, directory: str) -> Consumer:
    """Make one of two consumers in a process: each needs a name, which its file of offsets has, too."""
    config = ClientConfig(namesrv=CLUSTER, instance_name=name)
    return Consumer("example_broadcast", config, topics=TOPIC, broadcast=True, offset_directory=directory)


async def main() -> None:
    """Consume twice."""
    async with Producer("example_broadcast_producer", CLUSTER) as producer:
        await producer.send(Message(TOPIC, b"makes the topic"))
        with TemporaryDirectory() as directory:  # a real one stays: ~/.rocketmq_offsets where none is given
            async with consumer_named("one", directory) as one, consumer_named("other", directory) as other:
                await producer.send_batch([Message(TOPIC, b"%d" % number) for number in range(5)])
                for consumer in (one, other):
                    print(*[(await anext(consumer)).body.decode() for _ in range(5)])


asyncio.run(main())
