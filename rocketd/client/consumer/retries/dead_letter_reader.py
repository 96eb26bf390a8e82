"""Reads the dead letters of a group, with the reasons of their deaths.

Apache's clients have no counterpart. Its dashboard reads ``%DLQ%group`` as any other topic. Reactor thread.

The reader pulls in the name of TOOLS_CONSUMER, a group of every broker from its first start. Nothing is stored there, so
reading changes no progress. One page of at most PAGE messages is held at a time.
"""

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from rocketd.client.consumer.pulling.pull import address_to_pull, pull, wanted_records
from rocketd.client.consumer.retries.dead_letter_reason import (
    ATTEMPTS,
    CONSUMER,
    EXCEPTION,
    REASON,
    class_name,
    public_name,
)
from rocketd.client.errors import IllegalMessageError, NoRouteError, TopicNotFoundError, UsageError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.codec import BYTES
from rocketd.client.messages.message import ReceivedMessage
from rocketd.client.messages.namespace import queue_without_namespace, with_namespace
from rocketd.client.messages.received import received_message
from rocketd.client.queries.queues import milliseconds_of, search_offset
from rocketd.common.message_properties import ORIGIN_MESSAGE_ID, RETRY_TOPIC
from rocketd.common.names import TOOLS_GROUP, dlq_topic
from rocketd.common.sysflag import COMPRESSED
from rocketd.protocol.cluster import MASTER
from rocketd.protocol.pull import everything, pull_header
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.headers.client import PullMessageResponseHeader, read_header
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.record import MessageExt

PAGE: Final = 32
"""Maximum number of messages in one pull."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter of ``group``, and the reason of its death.

    Clients other than rocketd's give no reason: ``exception``, ``reason`` and ``consumer`` are None then.
    """

    group: str
    message: ReceivedMessage[bytes]
    """The message. Its ``topic`` is the original one, its ``queue`` the place of the dead letter."""
    exception: str | None
    """The class of the handler's exception, with its module."""
    reason: str | None
    """The first line of the exception's text."""
    consumer: str | None
    """The client id of the consumer."""
    attempts: int
    """The number of times the handlers of the group got the message."""
    unreadable: str | None = None
    """Why the body cannot be decompressed here. ``message.body`` has the compressed bytes then."""
    record: MessageExt = field(repr=False, kw_only=True)
    """The stored message."""

    @property
    def id(self) -> str:
        """The id of the dead letter's place. It is unique."""
        return self.message.offset_msg_id

    @property
    def msg_id(self) -> str:
        """The id of the message, which its retries and dead letters share."""
        return self.message.msg_id

    @property
    def topic(self) -> str:
        """The original topic."""
        return self.message.topic

    @property
    def original_id(self) -> str | None:
        """The id of the original message's place."""
        return self.message.properties.get(ORIGIN_MESSAGE_ID)

    @property
    def has_origin(self) -> bool:
        """Whether the original topic is known."""
        return RETRY_TOPIC in self.message.properties

    @property
    def died_at(self) -> datetime:
        """When the broker stored the dead letter, by its clock."""
        return self.message.stored_at


class DeadLetterFilter:
    """Selects dead letters. Raises UsageError for an unsuitable argument.

    - ``exception``: a class, or its name with or without the module.
    - ``since`` and ``until``: a time from which on, and one before which, the dead letter was stored.
    - ``ids``: ids of messages or of their places.
    """

    def __init__(
        self,
        exception: str | type[BaseException] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        ids: Collection[str] | None = None,
    ) -> None:
        if isinstance(exception, type) and issubclass(exception, BaseException):
            exception = class_name(exception)
        elif exception is not None and (not isinstance(exception, str) or not exception):
            raise UsageError(f"exception={exception!r}: accepted is the class of an exception, or its name")
        elif exception is not None:
            exception = public_name(exception)
        for name, moment in (("since", since), ("until", until)):
            if moment is not None and not isinstance(moment, datetime):
                raise UsageError(f"{name}={moment!r}: accepted is a datetime")
        if ids is not None and (isinstance(ids, str) or not isinstance(ids, Collection)):
            raise UsageError(f"ids={ids!r}: accepted is a list of message ids, such as [letter.id]")
        self.since = since
        self._exception = exception
        self._begin_ms = 0 if since is None else milliseconds_of(since)
        self._end_ms = None if until is None else milliseconds_of(until)
        self._ids = None if ids is None else frozenset(ids)

    def is_late(self, record: MessageExt) -> bool:
        """Return whether this record, and all later ones of its queue, were stored too late."""
        return self._end_ms is not None and record.store_timestamp >= self._end_ms

    def accepts(self, letter: DeadLetter) -> bool:
        """Return whether a dead letter is selected. Its time is not too late."""
        if letter.message.store_timestamp < self._begin_ms:
            return False
        if self._ids is not None and self._ids.isdisjoint((letter.id, letter.msg_id)):
            return False
        return self._exception is None or (
            letter.exception is not None
            and (letter.exception == self._exception or letter.exception.endswith(f".{self._exception}"))
        )


class DeadLetterReader:
    """Reads the dead letters of a group, queue after queue, up to the end each queue has at its first pull.

    ``group`` is given without its namespace. If ``packed`` is true, compressed bodies stay so, as the ``sys_flag`` of the
    message tells: the unpacked bodies of one page could fill the memory.
    """

    def __init__(self, instance: ClientInstance, group: str, wanted: DeadLetterFilter, *, packed: bool = False) -> None:
        self._instance = instance
        self._packed = packed
        self._group = group
        self._wanted = wanted
        self._topic = with_namespace(instance.config.namespace, dlq_topic(group))
        self._queues: list[MessageQueue] | None = None
        self._offset: int | None = None
        self._end: int | None = None
        self._broker_id = MASTER

    async def next_page(self) -> list[DeadLetter] | None:
        """Return the selected dead letters of the next pull, perhaps none of them; None at the end.

        Raises:

        - NoRouteError: the dead letters may not be read, or no name server answers.
        - BrokerError: a broker refuses.
        - UnreachableError, ConnectionLostError, RequestTimeoutError: the connection failed. Another call tries again.
        """
        if self._queues is None:
            self._queues = await self._find_queues()
        if not self._queues:
            return None
        queue = self._queues[0]
        if self._offset is None:
            self._offset = 0
            if self._wanted.since is not None:
                self._offset = await search_offset(self._instance, queue, self._wanted.since)
        response = await self._pull(queue, self._offset)
        answer = read_header(PullMessageResponseHeader, response)
        if self._broker_id != MASTER and answer.next_begin_offset <= self._offset:
            self._broker_id = MASTER  # the slave lags behind
            response = await self._pull(queue, self._offset)
            answer = read_header(PullMessageResponseHeader, response)
        if self._end is None:
            self._end = answer.max_offset
        last = answer.next_begin_offset <= self._offset or answer.next_begin_offset >= self._end
        letters = []
        for record in wanted_records(response, everything(queue.topic), f"{queue.topic} at {queue.broker_name}"):
            if record.queue_offset >= self._end or self._wanted.is_late(record):
                last = True
                break
            letter = self._letter(queue, record)
            if self._wanted.accepts(letter):
                letters.append(letter if self._packed else self.unpacked(letter))
        if last:
            del self._queues[0]
            self._offset, self._end, self._broker_id = None, None, MASTER
        else:
            self._offset, self._broker_id = answer.next_begin_offset, answer.suggest_which_broker_id
        return letters

    async def _find_queues(self) -> list[MessageQueue]:
        routes = self._instance.routes
        routes.forget(self._topic)  # brokers may have made it since
        try:
            queues = await routes.subscribe_queues(self._topic)
        except TopicNotFoundError:
            return []
        if not queues:
            raise NoRouteError(
                f"topic {self._topic} may not be read: brokers before 4.7 make it for writing only; permit reading with "
                f"mqadmin updateTopicPerm -t {self._topic} -p 6"
            )
        return sorted(queues)

    async def _pull(self, queue: MessageQueue, offset: int) -> RemotingCommand:
        _, address = address_to_pull(self._instance, queue.broker_name, self._broker_id)
        header = pull_header(TOOLS_GROUP, queue, everything(queue.topic), offset, PAGE)
        return await pull(self._instance, address, header)

    def unpacked(self, letter: DeadLetter) -> DeadLetter:
        """Return a dead letter of this reader with its decompressed body, or with the reason why it is ``unreadable``."""
        if not letter.record.sys_flag & COMPRESSED:
            return letter
        try:
            message = received_message(letter.record, letter.message.queue, BYTES, self._instance.config.namespace)
        except IllegalMessageError as error:
            return dataclasses.replace(letter, unreadable=str(error))
        return dataclasses.replace(letter, message=message)

    def _letter(self, queue: MessageQueue, record: MessageExt) -> DeadLetter:
        namespace = self._instance.config.namespace
        bare = queue_without_namespace(namespace, queue)
        message = received_message(replace(record, sys_flag=record.sys_flag & ~COMPRESSED), bare, BYTES, namespace)
        message.sys_flag = record.sys_flag
        table = message.properties
        exception = table.get(EXCEPTION)
        attempts = table.get(ATTEMPTS, "")
        return DeadLetter(
            self._group,
            message,
            None if exception is None else public_name(exception),
            table.get(REASON),
            table.get(CONSUMER),
            int(attempts)
            if attempts.isascii() and attempts.isdigit() and len(attempts) < 10
            else record.reconsume_times,
            record=record,
        )
