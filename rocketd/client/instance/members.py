"""What an instance needs its producers and consumers to be.

Answers to MQProducerInner and MQConsumerInner.
"""

from collections.abc import Awaitable, Mapping
from typing import Protocol

from rocketd.remoting.admin_bodies import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketd.remoting.bodies import ConsumerData, MessageQueue
from rocketd.remoting.headers import CheckTransactionStateRequestHeader
from rocketd.store.record import MessageExt


class Producer(Protocol):
    """A producer, as its instance sees it."""

    group: str

    def check_transaction(self, address: str, header: CheckTransactionStateRequestHeader, record: MessageExt) -> None:
        """Find out what became of a half message, and tell the broker."""


class Consumer(Protocol):
    """A consumer, as its instance sees it."""

    group: str

    def consumer_data(self) -> ConsumerData:
        """What heartbeats say of it."""

    def rebalance_soon(self) -> None:
        """Share the queues anew."""

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on from these offsets."""

    def offsets_of(self, topic: str) -> Mapping[MessageQueue, int]:
        """How far the queues of a topic are consumed."""

    def running_info(self, stacks: bool) -> ConsumerRunningInfo:
        """How it is; with the stacks of what runs, if asked for."""

    def consume_directly(self, record: MessageExt, broker_name: str | None) -> Awaitable[ConsumeMessageDirectlyResult]:
        """Have its listener consume one message now."""
