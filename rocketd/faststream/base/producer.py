"""The producer of the broker and its publishers.

Counterpart: `DefaultMQProducer` (Apache), behind FastStream's producer interface.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional

from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import BatchCodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import IncorrectState
from faststream.response import Response

from rocketd.client import aio
from rocketd.client.faces.lifecycle import engine_of
from rocketd.client.messages.message import Message, SendResult
from rocketd.client.producer.request_reply import reply_properties
from rocketd.client.runtime.asyncio_host import to_future
from rocketd.client.settings.config import Duration, milliseconds
from rocketd.faststream.base.message import Raw
from rocketd.faststream.base.parser import RocketParser
from rocketd.faststream.base.response import RocketPublishCommand
from rocketd.remoting.bodies.tables import MessageQueue

if TYPE_CHECKING:
    from fast_depends.library.serializer import SerializerProto
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import CustomCallable

NOTHING = (b"null", "application/json")
"""Body and content type of None: brokers reject empty bodies."""

Encoded = tuple[bytes, str | None]
"""A body and its content type."""


class RocketProducer(ProducerProto[RocketPublishCommand]):
    """Adapts the client's producer to FastStream's interface. Loop thread."""

    def __init__(self, parser: "CustomCallable | None" = None, decoder: "CustomCallable | None" = None) -> None:
        default = RocketParser()
        self._parser = ParserComposition(parser, default.parse_message)
        self._decoder = ParserComposition(decoder, default.decode_message)
        self._producer: aio.Producer[bytes] | None = None
        self.serializer: SerializerProto | None = None
        self.codec: CodecProto = DefaultCodec()

    def connect(
        self,
        producer: aio.Producer[bytes],
        serializer: Optional["SerializerProto"],
        codec: Optional["CodecProto"],
    ) -> None:
        """Use an open producer of the client."""
        self._producer = producer
        self.serializer = serializer
        self.codec = codec or DefaultCodec()

    def disconnect(self) -> None:
        """Drop the producer; later calls raise IncorrectState."""
        self._producer = None

    def __bool__(self) -> bool:
        return self._producer is not None

    @property
    def producer(self) -> aio.Producer[bytes]:
        """The client's producer. Raises IncorrectState before ``connect``."""
        if self._producer is None:
            raise IncorrectState("the broker is not connected: start it, or use it in an `async with` block")
        return self._producer

    async def publish(self, cmd: RocketPublishCommand) -> SendResult:
        """Send one message. Raises the errors of the client's ``send``."""
        message = cmd.message(*await self._encode(cmd.body))
        if cmd.request is not None:
            return await self._reply(cmd.request, message, cmd.options.get("timeout"))
        return await self.producer.send(message, **cmd.where(), timeout=cmd.options.get("timeout"))

    async def publish_batch(self, cmd: RocketPublishCommand) -> list[SendResult]:
        """Send messages of one topic together. Raises the errors of the client's ``send_batch``."""
        bodies = cmd.batch_bodies
        encoded = await self._encode_all([body.body if isinstance(body, Response) else body for body in bodies])
        messages = [
            cmd.message(*one, body if isinstance(body, Response) else None)
            for one, body in zip(encoded, bodies, strict=True)
        ]
        queue = await self._queue_of_batch(messages[0], cmd) if messages else None
        return await self.producer.send_batch(messages, queue=queue, timeout=cmd.options.get("timeout"))

    async def request(self, cmd: RocketPublishCommand) -> Raw:
        """Send a message and wait for the reply. Raises the errors of the client's ``request``."""
        message = cmd.message(*await self._encode(cmd.body))
        return await self.producer.request(message, **cmd.where(), timeout=cmd.options.get("timeout"))

    async def _queue_of_batch(self, first: Message[bytes], cmd: RocketPublishCommand) -> MessageQueue | None:
        where = cmd.where()
        if "selector" in where:
            queue: MessageQueue = where["selector"](
                await self.producer.publish_queues(first.topic), first, where["key"]
            )
            return queue
        return where.get("queue")

    async def _reply(self, request: Raw, message: Message[bytes], timeout: Duration | None) -> SendResult:
        topic, more = reply_properties(request)
        message.topic = topic
        producer = self.producer
        timeout_ms = milliseconds("timeout", producer.send_timeout if timeout is None else timeout)
        return await to_future(engine_of(producer).send_with(message, more, timeout_ms, {}))

    async def _encode(self, body: Any) -> Encoded:
        return NOTHING if body is None else await self.codec.encode(body, self.serializer)

    async def _encode_all(self, bodies: Sequence[Any]) -> list[Encoded]:
        if isinstance(self.codec, BatchCodecProto):
            return await self.codec.encode_batch(bodies, self.serializer)
        return [await self._encode(body) for body in bodies]
