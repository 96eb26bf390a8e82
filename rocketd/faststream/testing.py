"""Tests of FastStream applications: on a real broker of RocketMQ, in the process of the test.

No counterpart in Apache. ``rocketd.testing`` has the cluster; connections, disk and time are its own.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, overload

from faststream._internal.testing.broker import EnterType, TestBroker
from faststream.exceptions import SetupError, SubscriberNotFound

from rocketd.client.message import SendResult
from rocketd.faststream.broker import RocketBroker
from rocketd.faststream.deliveries import Deliveries
from rocketd.faststream.message import Raw
from rocketd.faststream.producer import RocketProducer
from rocketd.faststream.publisher import BatchPublisher, TopicPublisher
from rocketd.faststream.response import RocketPublishCommand
from rocketd.faststream.settlement import current_settlement
from rocketd.faststream.subscriber import RocketSubscriber

if TYPE_CHECKING:
    from rocketd.testing import Cluster

PATIENCE_SECONDS = 30.0
"""How long a test waits for handlers, of its own time."""


class TestRocketBroker(TestBroker[RocketBroker, EnterType], broker=RocketBroker):
    """Runs brokers on a cluster of RocketMQ in this process; with ``with_real`` on the one that they are made for.

    On the cluster in the process a ``publish`` returns when every subscriber has handled the message, and what their
    handlers have published, and raises the first error of a handler; topics that are missing are made. ``cluster`` is one
    that runs already. ``patience`` is how long to wait for handlers, in seconds.
    """

    @overload
    def __init__(
        self: "TestRocketBroker[RocketBroker]",
        broker: RocketBroker,
        /,
        *,
        with_real: bool = False,
        connect_only: bool | None = None,
        cluster: "Cluster | None" = None,
        patience: float = PATIENCE_SECONDS,
    ) -> None: ...

    @overload
    def __init__(
        self: "TestRocketBroker[tuple[RocketBroker, ...]]",
        *brokers: RocketBroker,
        with_real: bool = False,
        connect_only: bool | None = None,
        cluster: "Cluster | None" = None,
        patience: float = PATIENCE_SECONDS,
    ) -> None: ...

    def __init__(
        self,
        *brokers: RocketBroker,
        with_real: bool = False,
        connect_only: bool | None = None,
        cluster: "Cluster | None" = None,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        # To FastStream it is always a real broker that the brokers are run on.
        super().__init__(*brokers, with_real=True, connect_only=connect_only)
        self._on_cluster = not with_real
        self._given = cluster
        self._patience = patience
        self._cluster: Cluster | None = None
        self._deliveries: Deliveries | None = None

    @property
    def cluster(self) -> "Cluster":
        """The cluster in this process, while it runs. Raises SetupError where there is none."""
        if self._cluster is None:
            raise SetupError("the cluster is there inside of the `async with` block, and not with with_real=True")
        return self._cluster

    async def advance(self, duration: timedelta | float | None = None, **units: float) -> None:
        """Put the cluster's time forward, as Cluster.advance does, and wait until handlers have what comes due by that.

        Raises the first error of a handler.
        """
        cluster = self.cluster
        assert self._deliveries is not None
        if duration is None:
            duration = timedelta(**units)
        await asyncio.to_thread(cluster.advance, duration)
        self._deliveries.come_due()
        await self._deliveries.settle(self._patience)

    @asynccontextmanager
    async def _create_ctx(self) -> AsyncGenerator[list[RocketBroker], None]:
        for broker in self.brokers:
            if broker.running or broker._connection is not None:
                # It would be led away from its cluster, with all that it handles just now.
                raise SetupError("this broker runs already: a test starts it itself, other trials need the real broker")
        async with AsyncExitStack() as stack:
            if self._on_cluster:
                cluster = self._given
                if cluster is None:
                    from rocketd.testing import Cluster  # brings the servers along, which services do without

                    cluster = Cluster(broker={"enablePropertyFilter": True})
                    await asyncio.to_thread(cluster.__enter__)
                    stack.push_async_callback(asyncio.to_thread, cluster.__exit__, None, None, None)
                self._cluster = cluster
                self._deliveries = Deliveries(self._subscribers, lambda: cluster.now().timestamp() * 1000)
                for broker in self.brokers:
                    stack.enter_context(self._moved(broker, cluster, self._deliveries))
            brokers = await stack.enter_async_context(super()._create_ctx())
            if self._deliveries is not None:
                # Stopping would wait for words about them that nobody says any more.
                stack.callback(self._deliveries.leave_unacknowledged)
            yield brokers
        self._cluster = self._deliveries = None

    @contextmanager
    def _moved(self, broker: RocketBroker, cluster: "Cluster", deliveries: Deliveries) -> Iterator[None]:
        """Have a broker use the cluster in this process."""
        config = broker.config.broker_config
        changes = {
            "client_options": cluster.client_options(namespace=config.client_options["cluster"].namespace),
            "create_topics": True,
            "producer": PatientProducer(broker, deliveries, self._patience),
            "send_hooks": (deliveries,),
            "consume_hooks": (deliveries,),
            "on_failure": deliveries.failed,
        }
        before = {name: getattr(config, name) for name in changes}
        for name, value in changes.items():
            setattr(config, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(config, name, value)

    def _subscribers(self) -> Iterator[RocketSubscriber]:
        for broker in self.brokers:
            for subscriber in broker.subscribers:
                assert isinstance(subscriber, RocketSubscriber)
                yield subscriber

    def create_publisher_fake_subscriber(
        self, broker: RocketBroker, publisher: TopicPublisher
    ) -> tuple[RocketSubscriber, bool]:
        """Return a subscriber of a publisher's topic, and whether it is one of the application's."""
        for subscriber in self._subscribers():
            if publisher.topic in subscriber.topics:
                return subscriber, True
        fake = broker.subscriber(
            publisher.topic,
            group=f"faststream_test_{publisher.topic}",
            batch=isinstance(publisher, BatchPublisher),
            persistent=False,
        )
        return fake, False


class PatientProducer(RocketProducer):
    """A producer that comes back when all that it caused was handled. Within handlers it does not wait."""

    def __init__(self, broker: RocketBroker, deliveries: Deliveries, patience: float) -> None:
        super().__init__(parser=broker._parser, decoder=broker._decoder)
        self._deliveries = deliveries
        self._patience = patience

    async def publish(self, cmd: RocketPublishCommand) -> SendResult:
        """Send one message."""
        result = await super().publish(cmd)
        await self._settle()
        return result

    async def publish_batch(self, cmd: RocketPublishCommand) -> list[SendResult]:
        """Send messages together."""
        results = await super().publish_batch(cmd)
        await self._settle()
        return results

    async def request(self, cmd: RocketPublishCommand) -> Raw:
        """Send a request. Raises SubscriberNotFound when nobody gets it, and what its handler raises."""
        if not self._deliveries.wanting(cmd.message(b"", None)):
            raise SubscriberNotFound(f"no subscriber gets requests to topic {cmd.destination}")
        if current_settlement() is not None:
            return await super().request(cmd)
        reply = asyncio.ensure_future(super().request(cmd))
        failure = asyncio.ensure_future(self._deliveries.failure())
        try:
            await asyncio.wait({reply, failure}, return_when=asyncio.FIRST_COMPLETED)
            if failure.done():
                failure.result()
            result = await reply
        finally:
            for task in (reply, failure):
                task.cancel()
            await asyncio.gather(reply, failure, return_exceptions=True)
        await self._settle()
        return result

    async def _settle(self) -> None:
        if current_settlement() is None:
            await self._deliveries.settle(self._patience)
