"""What subscribers have to get of what was sent, and whether they have: so that a test can wait for it.

No counterpart in Apache. It is a hook of the producer and of the consumers.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rocketd.client.config import Duration, milliseconds
from rocketd.client.consumer.options import ConsumerOptions, Order
from rocketd.client.consumer.outcome import BROKER_CHOOSES, LEVEL_SECONDS, Retry
from rocketd.client.consumer.subscription import SQL92, Sql, subscription_of, wants
from rocketd.client.errors import StopConsuming
from rocketd.client.hooks import ConsumeMessageContext, ConsumerHook, ProducerHook, SendMessageContext
from rocketd.client.message import Message, ReceivedMessage
from rocketd.faststream.subscriber import RocketSubscriber
from rocketd.filter.selector import compile_selector

FIRST_RETRY_LEVEL = 3
"""Delay level of a message's first retry where the handler names none; one more each time."""

MAX_RECONSUME_TIMES = 16
"""How often a message comes again where the consumer does not say."""


@dataclass(frozen=True)
class Delivery:
    """One message for one group, for the first time (0) or again."""

    topic: str
    group: str
    msg_id: str
    times: int

    def __str__(self) -> str:
        return f"{self.msg_id} of topic {self.topic} by group {self.group}"


class Deliveries(ProducerHook, ConsumerHook):
    """Deliveries that are to come, at once or later. Loop thread.

    ``subscribers`` gives those of all brokers, ``now_ms`` their cluster's time.
    """

    def __init__(self, subscribers: Callable[[], Iterable[RocketSubscriber]], now_ms: Callable[[], float]) -> None:
        self._subscribers = subscribers
        self._now_ms = now_ms
        self._expected: set[Delivery] = set()
        self._later: list[tuple[float, Delivery]] = []
        self._errors: list[BaseException] = []
        self._changed = asyncio.Event()

    # ------------------------------------------------------------ what the client tells

    def send_before(self, context: SendMessageContext) -> None:
        """Expect what is sent now."""
        for message, msg_id in zip(context.messages, context.msg_id.split(","), strict=True):
            due_ms = self._due_ms(message)
            for subscriber in self.wanting(message):
                delivery = Delivery(message.topic, subscriber.group, msg_id, 0)
                if due_ms is None:
                    self._expected.add(delivery)
                else:
                    self._later.append((due_ms, delivery))

    def send_after(self, context: SendMessageContext) -> None:
        """Do not expect what could not be sent."""
        if context.error is not None:
            failed = set(context.msg_id.split(","))
            self._expected = {delivery for delivery in self._expected if delivery.msg_id not in failed}
            self._later = [(due_ms, delivery) for due_ms, delivery in self._later if delivery.msg_id not in failed]
            self._changed.set()

    def consume_after(self, context: ConsumeMessageContext) -> None:
        """Take note of what was handled, and expect it again if it is to come again."""
        if isinstance(context.error, StopConsuming):
            return
        for message in context.messages:
            delivery = Delivery(message.topic, context.group, message.msg_id, message.reconsume_times)
            self._expected.discard(delivery)
            self._later = [(due_ms, later) for due_ms, later in self._later if later != delivery]
            if isinstance(context.error, Retry):
                self._expect_again(delivery, message, context.error)
        self._changed.set()

    def failed(self, error: BaseException) -> None:
        """Take note of what a handler raised."""
        self._errors.append(error)
        self._changed.set()

    # ------------------------------------------------------------ what a test asks

    def wanting(self, message: Message[Any]) -> list[RocketSubscriber]:
        """Return the subscribers that get a message, one of each group."""
        found = {}
        for subscriber in self._subscribers():
            handles = subscriber.joined and subscriber.calls and message.topic in subscriber.topics
            if handles and _wants(subscriber.wanted, message):
                found[subscriber.group] = subscriber
        return list(found.values())

    def come_due(self) -> None:
        """Expect now what was for later, as far as its time has come."""
        now_ms = self._now_ms()
        self._expected.update(delivery for due_ms, delivery in self._later if due_ms <= now_ms)
        self._later = [(due_ms, delivery) for due_ms, delivery in self._later if due_ms > now_ms]

    async def settle(self, patience: float) -> None:
        """Wait until all that is expected was handled.

        Raises the first error of a handler since, and AssertionError when that takes longer than ``patience`` seconds.
        """
        try:
            async with asyncio.timeout(patience):
                while self._expected:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            missing, self._expected = self._expected, set()
            raise AssertionError(self._complaint(missing, patience)) from None
        self.raise_first()

    def leave_unacknowledged(self) -> None:
        """Leave where they are the messages whose handlers have ended without a word about them."""
        for subscriber in self._subscribers():
            for settlement in list(subscriber.unacknowledged):
                settlement.leave()

    async def failure(self) -> None:
        """Wait for a handler to fail, and raise what it raised."""
        while True:
            self.raise_first()
            self._changed.clear()
            await self._changed.wait()

    def raise_first(self) -> None:
        """Raise the first error of a handler, and forget all of them."""
        if self._errors:
            error = self._errors[0]
            self._errors.clear()
            raise error

    # ------------------------------------------------------------ within

    def _complaint(self, missing: Iterable[Delivery], patience: float) -> str:
        ended = {
            (subscriber.group, message.msg_id)
            for subscriber in self._subscribers()
            for raw in subscriber.unacknowledged.values()
            for message in (raw if isinstance(raw, list) else [raw])
        }
        missing = list(missing)
        silent = [each for each in missing if (each.group, each.msg_id) in ended]
        running = [each for each in missing if each not in silent]
        faults = []
        if running:
            faults.append(f"not handled within {patience:g} s: {', '.join(map(str, running))}")
        if silent:
            faults.append(
                f"not acknowledged within {patience:g} s, though the handler has ended, whose ack_policy is MANUAL: "
                f"{', '.join(map(str, silent))}"
            )
        return "; ".join(faults)

    def _due_ms(self, message: Message[Any]) -> float | None:
        if message.delay_level:
            return self._now_ms() + LEVEL_SECONDS[min(message.delay_level, len(LEVEL_SECONDS)) - 1] * 1000
        if message.deliver_at is not None:
            return message.deliver_at.timestamp() * 1000
        if message.deliver_after is not None:
            return self._now_ms() + milliseconds("deliver_after", message.deliver_after, zero=True)
        return None

    def _expect_again(self, delivery: Delivery, message: ReceivedMessage[Any], retry: Retry) -> None:
        subscribers = (s for s in self._subscribers() if s.calls and s.group == delivery.group)
        subscriber = next((s for s in subscribers if delivery.topic in s.topics), None)
        if subscriber is None:
            return
        options = ConsumerOptions(**subscriber.options)
        most = options.max_reconsume_times
        in_order = options.order is Order.QUEUE
        if options.broadcast or delivery.times >= (MAX_RECONSUME_TIMES if most < 0 and not in_order else most) >= 0:
            return
        level = retry.delay_level
        if in_order:
            wait = retry.delay_seconds if retry.delay_seconds is not None else _seconds(options.suspend_time)
        elif level == BROKER_CHOOSES:
            wait = LEVEL_SECONDS[min(FIRST_RETRY_LEVEL + delivery.times, len(LEVEL_SECONDS)) - 1]
        else:
            wait = LEVEL_SECONDS[level - 1]
        again = Delivery(delivery.topic, delivery.group, delivery.msg_id, delivery.times + 1)
        self._later.append((self._now_ms() + wait * 1000, again))


def _wants(wanted: str | Sql | None, message: Message[Any]) -> bool:
    """Whether a subscription gets a message, as the broker judges it."""
    if isinstance(wanted, Sql):
        return compile_selector(SQL92, wanted.expression).evaluate(message.wire_properties("")) is True
    return wants(subscription_of(message.topic, wanted, 0), message.tags)


def _seconds(duration: Duration) -> float:
    return milliseconds("duration", duration, zero=True) / 1000
