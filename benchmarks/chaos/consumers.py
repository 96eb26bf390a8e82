"""The workers that consume. Each notes the start and the result of its handlers, and consumes until it has to leave."""

from __future__ import annotations

import asyncio
import signal
import time
import zlib
from collections.abc import Callable

from benchmarks.chaos import journal
from benchmarks.chaos.context import Context
from benchmarks.chaos.topics import (
    BROADCAST,
    CONCURRENT,
    GROUPS,
    ITERATION,
    KEY_ORDER,
    POLL,
    QUEUE_ORDER,
    REQUESTS,
    REST,
    key_of,
)
from rocketd.client import ClientConfig, Retry, aio, sync
from rocketd.client.errors import RocketMQError

Received = sync.ReceivedMessage[bytes]

FAILING_TRIES = 2
"""How often a message may fail: a third redelivery would come after a minute only."""

SLOW_SECONDS = 1.5
ORIGIN = "ORIGIN_MESSAGE_ID"
"""The property in which a redelivery names the message that failed."""


class Trouble(Exception):  # noqa: N818 - a failure on purpose
    """A handler fails."""


class Handling:
    """The behaviour of the handlers of a worker: 1 % of the calls raise, 1 % ask for the message later, 0.5 % are slow."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def handle(self, message: Received) -> None:
        """Handle one message."""
        self.handle_all([message])

    def handle_all(self, messages: list[Received]) -> None:
        """Handle some messages together."""
        chance = self._context.chance.random()
        for message in messages:
            self.note(journal.BEGUN, message)
            self.check(message)
        if chance < 0.02 and messages[0].reconsume_times < FAILING_TRIES:
            for message in messages:
                self.note(journal.FAILED, message)
            raise Trouble if chance < 0.01 else Retry()
        if 0.02 <= chance < 0.025:
            time.sleep(SLOW_SECONDS)
        for message in messages:
            self.note(journal.DONE, message)

    def note(self, kind: str, message: Received) -> None:
        """Write a line about a message."""
        stored = message.properties.get(ORIGIN) or message.offset_msg_id
        queue = f"{message.queue.topic}/{message.queue.queue_id}"
        self._context.journal.note(kind, message.keys[0], stored, queue, message.queue_offset)

    def check(self, message: Received) -> None:
        """Compare a body with its CRC, if it has one."""
        crc = message.properties.get("crc")
        if crc is not None and zlib.crc32(message.body) != int(crc):
            self._context.journal.note(journal.WRONG, "body", message.keys[0])


def _consumer(**options: object) -> Callable[[Context], None]:
    """Return a worker: a blocking consumer of the worker's group, with these options."""

    def run(context: Context) -> None:
        role = context.worker.rpartition("-")[0]
        handling = Handling(context)
        chosen = dict(options)
        cluster: str | ClientConfig = context.namesrv
        if role == BROADCAST:
            cluster = ClientConfig(
                namesrv=context.namesrv, instance_name=context.worker
            )  # it names the file of offsets
            chosen["offset_directory"] = context.directory / context.worker
            chosen["batch"] = 8 if context.worker.endswith("1") else 1
        handler = handling.handle_all if chosen.get("batch", 1) != 1 else handling.handle
        consumer = sync.Consumer(
            context.group(role),
            cluster,
            topics=GROUPS[role],
            begin="earliest",
            handler=handler,
            **chosen,
        )
        with consumer:
            context.ending.wait()

    return run


def poll(context: Context) -> None:
    """A consumer that polls."""
    handling = Handling(context)
    group = context.group(POLL)
    with sync.LitePullConsumer(group, context.namesrv, topics=GROUPS[POLL], begin="earliest") as consumer:
        while not context.ending.is_set():
            for message in consumer.poll(timeout=1):
                handling.note(journal.DONE, message)


def iterate(context: Context) -> None:
    """A loop over the messages."""
    asyncio.run(_iterate(context))


async def _iterate(context: Context) -> None:
    handling = Handling(context)
    group = context.group(ITERATION)
    async with aio.Consumer(group, context.namesrv, topics=GROUPS[ITERATION], begin="earliest") as consumer:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.finish)
        async for message in consumer:
            handling.note(journal.DONE, message)


def reply(context: Context) -> None:
    """A consumer that answers requests."""
    with sync.Producer(context.group("repliers"), context.namesrv) as producer:

        def handle(message: Received) -> None:
            try:
                producer.reply(message, message.body[::-1])
            except RocketMQError:
                return  # the requester no longer waits, or its broker is away

        with sync.Consumer(context.group("reply"), context.namesrv, topics=REQUESTS, begin="earliest", handler=handle):
            context.ending.wait()


ROLES = {
    CONCURRENT: _consumer(),
    QUEUE_ORDER: _consumer(order="queue"),
    KEY_ORDER: _consumer(order="key", key=lambda message: key_of(message.keys[0])),
    BROADCAST: _consumer(broadcast=True),
    REST: _consumer(),
    POLL: poll,
    ITERATION: iterate,
    "reply": reply,
}
