"""The configurations of brokers, routers, subscribers and publishers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from faststream._internal.configs import (
    BrokerConfig,
    PublisherSpecificationConfig,
    PublisherUsecaseConfig,
    SubscriberSpecificationConfig,
    SubscriberUsecaseConfig,
    UnderlyingDriverAnnotation,
    UnderlyingDriverAnnotations,
)
from faststream._internal.constants import EMPTY
from faststream.middlewares import AckPolicy

from rocketd.client import aio
from rocketd.client.consumer.options.subscription import Sql
from rocketd.client.hooks import ConsumerHook, ProducerHook
from rocketd.faststream.base.groups import Groups
from rocketd.faststream.base.options import ConsumeOptions, ProduceOptions, SendOptions
from rocketd.faststream.base.producer import RocketProducer

DEFAULT_GROUP = "faststream"
"""Group of the producer if the broker is given none."""


def _annotations() -> UnderlyingDriverAnnotations:
    """Return the annotations to suggest to handlers that use classes FastStream cannot inject."""
    from rocketd.faststream import annotations, broker  # they need this module
    from rocketd.faststream.base import message

    def row(name: str) -> UnderlyingDriverAnnotation:
        return UnderlyingDriverAnnotation(type_hint=getattr(annotations, name), module="rocketd.faststream", name=name)

    return MappingProxyType(
        {
            broker.RocketBroker: row("RocketBroker"),
            message.RocketMessage: row("RocketMessage"),
            message.RocketBatchMessage: row("RocketBatchMessage"),
            RocketProducer: row("RocketProducer"),
        }
    )


@dataclass(kw_only=True)
class RocketBrokerConfig(BrokerConfig):
    """Configuration of a broker, or of a router, which inherits most values from its broker."""

    client_options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the client's classes that locate the cluster."""
    group: str | None = None
    produce_options: ProduceOptions = field(default_factory=ProduceOptions)
    create_topics: bool = False
    groups: Groups = field(default_factory=Groups)
    send_hooks: Sequence[ProducerHook] = ()
    """Hooks in addition to those of ``produce_options``."""
    consume_hooks: Sequence[ConsumerHook] = ()
    """Hooks of all consumers, in addition to those of the subscribers."""
    on_failure: Callable[[BaseException], None] | None = None
    """Called with each exception raised by a handler, except FastStream's own signals."""
    producer: RocketProducer = field(default_factory=RocketProducer)
    admin: aio.Admin | None = None
    default_driver_annotations: UnderlyingDriverAnnotations = field(default_factory=_annotations)

    async def connect(self) -> aio.Producer[bytes]:
        """Open the clients of the broker itself. They connect on first use."""
        options: dict[str, Any] = dict(self.produce_options)
        options["send_hooks"] = (*options.get("send_hooks", ()), *self.send_hooks)
        producer: aio.Producer[bytes] = aio.Producer(self.group or DEFAULT_GROUP, **self.client_options, **options)
        await producer.open()
        self.producer.connect(producer, self.fd_config._serializer, self.broker_codec)
        self.admin = await aio.Admin(**self.client_options).open()
        return producer

    async def disconnect(self) -> None:
        """Close these clients."""
        admin, self.admin = self.admin, None
        if admin is not None:
            await admin.close()
        if self.producer:
            producer = self.producer.producer
            self.producer.disconnect()
            await producer.close()


@dataclass(kw_only=True)
class RocketSubscriberConfig(SubscriberUsecaseConfig):
    """Configuration of a subscriber."""

    _outer_config: RocketBrokerConfig = field(default_factory=RocketBrokerConfig)
    topics: tuple[str, ...]
    group: str | None = None
    wanted: str | Sql | None = None
    batch: int = 1
    options: ConsumeOptions = field(default_factory=ConsumeOptions)

    @property
    def ack_policy(self) -> AckPolicy:
        """The subscriber's own policy, else the broker's, else NACK_ON_ERROR: failed messages are redelivered."""
        for policy in (self._ack_policy, self._outer_config.ack_policy):
            if policy is not EMPTY:
                return policy
        return AckPolicy.NACK_ON_ERROR


@dataclass(kw_only=True)
class RocketSubscriberSpecificationConfig(SubscriberSpecificationConfig):
    """Configuration of a subscriber in the AsyncAPI document."""

    topics: tuple[str, ...]


@dataclass(kw_only=True)
class RocketPublisherConfig(PublisherUsecaseConfig):
    """Configuration of a publisher."""

    _outer_config: RocketBrokerConfig = field(default_factory=RocketBrokerConfig)
    topic: str
    headers: dict[str, Any] = field(default_factory=dict)
    reply_to: str = ""
    options: SendOptions = field(default_factory=SendOptions)


@dataclass(kw_only=True)
class RocketPublisherSpecificationConfig(PublisherSpecificationConfig):
    """Configuration of a publisher in the AsyncAPI document."""

    topic: str
