"""Send a message if, and only if, a local transaction is committed; the broker asks when it was not told."""

import asyncio
import sys
from typing import Any

from rocketd.client import Message, ReceivedMessage, TransactionState
from rocketd.client.aio import Consumer, Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR


class Listener:
    """The application's part. What ``check`` looks into would be a table of the database."""

    async def execute(self, message: Message, arg: Any, transaction_id: str) -> TransactionState:
        """Do the local transaction."""
        return TransactionState[arg]

    async def check(self, message: ReceivedMessage) -> TransactionState:
        """Say how it ended: the broker asks after a while, 6 s or more with its usual settings, and again."""
        return TransactionState.COMMIT


async def main() -> None:
    """Send three half messages, of which two become messages."""
    producer = Producer("example_transactions_producer", CLUSTER, transactions=Listener())
    async with producer:
        for answer in ("COMMIT", "ROLLBACK", "UNKNOWN"):
            result = await producer.send_in_transaction(Message("ExampleTransactions", answer.encode()), answer)
            print("transaction:", result.state.name)
        consumer = Consumer("example_transactions", CLUSTER, topics="ExampleTransactions", begin="earliest")
        async with consumer:
            for _ in range(2):
                print("consumed:", (await anext(consumer)).body.decode())


asyncio.run(main())
