"""Tracks the deliveries expected for sent messages, so that a test can wait until they are handled.

`Deliveries` is both a producer hook and a consumer hook.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rocketd.client.consumer.handling.concurrent import rest_seconds
from rocketd.client.consumer.options.kind_options import ConsumerOptions, Order
from rocketd.client.consumer.options.subscription import SQL92, Sql, subscription_of, wants
from rocketd.client.consumer.retries.handler_results import BROKER_CHOOSES, LEVEL_SECONDS, Retry
from rocketd.client.errors import StopConsuming
from rocketd.client.hooks import ConsumeMessageContext, ConsumerHook, ProducerHook, SendMessageContext
from rocketd.client.messages.message import Message, ReceivedMessage
from rocketd.client.settings.config import Duration, milliseconds
from rocketd.faststream.subscriber import RocketSubscriber
from rocketd.filter.selector import compile_selector

FIRST_RETRY_LEVEL = 3
"""Delay level of the first retry if the handler names none; each further retry adds one."""

MAX_RECONSUME_TIMES = 16
"""Maximum number of redeliveries if the consumer sets none."""


@dataclass(frozen=True)
class Delivery:
    """One delivery of a message to a group: the first (``times`` 0) or a redelivery."""

    topic: str
    group: str
    msg_id: str
    times: int

    def __str__(self) -> str:
        return f"{self.msg_id} of topic {self.topic} by group {self.group}"


class Deliveries(ProducerHook, ConsumerHook):
    """Expected deliveries, due now or later. Loop thread.

    ``subscribers`` returns the subscribers of all brokers; ``now_ms`` returns the cluster's time in milliseconds.
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
        """Expect the deliveries of the messages about to be sent."""
        for message, msg_id in zip(context.messages, context.msg_id.split(","), strict=True):
            due_ms = self._due_ms(message)
            for subscriber in self.wanting(message):
                delivery = Delivery(message.topic, subscriber.group, msg_id, 0)
                if due_ms is None:
                    self._expected.add(delivery)
                else:
                    self._later.append((due_ms, delivery))

    def send_after(self, context: SendMessageContext) -> None:
        """Forget the deliveries of messages whose sending failed."""
        if context.error is not None:
            failed = set(context.msg_id.split(","))
            self._expected = {delivery for delivery in self._expected if delivery.msg_id not in failed}
            self._later = [(due_ms, delivery) for due_ms, delivery in self._later if delivery.msg_id not in failed]
            self._changed.set()

    def consume_after(self, context: ConsumeMessageContext) -> None:
        """Mark messages as handled; expect them again if they are to be retried."""
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
        """Record an exception raised by a handler."""
        self._errors.append(error)
        self._changed.set()

    # ------------------------------------------------------------ what a test asks

    def wanting(self, message: Message[Any]) -> list[RocketSubscriber]:
        """Return the subscribers that receive a message, one per group."""
        found = {}
        for subscriber in self._subscribers():
            handles = subscriber.joined and subscriber.calls and message.topic in subscriber.topics
            if handles and _wants(subscriber.wanted, message):
                found[subscriber.group] = subscriber
        return list(found.values())

    def come_due(self) -> None:
        """Move delayed deliveries whose time has come to the expected ones."""
        now_ms = self._now_ms()
        self._expected.update(delivery for due_ms, delivery in self._later if due_ms <= now_ms)
        self._later = [(due_ms, delivery) for due_ms, delivery in self._later if due_ms > now_ms]

    async def settle(self, patience: float) -> None:
        """Wait until all expected deliveries are handled.

        Raises the first error of a handler since the last call, and AssertionError after ``patience`` seconds.
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
        """Give up the messages whose handlers have ended without settling them."""
        for subscriber in self._subscribers():
            for settlement in list(subscriber.unacknowledged):
                settlement.leave()

    async def failure(self) -> None:
        """Wait for a handler to fail, and raise its exception."""
        while True:
            self.raise_first()
            self._changed.clear()
            await self._changed.wait()

    def raise_first(self) -> None:
        """Raise the first recorded error of a handler, and forget all of them."""
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
        limit = options.max_reconsume_times
        in_order = options.order is Order.QUEUE
        if options.broadcast or delivery.times >= (MAX_RECONSUME_TIMES if limit < 0 and not in_order else limit) >= 0:
            return
        level = retry.delay_level
        if in_order:
            wait = retry.delay_seconds if retry.delay_seconds is not None else _seconds(options.suspend_time)
        elif options.order is Order.KEY and _has_key(options, message):
            wait = retry.delay_seconds if retry.delay_seconds is not None else rest_seconds(options, delivery.times)
        elif level == BROKER_CHOOSES:
            wait = LEVEL_SECONDS[min(FIRST_RETRY_LEVEL + delivery.times, len(LEVEL_SECONDS)) - 1]
        else:
            wait = LEVEL_SECONDS[level - 1]
        again = Delivery(delivery.topic, delivery.group, delivery.msg_id, delivery.times + 1)
        self._later.append((self._now_ms() + wait * 1000, again))


def _has_key(options: ConsumerOptions, message: ReceivedMessage[Any]) -> bool:
    """Return whether a failed message keeps its place with order ``key``."""
    return bool(message.keys) if options.key is None else options.key(message) is not None


def _wants(wanted: str | Sql | None, message: Message[Any]) -> bool:
    """Return whether a subscription selects a message, by the broker's rules."""
    if isinstance(wanted, Sql):
        return compile_selector(SQL92, wanted.expression).evaluate(message.wire_properties("")) is True
    return wants(subscription_of(message.topic, wanted, 0), message.tags)


def _seconds(duration: Duration) -> float:
    return milliseconds("duration", duration, zero=True) / 1000
