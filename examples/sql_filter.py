"""Consume the messages whose properties an SQL92 expression selects; the broker needs enablePropertyFilter=true."""

import asyncio
import sys

from rocketd.client import Message, Sql
from rocketd.client.aio import Consumer, Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR


async def main() -> None:
    """Send ten messages, of which those between 3 and 5 are wanted."""
    async with Producer("example_sql_producer", CLUSTER) as producer:
        for number in range(10):
            message = Message("ExampleSql", b"%d" % number, properties={"price": str(number), "currency": "EUR"})
            await producer.send(message)
    wanted = Sql("price BETWEEN 3 AND 5 AND currency = 'EUR'")
    async with Consumer("example_sql", CLUSTER, topics={"ExampleSql": wanted}, begin="earliest") as consumer:
        print("prices", *sorted([(await anext(consumer)).body.decode() for _ in range(3)]))


asyncio.run(main())
