"""FastStream's Prometheus metrics for RocketMQ. They need ``faststream[prometheus]``."""

from collections.abc import Callable, Sequence
from typing import Any

from faststream._internal.constants import EMPTY
from faststream.message import StreamMessage
from faststream.prometheus import ConsumeAttrs, MetricsSettingsProvider
from faststream.prometheus.middleware import PrometheusMiddleware
from prometheus_client import CollectorRegistry

from rocketd.faststream.base.response import RocketPublishCommand


class _Settings(MetricsSettingsProvider[Any, RocketPublishCommand]):
    messaging_system = "rocketmq"

    def get_consume_attrs_from_message(self, msg: StreamMessage[Any]) -> ConsumeAttrs:
        raws = msg.raw_message if isinstance(msg.raw_message, Sequence) else [msg.raw_message]
        return {
            "destination_name": raws[0].topic,
            "message_size": sum(len(raw.body) for raw in raws),
            "messages_count": len(raws),
        }

    def get_publish_destination_name_from_cmd(self, cmd: RocketPublishCommand) -> str:
        return cmd.destination


class RocketPrometheusMiddleware(PrometheusMiddleware[Any, RocketPublishCommand]):
    """Counts and measures consumed and published messages by topic. The options are FastStream's."""

    def __init__(
        self,
        *,
        registry: CollectorRegistry,
        app_name: str = EMPTY,
        metrics_prefix: str = "faststream",
        received_messages_size_buckets: Sequence[float] | None = None,
        custom_labels: dict[str, str | Callable[[Any], str]] | None = None,
    ) -> None:
        super().__init__(
            settings_provider_factory=lambda _: _Settings(),
            registry=registry,
            app_name=app_name,
            metrics_prefix=metrics_prefix,
            received_messages_size_buckets=received_messages_size_buckets,
            custom_labels=custom_labels,
        )
