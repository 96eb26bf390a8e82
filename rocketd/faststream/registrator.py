"""Creates the subscribers and publishers of a broker or a router."""

from collections.abc import Sequence
from typing import Any, Literal, Unpack, cast, overload

from faststream._internal.broker.registrator import Registrator
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream.exceptions import SetupError

from rocketd.client.consumer.options.kind_options import ConsumerOptions
from rocketd.client.consumer.options.subscription import Sql
from rocketd.client.errors import check_consumer_group, check_topic
from rocketd.faststream.base.config import (
    RocketBrokerConfig,
    RocketPublisherConfig,
    RocketPublisherSpecificationConfig,
    RocketSubscriberConfig,
    RocketSubscriberSpecificationConfig,
)
from rocketd.faststream.base.options import (
    ConsumeOptions,
    PublisherOptions,
    SendOptions,
    SubscriberOptions,
    check_names,
)
from rocketd.faststream.publisher import BatchPublisher, TopicPublisher
from rocketd.faststream.specification import RocketPublisherSpecification, RocketSubscriberSpecification
from rocketd.faststream.subscriber import RocketSubscriber

MAX_RECORDS = 32
"""Maximum batch size if the subscriber sets none."""


class RocketRegistrator(Registrator[Any, RocketBrokerConfig]):
    """The common base of brokers and routers."""

    def subscriber(  # type: ignore[override]
        self, *topics: str, **options: Unpack[SubscriberOptions]
    ) -> RocketSubscriber:
        """Create a subscriber of topics: it decorates handlers, or is iterated over if it has none.

        Raises SetupError for contradictory options, and IllegalOptionError, IllegalTopicError or IllegalGroupError for
        invalid values.
        """
        group, batch = options.get("group"), options.get("batch", False)
        consume_options = _consume_options(options)
        _check_subscriber(topics, group, batch, options, consume_options)
        calls = CallsCollection[Any]()
        subscriber = RocketSubscriber(
            RocketSubscriberConfig(
                _outer_config=cast("RocketBrokerConfig", self.config),
                _ack_policy=options.get("ack_policy", EMPTY),
                no_reply=options.get("no_reply", False),
                topics=topics,
                group=group,
                wanted=_wanted(options.get("tags"), options.get("sql")),
                batch=options.get("max_records", MAX_RECORDS) if batch else 1,
                options=consume_options,
            ),
            RocketSubscriberSpecification(
                _outer_config=cast("RocketBrokerConfig", self.config),
                calls=calls,
                specification_config=RocketSubscriberSpecificationConfig(
                    topics=topics,
                    title_=options.get("title"),
                    description_=options.get("description"),
                    include_in_schema=options.get("include_in_schema", True),
                ),
            ),
            calls,
        )
        super().subscriber(subscriber, persistent=options.get("persistent", True))
        return subscriber.add_call(
            parser_=options.get("parser"),
            decoder_=options.get("decoder"),
            dependencies_=options.get("dependencies", ()),
            codec_=options.get("codec"),
        )

    @overload  # type: ignore[override]
    def publisher(
        self, topic: str, *, batch: Literal[False] = False, **options: Unpack[PublisherOptions]
    ) -> TopicPublisher: ...

    @overload
    def publisher(self, topic: str, *, batch: Literal[True], **options: Unpack[PublisherOptions]) -> BatchPublisher: ...

    @overload
    def publisher(
        self, topic: str, *, batch: bool, **options: Unpack[PublisherOptions]
    ) -> TopicPublisher | BatchPublisher: ...

    def publisher(
        self, topic: str, *, batch: bool = False, **options: Unpack[PublisherOptions]
    ) -> TopicPublisher | BatchPublisher:
        """Create a publisher of a topic: it decorates handlers, whose results it sends, or is called directly.

        With ``batch`` it sends messages together, and the result of a handler is a list of messages. Raises
        IllegalTopicError.
        """
        check_names("publisher", options, PublisherOptions)
        check_topic(topic)
        sends = {name: value for name, value in options.items() if name in SendOptions.__annotations__}
        kind = BatchPublisher if batch else TopicPublisher
        publisher = kind(
            RocketPublisherConfig(
                _outer_config=cast("RocketBrokerConfig", self.config),
                topic=topic,
                headers=dict(options.get("headers") or {}),
                reply_to=options.get("reply_to", ""),
                options=cast("SendOptions", sends),
            ),
            RocketPublisherSpecification(
                _outer_config=cast("RocketBrokerConfig", self.config),
                specification_config=RocketPublisherSpecificationConfig(
                    topic=topic,
                    schema_=options.get("schema"),
                    title_=options.get("title"),
                    description_=options.get("description"),
                    include_in_schema=options.get("include_in_schema", True),
                ),
            ),
        )
        super().publisher(publisher, persistent=options.get("persistent", True))
        return publisher


def _consume_options(options: SubscriberOptions) -> ConsumeOptions:
    names = ConsumeOptions.__annotations__
    return cast("ConsumeOptions", {name: value for name, value in options.items() if name in names})


def _check_subscriber(
    topics: Sequence[str],
    group: str | None,
    batch: bool,
    options: SubscriberOptions,
    consume_options: ConsumeOptions,
) -> None:
    check_names("subscriber", options, SubscriberOptions)
    if not topics:
        raise SetupError("a subscriber needs a topic")
    for topic in topics:
        check_topic(topic)
    if group is not None:
        check_consumer_group(group)
    if "max_records" in options and not batch:
        raise SetupError("max_records is for batch=True")
    ConsumerOptions(**consume_options, batch=options.get("max_records", MAX_RECORDS))


def _wanted(tags: str | Sequence[str] | None, sql: str | None) -> str | Sql | None:
    if sql is None:
        return tags if tags is None or isinstance(tags, str) else " || ".join(tags)
    if tags is not None:
        raise SetupError("give either tags or sql, brokers know one of them for a subscription")
    return Sql(sql)
