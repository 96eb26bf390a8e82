"""Reads the messages of a topic without a consumer group of its own, and waits for a topic that does not exist yet.

Counterpart: mqadmin consumeMessage (Apache). Every broker has the group TOOLS_CONSUMER from its first start. Its pulls
store no offset and no membership, so nothing is left on the brokers.
"""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from rocketd.client.consumer.options.subscription import subscription_of
from rocketd.client.consumer.pulling.pull import address_to_pull, pull, wanted_records
from rocketd.client.errors import (
    BrokerError,
    IllegalMessageError,
    NoNameServerError,
    NoRouteError,
    RocketMQError,
    TopicNotFoundError,
)
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.codec import BYTES
from rocketd.client.messages.message import ReceivedMessage
from rocketd.client.messages.received import received_message
from rocketd.client.queries.queues import max_offset, min_offset, search_offset
from rocketd.common.command_line.output import complain
from rocketd.common.names import TOOLS_GROUP
from rocketd.common.sysflag import PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketd.protocol.cluster import MASTER
from rocketd.protocol.pull import pull_header
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.headers.client import PullMessageResponseHeader, read_header
from rocketd.store.format.record import MessageExt
from rocketd.tools.messages.positions import StartPosition
from rocketd.tools.messages.refusals import is_final

_LOOK_SECONDS: Final = 0.5
"""Interval of the look for a missing topic."""
_NEW_QUEUES_SECONDS: Final = 5.0
"""Interval of the look for new queues of the topic."""
_FIRST_RETRY, _LONGEST_RETRY = 0.1, 2.0
"""Seconds between two tries of a pull: the wait doubles up to the second."""
_EMPTY_SECONDS: Final = 0.05
"""Pause after an answer without progress, for brokers that do not hold pulls."""
_SUSPEND_MS: Final = 15_000
"""Time for which a broker may hold a pull without messages."""


async def wait_for_topic(client: ClientInstance, topic: str, *, wait: bool) -> bool:
    """Return when a broker has the topic. Return True if the topic was missing before.

    Without ``wait`` a missing topic raises NoRouteError. Other refusals of name servers raise RocketMQError.
    """
    told: list[type[NoRouteError]] = []
    while True:
        try:
            await client.routes.route(topic)
        except NoRouteError as error:
            if not wait or (isinstance(error, NoNameServerError) and error.code is not None):
                raise
            if type(error) not in told:
                told.append(type(error))
                reason = "" if isinstance(error, TopicNotFoundError) else f": {error}"
                complain(f"waiting for topic {topic}{reason}")
        else:
            return TopicNotFoundError in told
        await deferLater(client.reactor, _LOOK_SECONDS, lambda: None)


def readable(records: Iterable[MessageExt], queue: MessageQueue) -> list[ReceivedMessage[bytes]]:
    """Return the messages of records. One whose body cannot be decompressed is skipped with a complaint."""
    messages = []
    for record in records:
        try:
            messages.append(received_message(record, queue, BYTES))
        except IllegalMessageError as error:
            complain(f"{queue.broker_name} queue {queue.queue_id} offset {record.queue_offset} is skipped: {error}")
    return messages


def _skip(damage: str) -> None:
    complain(f"{damage}; it is skipped")


class TopicReader:
    """Pulls all queues of a topic, and calls ``received`` with each message that has the tag. Reactor thread.

    ``received`` returns whether more messages are wanted. ``batch`` is the largest number of messages in one pull.
    Queues found after the first look start at ``later_start``.
    """

    def __init__(
        self,
        client: ClientInstance,
        topic: str,
        tag: str,
        start: StartPosition,
        later_start: StartPosition,
        batch: int,
        received: Callable[[ReceivedMessage[bytes]], bool],
    ) -> None:
        self._client = client
        self._topic = topic
        self._subscription = subscription_of(topic, tag, 0)
        self._start = start
        self._later_start = later_start
        self._batch = batch
        self._received = received
        self._loops: dict[object, Deferred[None]] = {}
        self._done: Deferred[None] = Deferred()
        self._ending = False

    async def run(self) -> None:
        """Read until no more messages are wanted, or until cancelled.

        Raises the exception of ``received``, and BrokerError for a permanent refusal.
        """
        try:
            self._begin("new queues", self._look_for_queues())
            await self._done
        finally:
            self._ending = True
            for loop in list(self._loops.values()):
                loop.cancel()

    def _begin(self, key: object, work: Coroutine[Deferred[Any], Any, None]) -> None:
        loop: Deferred[None] = Deferred.fromCoroutine(work)
        self._loops[key] = loop
        loop.addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        if not self._ending:
            self._ending = True
            self._done.errback(failure)

    async def _look_for_queues(self) -> None:
        """Read each queue. A queue found later can be that of a broker that was away: it may have old messages."""
        start = self._start
        while not self._ending:
            for queue in await self._client.routes.subscribe_queues(self._topic):
                if queue not in self._loops and not self._ending:
                    self._begin(queue, self._read(queue, start))
            start = self._later_start
            await self._sleep(_NEW_QUEUES_SECONDS)
            try:
                await self._client.routes.refresh([self._topic])
            except RocketMQError:
                continue  # the queues known so far are read on

    async def _read(self, queue: MessageQueue, start: StartPosition) -> None:
        offset: int | None = None
        broker_id = MASTER
        wait, told = _FIRST_RETRY, False
        while not self._ending:
            try:
                if offset is None:
                    offset = await self._first_offset(queue, start)
                before = offset
                offset, broker_id, messages = await self._pull(queue, offset, broker_id)
            except RocketMQError as error:
                if isinstance(error, BrokerError) and is_final(error.code):
                    raise
                if not told:
                    told = True
                    complain(f"{queue.broker_name} queue {queue.queue_id}: {error}; trying again")
                await self._sleep(wait)
                wait = min(2 * wait, _LONGEST_RETRY)
                continue
            wait, told = _FIRST_RETRY, False
            if offset == before:
                await self._sleep(_EMPTY_SECONDS)
            for message in messages:
                if self._ending:
                    return
                if not self._received(message):
                    self._ending = True
                    self._done.callback(None)

    async def _first_offset(self, queue: MessageQueue, start: StartPosition) -> int:
        if start.moment is not None:
            return await search_offset(self._client, queue, start.moment)
        if start.word == "offset":
            return start.offset
        return await (max_offset if start.word == "latest" else min_offset)(self._client, queue)

    async def _pull(
        self, queue: MessageQueue, offset: int, broker_id: int
    ) -> tuple[int, int, list[ReceivedMessage[bytes]]]:
        """Return the next offset, the id of the broker to ask next, and the messages."""
        _, address = address_to_pull(self._client, queue.broker_name, broker_id)
        flags = PULL_SUBSCRIPTION | PULL_SUSPEND
        header = pull_header(
            TOOLS_GROUP, queue, self._subscription, offset, self._batch, sys_flag=flags, suspend_ms=_SUSPEND_MS
        )
        response = await pull(self._client, address, header)
        told = read_header(PullMessageResponseHeader, response)
        records = wanted_records(response, self._subscription, queue.broker_name, _skip)
        messages = readable(records, queue)
        return told.next_begin_offset, told.suggest_which_broker_id, messages

    async def _sleep(self, seconds: float) -> None:
        await deferLater(self._client.reactor, seconds, lambda: None)
