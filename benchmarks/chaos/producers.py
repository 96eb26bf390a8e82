"""The workers that send. A send that fails is noted, and its message counts as neither stored nor lost."""

from __future__ import annotations

import asyncio
import random
import signal
import threading
import zlib

from benchmarks.chaos import journal
from benchmarks.chaos.context import Context
from benchmarks.chaos.topics import DELAYED, KEYED, LARGE, ORDERED, PLAIN, REQUESTS, TRANSACTIONS, key_of
from rocketd.client import Message, TransactionState, aio, sync
from rocketd.client.errors import RocketMQError

THREADS, WINDOW, BATCH = 4, 16, 32
LARGEST = 4 * 1024 * 1024
"""The limit of bodies at clients and brokers."""

PAUSE = 0.2
"""Seconds after a failed send."""


def _message(topic: str, ident: str, body: bytes | None = None, **more: object) -> Message[bytes]:
    return Message(topic, ident.encode() if body is None else body, keys=[ident], **more)


def _send(context: Context, producer: sync.Producer[bytes], message: Message[bytes], key: str | None = None) -> bool:
    """Send one message, and note the result. Return whether it was acknowledged."""
    try:
        producer.send(message, key=key)
    except RocketMQError as error:
        context.journal.note(journal.UNSENT, message.topic, message.keys[0], type(error).__name__)
        context.ending.wait(PAUSE)
        return False
    context.journal.note(journal.SENT, message.topic, message.keys[0])
    return True


def send_in_threads(context: Context) -> None:
    """Four threads send by one blocking producer, in turn to a plain topic and to the one read in order."""
    with sync.Producer(context.group("senders"), context.namesrv) as producer:

        def run(thread: int) -> None:
            for number, ident in enumerate(context.paced(5, f"-t{thread}")):
                _send(context, producer, _message((PLAIN, ORDERED)[number % 2], ident))

        threads = [threading.Thread(target=run, args=(thread,)) for thread in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        context.ending.wait()


def send_in_tasks(context: Context) -> None:
    """Sixteen tasks send by one asyncio producer."""
    asyncio.run(_send_in_tasks(context))


async def _send_in_tasks(context: Context) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: (context.quiet.set(), ended.set()))
    async with aio.Producer(context.group("tasks"), context.namesrv) as producer:

        async def run(task: int) -> None:
            for number, wait in context.pauses(0.7):
                await asyncio.sleep(wait)
                ident = f"{context.worker}-t{task}:{number}"
                try:
                    await producer.send(_message(PLAIN, ident))
                except RocketMQError as error:
                    context.journal.note(journal.UNSENT, PLAIN, ident, type(error).__name__)
                    await asyncio.sleep(PAUSE)
                else:
                    context.journal.note(journal.SENT, PLAIN, ident)

        await asyncio.gather(*(run(task) for task in range(WINDOW)))
        await ended.wait()


def send_batches(context: Context) -> None:
    """Batches of 32 messages."""
    with sync.Producer(context.group("batches"), context.namesrv) as producer:
        for ident in context.paced(0.25):
            idents = [f"{ident}:{number}" for number in range(BATCH)]
            try:
                producer.send_batch([_message(PLAIN, each) for each in idents])
            except RocketMQError as error:
                context.journal.note(journal.UNSENT, PLAIN, ident, type(error).__name__)
            else:
                for each in idents:
                    context.journal.note(journal.SENT, PLAIN, each)
        context.ending.wait()


def send_keyed(context: Context) -> None:
    """The messages of eight keys, each key in sequence: a failed message is sent again before the next one."""
    with sync.Producer(context.group("keyed"), context.namesrv) as producer:
        for number, _ in enumerate(context.paced(6)):
            ident = f"key{number % 8}:{number // 8}"
            message = _message(KEYED, ident)
            while not _send(context, producer, message, key_of(ident)):
                if context.ending.is_set():
                    break
        context.ending.wait()


def send_delayed(context: Context) -> None:
    """Messages with a delay of 1, 5 or 10 s."""
    with sync.Producer(context.group("delayed"), context.namesrv) as producer:
        for ident in context.paced(1):
            _send(context, producer, _message(DELAYED, ident, delay_level=context.chance.randint(1, 3)))
        context.ending.wait()


def send_large(context: Context) -> None:
    """Bodies of up to 4 MB with their CRC. Every other one can be compressed."""
    with sync.Producer(context.group("large"), context.namesrv, send_timeout=10) as producer:
        for number, ident in enumerate(context.paced(0.5)):
            size = LARGEST - 1024 if number % 8 == 0 else context.chance.randint(100_000, LARGEST - 1024)
            body = _body(context.chance, size, compressible=number % 2 == 1)
            _send(context, producer, _message(LARGE, ident, body, properties={"crc": str(zlib.crc32(body))}))
        context.ending.wait()


def _body(chance: random.Random, size: int, *, compressible: bool) -> bytes:
    return (chance.randbytes(1000) * (size // 1000 + 1))[:size] if compressible else chance.randbytes(size)


class Ledger:
    """The local transactions. The id of a message alone decides, so any producer of the group knows the answer."""

    def __init__(self, context: Context) -> None:
        self._journal = context.journal

    def execute(self, message: Message[bytes], arg: object, transaction_id: str) -> TransactionState:
        """Commit half of the transactions; of the others one fails, and the broker has to ask about some."""
        turn = _turn(message.keys[0])
        if turn == 9:
            raise OSError("the local transaction fails")
        if turn in (7, 8):
            return TransactionState.UNKNOWN
        return TransactionState.COMMIT if turn < 5 else TransactionState.ROLLBACK

    def check(self, message: sync.ReceivedMessage[bytes]) -> TransactionState:
        """Answer a broker."""
        ident = message.keys[0]
        self._journal.note(journal.CHECKED, ident)
        state = TransactionState.COMMIT if _turn(ident) in (0, 1, 2, 3, 4, 7) else TransactionState.ROLLBACK
        self._journal.note(journal.DECIDED, ident, state.name)
        return state


def _turn(ident: str) -> int:
    return zlib.crc32(ident.encode()) % 10


def send_transactions(context: Context) -> None:
    """Transactions that commit, roll back, leave the answer open, or fail."""
    group = context.group("transactions")
    with sync.Producer(group, context.namesrv, transactions=Ledger(context)) as producer:
        for ident in context.paced(1.5):
            try:
                result = producer.send_in_transaction(_message(TRANSACTIONS, ident))
            except OSError:
                continue  # of the local transaction
            except RocketMQError as error:
                context.journal.note(journal.UNSENT, TRANSACTIONS, ident, type(error).__name__)
                context.ending.wait(PAUSE)
                continue
            if result.state is not TransactionState.UNKNOWN:
                context.journal.note(journal.DECIDED, ident, result.state.name)
        context.ending.wait()


def send_requests(context: Context) -> None:
    """Requests whose replies are their bodies backwards."""
    with sync.Producer(context.group("requests"), context.namesrv) as producer:
        for ident in context.paced(2):
            try:
                reply = producer.request(_message(REQUESTS, ident), timeout=5)
            except RocketMQError:
                context.journal.note(journal.UNANSWERED, ident)
                continue
            if reply.body == ident.encode()[::-1]:
                context.journal.note(journal.ANSWERED, ident)
            else:
                context.journal.note(journal.WRONG, "reply", ident)
        context.ending.wait()


ROLES = {
    "threads": send_in_threads,
    "tasks": send_in_tasks,
    "batches": send_batches,
    "keys": send_keyed,
    "delays": send_delayed,
    "bulk": send_large,
    "transactions": send_transactions,
    "requests": send_requests,
}
