"""The subscribers and publishers in the AsyncAPI document.

AsyncAPI has no binding for RocketMQ: the address of a channel is its topic.
"""

from faststream._internal.endpoint.publisher import PublisherSpecification
from faststream._internal.endpoint.subscriber import SubscriberSpecification
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, PublisherSpec, SubscriberSpec

from rocketd.faststream.base.config import (
    RocketBrokerConfig,
    RocketPublisherSpecificationConfig,
    RocketSubscriberSpecificationConfig,
)


class RocketSubscriberSpecification(SubscriberSpecification[RocketBrokerConfig, RocketSubscriberSpecificationConfig]):
    """A subscriber in the AsyncAPI document: a channel for each topic."""

    @property
    def channel_labels(self) -> list[str]:
        """The topics."""
        return [f"{self._outer_config.prefix}{topic}" for topic in self.config.topics]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        """Return the channels by name."""
        payloads = self.get_payloads()
        topics = self.channel_labels
        keys = {topic: self._channel_key(topic, split=len(topics) > 1) for topic in topics}
        return {
            key: SubscriberSpec(
                address=topic,
                description=self.description,
                operation=Operation(
                    message=Message(title=f"{key}:Message", payload=resolve_payloads(payloads)), bindings=None
                ),
                bindings=None,
            )
            for topic, key in keys.items()
        }


class RocketPublisherSpecification(PublisherSpecification[RocketBrokerConfig, RocketPublisherSpecificationConfig]):
    """A publisher in the AsyncAPI document: the channel of its topic."""

    @property
    def topic(self) -> str:
        """The topic."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def name(self) -> str:
        """The channel's name."""
        return self.config.title_ or f"{self.topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        """Return the channel by name."""
        return {
            self.name: PublisherSpec(
                address=self.topic,
                description=self.config.description_,
                operation=Operation(
                    message=Message(
                        title=f"{self.name}:Message", payload=resolve_payloads(self.get_payloads(), "Publisher")
                    ),
                    bindings=None,
                ),
                bindings=None,
            )
        }
