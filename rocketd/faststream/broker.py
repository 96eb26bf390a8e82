"""FastStream's broker for RocketMQ.

Counterparts: `DefaultMQProducer` and `DefaultMQPushConsumer` (Apache), with the interface of FastStream's brokers.
"""

import logging
from collections.abc import Iterable, Sequence
from inspect import signature
from types import TracebackType
from typing import TYPE_CHECKING, Any, Union, Unpack

import anyio
from fast_depends import dependency_provider
from faststream._internal.broker import BrokerUsecase
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream._internal.types import IdGenerator
from faststream.message import gen_cor_id
from faststream.middlewares import AckPolicy
from faststream.response.publish_type import PublishType
from faststream.specification.schema import BrokerSpec

from rocketd.client import aio
from rocketd.client.errors import RocketMQError, check_group
from rocketd.client.faces.push import Cluster
from rocketd.client.messages.message import SendResult
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.settings.config import config_of
from rocketd.client.settings.option_names import OF_CLUSTERS, OF_PRODUCERS, check_names
from rocketd.faststream.base.config import RocketBrokerConfig
from rocketd.faststream.base.message import RocketMessage
from rocketd.faststream.base.options import ProduceOptions, SendOptions
from rocketd.faststream.base.producer import RocketProducer
from rocketd.faststream.base.response import RocketPublishCommand, RocketResponse
from rocketd.faststream.logs import make_logger
from rocketd.faststream.registrator import RocketRegistrator
from rocketd.faststream.security import documented, secured

if TYPE_CHECKING:
    from fast_depends import Provider
    from fast_depends.dependencies import Dependant
    from fast_depends.library.serializer import SerializerProto
    from faststream._internal.basic_types import LoggerProto, SendableMessage
    from faststream._internal.configs import UnderlyingDriverAnnotations
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import BrokerMiddleware, CustomCallable
    from faststream.security import BaseSecurity
    from faststream.specification.schema.extra import Tag, TagDict

PING_SECONDS = 10.0
"""How long ``ping`` tries if its caller sets no limit."""

PING_PAUSE_SECONDS = 0.1


class RocketBroker(
    RocketRegistrator,
    BrokerUsecase[Any, aio.Producer[bytes], RocketBrokerConfig],
):
    """A broker of RocketMQ. ``cluster`` is a list of name servers, ``host:port``, or a ClientConfig.

    ``group`` is the consumer group of all subscribers without a group, and the group of the producer. With
    ``create_topics``, the start of a subscriber creates missing topics, with four queues each; without it, the subscriber
    waits for them. ``graceful_timeout`` is the time that ``stop`` waits for handlers, in seconds. All other
    options are those of the producer. Raises IllegalOptionError and IllegalGroupError.
    """

    def __init__(
        self,
        cluster: Cluster = None,
        *,
        group: str | None = None,
        create_topics: bool = False,
        # FastStream's own
        graceful_timeout: float | None = 15.0,
        ack_policy: AckPolicy = EMPTY,
        id_generator: IdGenerator = gen_cor_id,
        decoder: "CustomCallable | None" = None,
        codec: "CodecProto | None" = None,
        parser: "CustomCallable | None" = None,
        dependencies: Sequence["Dependant"] = (),
        middlewares: Sequence["BrokerMiddleware[Any, Any]"] = (),
        routers: Iterable[RocketRegistrator] = (),
        # AsyncAPI
        security: "BaseSecurity | None" = None,
        specification_url: str | Iterable[str] | None = None,
        protocol: str | None = None,
        protocol_version: str | None = None,
        description: str | None = None,
        tags: Iterable[Union["Tag", "TagDict"]] = (),
        # the log
        logger: "LoggerProto | None" = EMPTY,
        log_level: int = logging.INFO,
        # FastDepends
        apply_types: bool = True,
        provider: "Provider | None" = None,
        serializer: "SerializerProto | None" = EMPTY,
        context: ContextRepo | None = None,
        underlying_driver_annotations: "UnderlyingDriverAnnotations | None" = None,
        **produce_options: Unpack[ProduceOptions],
    ) -> None:
        if group is not None:
            check_group(group)
        known = [*signature(RocketBroker.__init__).parameters, *ProduceOptions.__annotations__]
        check_names("RocketBroker", produce_options, known, OF_CLUSTERS | OF_PRODUCERS)
        ProducerOptions(**produce_options)
        client_config = secured(config_of(cluster), security)
        if specification_url is None:
            specification_url = client_config.name_servers()
        super().__init__(
            routers=routers,
            config=RocketBrokerConfig(
                client_options={"cluster": client_config},
                group=group,
                create_topics=create_topics,
                produce_options=produce_options,
                producer=RocketProducer(parser=parser, decoder=decoder),
                broker_decoder=decoder,
                broker_codec=codec,
                broker_parser=parser,
                broker_middlewares=middlewares,
                broker_dependencies=dependencies,
                graceful_timeout=graceful_timeout,
                ack_policy=ack_policy,
                id_generator=id_generator,
                logger=make_logger(logger=logger, log_level=log_level),
                fd_config=FastDependsConfig(
                    use_fastdepends=apply_types,
                    serializer=serializer,
                    provider=provider or dependency_provider,
                    context=context or ContextRepo(),
                ),
                extra_context={"broker": self},
                underlying_driver_annotations=underlying_driver_annotations or {},
            ),
            specification=BrokerSpec(
                description=description,
                url=[specification_url] if isinstance(specification_url, str) else list(specification_url),
                protocol=protocol or ("rocketmq-secure" if client_config.tls else "rocketmq"),
                protocol_version=protocol_version,
                security=documented(client_config),
                tags=tags,
            ),
        )

    # ------------------------------------------------------------ start and stop

    async def _connect(self) -> aio.Producer[bytes]:
        return await self.config.broker_config.connect()

    async def start(self) -> None:
        """Start to consume. Raises the errors of ``RocketSubscriber.start``."""
        await self.connect()
        with self.config.groups.starting(self.subscribers):
            await super().start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Stop pulling, wait up to ``graceful_timeout`` for handlers, store the offsets, and leave the groups."""
        try:
            with self.config.groups.stopping():
                await super().stop(exc_type, exc_val, exc_tb)
        finally:
            await self.config.groups.close()
            await self.config.broker_config.disconnect()
            self._connection = None

    async def ping(self, timeout: float | None = None) -> bool:
        """Return whether a name server answers within ``timeout`` seconds and knows a broker; False also before
        ``connect``.
        """
        with anyio.move_on_after(PING_SECONDS if timeout is None else timeout):
            while (admin := self.config.admin) is not None:
                try:
                    return bool(await admin.brokers())
                except RocketMQError:
                    await anyio.sleep(PING_PAUSE_SECONDS)
        return False

    # ------------------------------------------------------------ sending

    async def publish(
        self,
        message: "SendableMessage",
        topic: str,
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        **options: Unpack[SendOptions],
    ) -> SendResult:
        """Send one message; ``headers`` become user properties. Raises the errors of the client's ``send``.

        Handlers send their answers to the topic ``reply_to``.
        """
        cmd = self._command((message,), topic, headers, correlation_id, reply_to, options, PublishType.PUBLISH)
        result: SendResult = await self._basic_publish(cmd, producer=self.config.producer)
        return result

    async def publish_batch(  # type: ignore[override]
        self,
        *messages: "SendableMessage | RocketResponse",
        topic: str,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        **options: Unpack[SendOptions],
    ) -> list[SendResult]:
        """Send messages of one topic in as many requests as the size limit needs; return one result per message.

        A RocketPublishMessage can carry headers, tags and keys for one message. Raises the errors of the client's
        ``send_batch``.
        """
        cmd = self._command(messages, topic, headers, correlation_id, reply_to, options, PublishType.PUBLISH)
        results: list[SendResult] = await self._basic_publish_batch(cmd, producer=self.config.producer)
        return results

    async def request(  # type: ignore[override]
        self,
        message: "SendableMessage",
        topic: str,
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        **options: Unpack[SendOptions],
    ) -> RocketMessage:
        """Send a message and wait for the consumer's reply, ``timeout`` seconds at most for both.

        Raises the errors of the client's ``request``; RequestTimeoutError if no reply comes.
        """
        cmd = self._command((message,), topic, headers, correlation_id, "", options, PublishType.REQUEST)
        reply: RocketMessage = await self._basic_request(cmd, producer=self.config.producer)
        return reply

    def _command(
        self,
        messages: tuple[Any, ...],
        topic: str,
        headers: dict[str, Any] | None,
        correlation_id: str | None,
        reply_to: str,
        options: SendOptions,
        publish_type: PublishType,
    ) -> RocketPublishCommand:
        return RocketPublishCommand(
            *(messages or (None,)),
            topic=topic,
            options=options,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
            _publish_type=publish_type,
        )
