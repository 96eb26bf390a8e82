"""The publishers of one topic, called directly or fed with handlers' results.

Counterpart: `DefaultMQProducer` (Apache), as FastStream's publishers.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Unpack

from faststream._internal.endpoint.publisher import PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream.response.publish_type import PublishType

from rocketd.client.messages.message import SendResult
from rocketd.faststream.base.config import RocketBrokerConfig, RocketPublisherConfig
from rocketd.faststream.base.message import Raw, RocketMessage
from rocketd.faststream.base.options import SendOptions
from rocketd.faststream.base.producer import RocketProducer
from rocketd.faststream.base.response import RocketPublishCommand, RocketResponse

if TYPE_CHECKING:
    from faststream._internal.basic_types import SendableMessage
    from faststream._internal.endpoint.publisher import PublisherSpecification
    from faststream._internal.types import PublisherMiddleware
    from faststream.response.response import PublishCommand


class TopicPublisher(PublisherUsecase):
    """Sends single messages. The publisher's options apply if a call does not override them."""

    _outer_config: RocketBrokerConfig

    def __init__(self, config: RocketPublisherConfig, specification: "PublisherSpecification[Any, Any]") -> None:
        super().__init__(config, specification)
        self._topic = config.topic
        self.headers = config.headers
        self.reply_to = config.reply_to
        self.options: SendOptions = config.options

    @property
    def topic(self) -> str:
        """The topic, including the prefixes of the routers."""
        return f"{self._outer_config.prefix}{self._topic}"

    async def publish(
        self,
        message: "SendableMessage",
        topic: str = "",
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        **options: Unpack[SendOptions],
    ) -> SendResult:
        """Send one message, by default to the publisher's topic. Raises the errors of the client's ``send``."""
        cmd = self._command((message,), topic, headers, correlation_id, reply_to, options, PublishType.PUBLISH)
        result: SendResult = await self._basic_publish(cmd, producer=self._outer_config.producer, _extra_middlewares=())
        return result

    async def request(
        self,
        message: "SendableMessage",
        topic: str = "",
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        **options: Unpack[SendOptions],
    ) -> RocketMessage:
        """Send a message and wait for the reply. Raises the errors of the client's ``request``."""
        cmd = self._command((message,), topic, headers, correlation_id, "", options, PublishType.REQUEST)
        reply: RocketMessage = await self._basic_request(cmd, producer=self._outer_config.producer)
        return reply

    async def _publish(
        self,
        cmd: "PublishCommand",
        *,
        _extra_middlewares: Iterable["PublisherMiddleware"],
    ) -> None:
        """Send the result of a handler."""
        await self._basic_publish(
            self._patched(RocketPublishCommand.from_cmd(cmd)),
            producer=self._outer_config.producer,
            _extra_middlewares=_extra_middlewares,
        )

    def _patched(self, cmd: RocketPublishCommand) -> RocketPublishCommand:
        cmd.destination = self.topic
        cmd.reply_to = cmd.reply_to or self.reply_to
        cmd.add_headers(self.headers, override=False)
        cmd.add_options(self.options)
        return cmd

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
        cmd = RocketPublishCommand(
            *(messages or (None,)),
            topic="",
            options=options,
            headers=headers,
            correlation_id=correlation_id or self._outer_config.id_generator(),
            reply_to=reply_to,
            _publish_type=publish_type,
        )
        cmd = self._patched(cmd)
        cmd.destination = topic or cmd.destination
        return cmd


class BatchPublisher(TopicPublisher):
    """Sends batches of messages; each item of a handler's result is one message."""

    async def publish(  # type: ignore[override]
        self,
        *messages: "SendableMessage | RocketResponse",
        topic: str = "",
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        **options: Unpack[SendOptions],
    ) -> list[SendResult]:
        """Send messages together. Raises the errors of the client's ``send_batch``."""
        cmd = self._command(messages, topic, headers, correlation_id, reply_to, options, PublishType.PUBLISH)
        results: list[SendResult] = await self._basic_publish_batch(
            cmd, producer=self._outer_config.producer, _extra_middlewares=()
        )
        return results

    async def _publish(
        self,
        cmd: "PublishCommand",
        *,
        _extra_middlewares: Iterable["PublisherMiddleware"],
    ) -> None:
        """Send the result of a handler; an empty list sends nothing."""
        real = self._patched(RocketPublishCommand.from_cmd(cmd, batch=True))
        if real.batch_bodies:
            await self._basic_publish_batch(
                real, producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares
            )


class AnswerPublisher(FakePublisher):
    """Sends a handler's result to the requester, as the reply to a request or to the topic ``reply_to``."""

    def __init__(self, producer: RocketProducer, topic: str, request: Raw | None) -> None:
        super().__init__(producer=producer)
        self._topic = topic
        self._request = request

    def patch_command(self, cmd: "PublishCommand") -> RocketPublishCommand:
        """Set the destination of the answer."""
        real = RocketPublishCommand.from_cmd(super().patch_command(cmd))
        if self._request is None:
            real.destination = self._topic
        else:
            # The reply topic is the one of the requester's cluster; the producer takes it from the request.
            real.destination = self._request.topic
            real.request = self._request
        return real
