"""Tests of FastStream applications on a real RocketMQ broker in the process of the test.

The cluster comes from ``rocketd.testing``, with simulated connections, disk and time.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, overload

from faststream._internal.testing.broker import EnterType, TestBroker
from faststream.exceptions import SetupError, SubscriberNotFound

from rocketd.client.messages.message import SendResult
from rocketd.client.settings.config import ClientConfig
from rocketd.faststream.base.message import Raw
from rocketd.faststream.base.producer import RocketProducer
from rocketd.faststream.base.response import RocketPublishCommand
from rocketd.faststream.base.settlement import current_settlement
from rocketd.faststream.broker import RocketBroker
from rocketd.faststream.deliveries import Deliveries
from rocketd.faststream.publisher import BatchPublisher, TopicPublisher
from rocketd.faststream.subscriber import RocketSubscriber

if TYPE_CHECKING:
    from rocketd.testing import Cluster

PATIENCE_SECONDS = 30.0
"""How long a test waits for handlers, in real time."""


class TestRocketBroker(TestBroker[RocketBroker, EnterType], broker=RocketBroker):
    """Connects FastStream brokers to a RocketMQ cluster in this process, or to their configured one if ``with_real``.

    With the cluster in this process, ``publish`` waits until the subscribers have handled the message, and all messages
    published by their handlers. It raises the first error of a handler. Missing topics are created.

    - ``cluster`` is a cluster in this process that already runs, also with TLS or accounts; None starts one.
    - ``patience`` is the time to wait for handlers, in seconds.
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
        # For FastStream, the brokers always run on a real broker.
        super().__init__(*brokers, with_real=True, connect_only=connect_only)
        self._on_cluster = not with_real
        self._given = cluster
        self._patience = patience
        self._cluster: Cluster | None = None
        self._deliveries: Deliveries | None = None

    async def _fake_connect(self, broker: RocketBroker, *args: object, **kwargs: object) -> None:
        # FastStream calls it for brokers without a cluster, and here each has one. Its base class declares it as abstract.
        raise NotImplementedError

    @property
    def cluster(self) -> "Cluster":
        """The running cluster in this process. Raises SetupError if none is running."""
        if self._cluster is None:
            raise SetupError("the cluster is there inside of the `async with` block, and not with with_real=True")
        return self._cluster

    async def advance(self, duration: timedelta | float | None = None, **units: float) -> None:
        """Advance the cluster's time by Cluster.advance, and wait until the messages that come due are handled.

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
                # Moving it would take it off its cluster in the midst of its deliveries.
                raise SetupError("this broker runs already: a test starts it itself, other trials need the real broker")
        async with AsyncExitStack() as stack:
            if self._on_cluster:
                cluster = self._given
                if cluster is None:
                    from rocketd.testing import Cluster  # imports the servers, which services do not need

                    cluster = Cluster(broker={"enablePropertyFilter": True})
                    await asyncio.to_thread(cluster.__enter__)
                    stack.push_async_callback(asyncio.to_thread, cluster.__exit__, None, None, None)
                self._cluster = cluster
                self._deliveries = Deliveries(self._subscribers, lambda: cluster.now().timestamp() * 1000)
                for broker in self.brokers:
                    stack.enter_context(self._moved(broker, cluster, self._deliveries))
            brokers = await stack.enter_async_context(super()._create_ctx())
            if self._deliveries is not None:
                # Otherwise stopping would wait for acknowledgements that can no longer come.
                stack.callback(self._deliveries.leave_unacknowledged)
            yield brokers
        self._cluster = self._deliveries = None

    @contextmanager
    def _moved(self, broker: RocketBroker, cluster: "Cluster", deliveries: Deliveries) -> Iterator[None]:
        """Point a broker to the cluster in this process."""
        config = broker.config.broker_config
        client: ClientConfig = config.client_options["cluster"]
        changes = {
            "client_options": cluster.client_options(namespace=client.namespace, credentials=client.credentials),
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
        """Return a subscriber of a publisher's topic, and whether it belongs to the application."""
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
    """A producer that returns once all consequences of a message are handled. Within handlers it does not wait."""

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
        """Send a request. Raises SubscriberNotFound if no subscriber receives it, and the errors of its handler."""
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
