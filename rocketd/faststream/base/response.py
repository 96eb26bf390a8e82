"""The results of handlers, and the command that carries messages through the middlewares to the producer.

Counterpart: `Message` (Apache), with the arguments of `DefaultMQProducer`'s sending methods.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack, cast

from faststream.response.publish_type import PublishType
from faststream.response.response import BatchPublishCommand, PublishCommand, Response

from rocketd.client.messages.message import Message
from rocketd.client.producer.selectors import SelectMessageQueueByHash
from rocketd.faststream.base.message import Raw
from rocketd.faststream.base.options import SendOptions, check_names
from rocketd.faststream.base.parser import CONTENT_TYPE, CORRELATION_ID, REPLY_TO


class RocketResponse(Response):
    """A body with headers, tags, keys and other options: a handler's result, or one message of a batch."""

    def __init__(
        self,
        body: object,
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        **options: Unpack[SendOptions],
    ) -> None:
        super().__init__(body, headers=headers, correlation_id=correlation_id)
        check_names("RocketResponse", options, SendOptions, "headers", "correlation_id")
        self.options = options

    def get_publish_key(self) -> Any | None:
        """Return the key that chooses the queue."""
        return self.options.get("key")

    def as_publish_command(self) -> "RocketPublishCommand":
        """Convert to the command of publishers."""
        return RocketPublishCommand(
            self.body,
            topic="",
            headers=self.headers,
            correlation_id=self.correlation_id,
            options=self.options,
            _publish_type=PublishType.PUBLISH,
        )


class RocketPublishCommand(BatchPublishCommand):
    """One message to send, or several of one topic. Middlewares may change it.

    The bodies of a batch may be RocketResponses, whose options apply to one message each. ``request`` is the message to
    which this one replies.
    """

    def __init__(
        self,
        body: object,
        /,
        *bodies: Any,
        topic: str,
        options: SendOptions | None = None,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        request: Raw | None = None,
        _publish_type: PublishType,
    ) -> None:
        super().__init__(
            body,
            *bodies,
            destination=topic,
            reply_to=reply_to,
            correlation_id=correlation_id,
            headers=dict(headers or {}),
            _publish_type=_publish_type,
        )
        check_names("publish", options or (), SendOptions, "headers", "correlation_id", "reply_to")
        self.options: SendOptions = cast("SendOptions", dict(options or {}))
        self.request = request

    @classmethod
    def from_cmd(cls, cmd: PublishCommand, *, batch: bool = False) -> Self:
        """Convert FastStream's own command; with ``batch``, a list becomes several messages."""
        body, more = cls._parse_bodies(cmd.body, batch=batch)
        if isinstance(cmd, cls):
            cmd.body, cmd.extra_bodies = body, more or cmd.extra_bodies
            return cmd
        return cls(
            body,
            *more,
            topic=cmd.destination,
            correlation_id=cmd.correlation_id,
            headers=cmd.headers,
            reply_to=cmd.reply_to,
            _publish_type=cmd.publish_type,
        )

    def add_options(self, options: SendOptions) -> None:
        """Add options that are not set yet."""
        self.options = cast("SendOptions", {**options, **self.options})

    def where(self) -> dict[str, Any]:
        """Return the producer's arguments for the choice of the queue."""
        options = self.options
        where: dict[str, Any] = {}
        if "queue" in options:
            where["queue"] = options["queue"]
        elif "selector" in options or options.get("key") is not None:
            where = {"selector": options.get("selector", SelectMessageQueueByHash()), "key": options.get("key")}
        return where

    def message(self, body: bytes, content_type: str | None, one: Response | None = None) -> Message[bytes]:
        """Create the client's message. ``one`` holds the options of one message of a batch."""
        options: SendOptions = self.options
        headers = {CORRELATION_ID: self.correlation_id, REPLY_TO: self.reply_to or None, **self.headers}
        if one is not None:
            headers |= one.headers
            if one.correlation_id:
                headers[CORRELATION_ID] = one.correlation_id
            if isinstance(one, RocketResponse):
                options = cast("SendOptions", {**options, **one.options})
        keys: str | Sequence[str] = options.get("keys") or ()
        return Message(
            self.destination,
            body,
            tags=options.get("tags"),
            keys=[keys] if isinstance(keys, str) else list(keys),
            properties={
                name: value if isinstance(value, str) else str(value)
                for name, value in {CONTENT_TYPE: content_type, **headers}.items()
                if value is not None
            },
            delay_level=options.get("delay_level", 0),
            deliver_after=options.get("deliver_after"),
            deliver_at=options.get("deliver_at"),
        )


RocketPublishMessage = RocketResponse
"""Alias of RocketResponse, for messages in a batch."""
