"""The interfaces of producers and consumers for their instance.

Counterpart: `MQProducerInner` and `MQConsumerInner` (Apache).
"""

from collections.abc import Awaitable, Mapping
from typing import Protocol

from rocketd.remoting.bodies.admin import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketd.remoting.bodies.tables import ConsumerData, MessageQueue
from rocketd.remoting.headers.client import CheckTransactionStateRequestHeader
from rocketd.store.format.record import MessageExt


class ProducerMember(Protocol):
    """A producer, as its instance sees it."""

    group: str

    def check_transaction(self, address: str, header: CheckTransactionStateRequestHeader, record: MessageExt) -> None:
        """Find out the state of a half message, and tell the broker."""


class ConsumerMember(Protocol):
    """A consumer, as its instance sees it."""

    group: str

    def consumer_data(self) -> ConsumerData:
        """Return the entry of this consumer in heartbeats."""

    def rebalance_soon(self) -> None:
        """Start a rebalance."""

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue from these offsets."""

    def offsets_of(self, topic: str) -> Mapping[MessageQueue, int]:
        """Return the offsets of the queues of a topic."""

    def running_info(self, stacks: bool) -> ConsumerRunningInfo:
        """Return the state of the consumer, with the stacks of all threads if ``stacks``."""

    def consume_directly(self, record: MessageExt, broker_name: str | None) -> Awaitable[ConsumeMessageDirectlyResult]:
        """Have the listener consume one message now."""
