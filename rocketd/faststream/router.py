"""Routers: subscribers and publishers that a broker includes, optionally with a common prefix."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from faststream._internal.broker.router import ArgsContainer, BrokerRouter, SubscriberRoute
from faststream._internal.constants import EMPTY
from faststream.middlewares import AckPolicy

from rocketd.faststream.base.config import RocketBrokerConfig
from rocketd.faststream.base.options import PublisherOptions, SubscriberOptions
from rocketd.faststream.registrator import RocketRegistrator

if TYPE_CHECKING:
    from fast_depends.dependencies import Dependant
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import BrokerMiddleware, CustomCallable


class RocketPublisher(ArgsContainer):
    """A publisher of a route, created with its router."""

    def __init__(self, topic: str, *, batch: bool = False, **options: Unpack[PublisherOptions]) -> None:
        super().__init__(topic, batch=batch, **options)


class RocketRoute(SubscriberRoute):
    """A handler with its topics, registered when its router is created."""

    def __init__(
        self,
        call: Callable[..., Any],
        *topics: str,
        publishers: Iterable[RocketPublisher] = (),
        **options: Unpack[SubscriberOptions],
    ) -> None:
        super().__init__(call, *topics, publishers=publishers, **options)


class RocketRouter(RocketRegistrator, BrokerRouter[Any, RocketBrokerConfig]):
    """Subscribers and publishers for a broker to include. ``prefix`` is prepended to all of their topics."""

    def __init__(
        self,
        prefix: str = "",
        handlers: Iterable[RocketRoute] = (),
        *,
        dependencies: Sequence["Dependant"] = (),
        middlewares: Sequence["BrokerMiddleware[Any, Any]"] = (),
        routers: Iterable[RocketRegistrator] = (),
        parser: "CustomCallable | None" = None,
        decoder: "CustomCallable | None" = None,
        codec: "CodecProto | None" = None,
        ack_policy: AckPolicy = EMPTY,
        include_in_schema: bool | None = None,
    ) -> None:
        super().__init__(
            handlers=handlers,
            routers=routers,
            config=RocketBrokerConfig(
                prefix=prefix,
                include_in_schema=include_in_schema,
                broker_middlewares=middlewares,
                broker_dependencies=dependencies,
                broker_parser=parser,
                broker_decoder=decoder,
                broker_codec=codec,
                ack_policy=ack_policy,
            ),
        )
