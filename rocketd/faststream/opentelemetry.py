"""FastStream's OpenTelemetry spans and metrics for RocketMQ.

It needs ``faststream[otel]``. The trace context travels in message properties under W3C's names ``traceparent`` and
``tracestate``. Attributes have the names of OpenTelemetry's semantic conventions.
"""

from collections.abc import Sequence
from typing import Any

from faststream.message import StreamMessage
from faststream.opentelemetry import TelemetrySettingsProvider
from faststream.opentelemetry.middleware import TelemetryMiddleware
from opentelemetry.metrics import Meter, MeterProvider
from opentelemetry.trace import TracerProvider

from rocketd.client.opentelemetry import message_attributes, partition_id
from rocketd.client.opentelemetry_metrics import SYSTEM
from rocketd.faststream.base.message import Raw
from rocketd.faststream.base.response import RocketPublishCommand


class _Settings(TelemetrySettingsProvider[Any, RocketPublishCommand]):
    messaging_system = SYSTEM

    def get_consume_attrs_from_message(self, msg: StreamMessage[Any]) -> dict[str, Any]:
        raws: Sequence[Raw] = msg.raw_message if isinstance(msg.raw_message, Sequence) else [msg.raw_message]
        first = raws[0]
        attributes: dict[str, Any] = {
            "messaging.system": SYSTEM,
            "messaging.message.id": msg.message_id,
            "messaging.message.conversation_id": msg.correlation_id,
            "messaging.message.body.size": sum(len(raw.body) for raw in raws),
            "messaging.destination_publish.name": first.topic,
        }
        if isinstance(msg.raw_message, Sequence):
            attributes["messaging.batch.message_count"] = len(raws)
            return attributes
        attributes["messaging.destination.partition.id"] = partition_id(first.queue.broker_name, first.queue.queue_id)
        return attributes | message_attributes(first.tags, first.keys)

    def get_consume_destination_name(self, msg: StreamMessage[Any]) -> str:
        raw = msg.raw_message
        topic: str = (raw[0] if isinstance(raw, Sequence) else raw).topic
        return topic

    def get_publish_attrs_from_cmd(self, cmd: RocketPublishCommand) -> dict[str, Any]:
        keys = cmd.options.get("keys") or ()
        return {
            "messaging.system": SYSTEM,
            "messaging.destination.name": cmd.destination,
            "messaging.message.conversation_id": cmd.correlation_id or "",
            **message_attributes(cmd.options.get("tags"), [keys] if isinstance(keys, str) else list(keys)),
        }

    def get_publish_destination_name(self, cmd: RocketPublishCommand) -> str:
        return cmd.destination


class RocketTelemetryMiddleware(TelemetryMiddleware[RocketPublishCommand]):
    """Creates spans and metrics for consumed and published messages. The options are FastStream's."""

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        meter: Meter | None = None,
        include_messages_counters: bool = True,
    ) -> None:
        super().__init__(
            settings_provider_factory=lambda _: _Settings(),
            tracer_provider=tracer_provider,
            meter_provider=meter_provider,
            meter=meter,
            include_messages_counters=include_messages_counters,
        )
