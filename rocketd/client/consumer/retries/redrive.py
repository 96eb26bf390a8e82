"""Sends dead letters again: to the group alone, or to their original topics.

Counterpart: the dashboard's resend of dead letters (Apache). It has one online consumer of the group handle the message,
and stores nothing. Here the message is stored in the group's retry topic by default, so the group need not be online, and
other groups do not see it. Reactor thread.

A sent message names its dead letter in the property DEAD_LETTER_REDRIVEN_FROM. Before a letter is sent, the brokers are
asked for a message with the letter's unique key and this property. So a redrive may be interrupted and repeated: no letter
is omitted, and none is sent twice. Two cases are beyond this check: two redrives at the same time, and brokers without
an index (``messageIndexEnable=false``). If a broker has more messages with the key than can be read, the redrive stops.
"""

from enum import Enum
from random import Random
from typing import Final, Literal

import msgspec

from rocketd.client.consumer.retries.dead_letter_reader import DeadLetter, DeadLetterFilter, DeadLetterReader
from rocketd.client.consumer.retries.dead_letter_reason import ATTEMPTS, CONSUMER, EXCEPTION, REASON, REDRIVEN_FROM
from rocketd.client.errors import TopicNotFoundError, UsageError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.namespace import with_namespace
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.outgoing import OutgoingMessage
from rocketd.client.producer.sender import ProducerSender
from rocketd.client.queries.messages import has_copy
from rocketd.common import message_properties as props
from rocketd.common.message_properties import encode_properties
from rocketd.common.names import CLIENT_INNER_PRODUCER_GROUP, retry_topic
from rocketd.common.sysflag import COMPRESSED, COMPRESSION_MASK
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.wire.codes import RequestCode

RedriveTarget = Literal["group", "topic"]
"""Where dead letters go: to the retry topic, which only their group reads, or to their original topic."""

CLOCK_SKEW_MS: Final = 600_000
"""Maximum difference between the clocks of two brokers. A sent message is sought from so long before the letter on."""

_NOT_SENT_AGAIN: Final = frozenset(
    {
        props.TRAN_MSG,
        props.DELAY,
        props.REAL_TOPIC,
        props.REAL_QID,
        props.RECONSUME_TIME,
        props.MAX_RECONSUME_TIMES,
        props.CONSUME_START_TIME,
        props.INNER_MULTI_DISPATCH,
        props.INNER_MULTI_QUEUE_OFFSET,
        ATTEMPTS,
        CONSUMER,
        EXCEPTION,
        REASON,
    }
)
"""Properties of earlier deliveries."""


class RedriveOutcome(Enum):
    """The outcome for one dead letter."""

    SENT = "sent"
    SENT_BEFORE = "sent before"
    """An earlier redrive has sent it."""
    UNKNOWN_TOPIC = "unknown topic"
    """It does not name its original topic, or this topic no longer exists. It is not sent."""


class RedriveResult(msgspec.Struct, frozen=True):
    """The numbers of selected dead letters by outcome."""

    sent: int
    sent_before: int = 0
    """Sent by earlier redrives, and not again."""
    unknown_topic: int = 0
    """Not sent, because they do not name their original topic, or this topic no longer exists."""


class _RedrivenMessage(OutgoingMessage, kw_only=True):
    """The message of a dead letter. ``retried`` says whether it goes to the retry topic."""

    born_timestamp: int
    retried: bool


class Redriver(ProducerSender):
    """Sends dead letters again, one after another. Raises UsageError for an unknown target."""

    def __init__(self, instance: ClientInstance, to: RedriveTarget) -> None:
        if to not in ("group", "topic"):
            raise UsageError(f"to={to!r}: accepted is 'group' or 'topic'")
        # One try: after a lost answer the message may be stored, and the next redrive finds it.
        super().__init__(instance, CLIENT_INNER_PRODUCER_GROUP, ProducerOptions(retries=0), Random())
        self._to_group = to == "group"
        self._fresh: set[str] = set()

    async def redrive_all(self, group: str, wanted: DeadLetterFilter) -> RedriveResult:
        """Send the selected dead letters of a group. After an error call it again. Raises the errors of ``redrive``."""
        reader = DeadLetterReader(self._instance, group, wanted)
        counts = dict.fromkeys(RedriveOutcome, 0)
        while (page := await reader.next_page()) is not None:
            for letter in page:
                counts[await self.redrive(letter)] += 1
        return RedriveResult(*counts.values())

    async def redrive(self, letter: DeadLetter) -> RedriveOutcome:
        """Send a dead letter, unless it was sent before.

        Raises:

        - NoRouteError: a broker with copies is not registered, or no name server answers.
        - BrokerError: a broker refuses.
        - RocketMQError: a broker has too many messages with the dead letter's unique key.
        - UnreachableError, ConnectionLostError, RequestTimeoutError: the connection failed.
        """
        outcome = await self.foresee(letter)
        if outcome is RedriveOutcome.SENT:
            topic = self._topic_of(letter)
            queue = await self._retry_queue(topic, letter.message.queue.broker_name) if self._to_group else None
            await self.send(self._encoded(letter, topic), self.send_timeout_ms, queue=queue)
        return outcome

    async def foresee(self, letter: DeadLetter) -> RedriveOutcome:
        """Return the outcome of ``redrive``, but send nothing. Raises its errors."""
        if not letter.has_origin:
            return RedriveOutcome.UNKNOWN_TOPIC
        topic = self._topic_of(letter)
        if topic not in self._fresh:
            self._instance.routes.forget(topic)  # more brokers may have it since
            self._fresh.add(topic)
        try:
            return RedriveOutcome.SENT_BEFORE if await self._is_sent(letter, topic) else RedriveOutcome.SENT
        except TopicNotFoundError:
            # The broker makes the retry topic for its first message.
            return RedriveOutcome.SENT if self._to_group else RedriveOutcome.UNKNOWN_TOPIC

    def _topic_of(self, letter: DeadLetter) -> str:
        namespace = self._instance.config.namespace
        if self._to_group:
            return retry_topic(with_namespace(namespace, letter.group))
        return with_namespace(namespace, letter.topic)

    async def _is_sent(self, letter: DeadLetter, topic: str) -> bool:
        begin_ms = max(0, letter.record.store_timestamp - CLOCK_SKEW_MS)
        return await has_copy(
            self._instance,
            topic,
            letter.msg_id,
            begin_ms,
            lambda record: record.properties_map().get(REDRIVEN_FROM) == letter.id,
        )

    async def _retry_queue(self, topic: str, broker_name: str) -> MessageQueue:
        """Return a queue of the retry topic at the broker of the dead letter."""
        try:
            queues = await self._instance.routes.subscribe_queues(topic)
        except TopicNotFoundError:
            queues = []
        return next((each for each in queues if each.broker_name == broker_name), MessageQueue(topic, broker_name, 0))

    def _encoded(self, letter: DeadLetter, topic: str) -> OutgoingMessage:
        record = letter.record
        left_out = _NOT_SENT_AGAIN if self._to_group else _NOT_SENT_AGAIN | {props.RETRY_TOPIC, props.ORIGIN_MESSAGE_ID}
        table = {
            name: value
            for name, value in letter.message.properties.items()
            if name not in left_out and not name.startswith(props.TIMER_PREFIX)
        }
        table[props.UNIQ_KEY] = letter.msg_id
        table[REDRIVEN_FROM] = letter.id
        return _RedrivenMessage(
            RequestCode.SEND_MESSAGE_V2,
            topic,
            record.body,
            record.sys_flag & (COMPRESSED | COMPRESSION_MASK),
            record.flag,
            encode_properties(table),
            [letter.msg_id],
            (),
            len(record.body),
            born_timestamp=record.born_timestamp,
            retried=self._to_group,
        )

    def fields(self, outgoing: OutgoingMessage, queue: MessageQueue) -> dict[str, str]:
        """Return the fields of the request, with the time of the original send.

        The limit of retries concerns this request alone: a group without retries would make it a dead letter again.
        """
        assert isinstance(outgoing, _RedrivenMessage)
        fields = super().fields(outgoing, queue)
        fields["g"] = str(outgoing.born_timestamp)
        if outgoing.retried:
            last = {name: fields.pop(name) for name in "mn"}
            return {**fields, "l": "1", **last}
        return fields
