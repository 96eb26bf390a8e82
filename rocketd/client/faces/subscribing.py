"""The common part of the three faces of consumers with subscriptions, with a handler or ``poll``."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from rocketd.client.consumer.membership.seekable_member import SeekableMember
from rocketd.client.consumer.options.subscription import Sql
from rocketd.client.errors import IllegalOptionError, UsageError, check_topic
from rocketd.client.faces.lifecycle import Face
from rocketd.client.settings.config import ClientConfig
from rocketd.remoting.bodies.tables import MessageQueue

Topics = str | Iterable[str] | Mapping[str, str | Sql | None]
"""One topic, several, or a mapping to subscriptions: tags such as ``TagA || TagB``, an Sql, or None for all."""

BROADCAST_INSTANCE = "DEFAULT"
"""Default instance name of broadcasting consumers, as in Apache's client."""

M = TypeVar("M", bound=SeekableMember)


def config_for(config: ClientConfig, *, broadcast: bool) -> ClientConfig:
    """Return the config of the instance for a consumer."""
    if broadcast and config.instance_name is None:
        # Offsets are kept by client id, which must be the same after a restart.
        return replace(config, instance_name=BROADCAST_INSTANCE)
    return config


class SubscribingFace(Face[M]):
    """A consumer of topics. Its methods belong to the reactor thread once it runs."""

    _kind = "consumer"
    broadcast: bool

    def _want_all(self, topics: Topics) -> None:
        self._wanted: dict[str, str | Sql | None] = {}
        for topic, wanted in _each_topic(topics):
            self._want(topic, wanted)

    def _want(self, topic: str, wanted: str | Sql | None) -> None:
        check_topic(topic)
        if not (wanted is None or isinstance(wanted, str | Sql)):
            raise IllegalOptionError(
                f"{wanted!r} cannot be subscribed to in topic {topic}: accepted is a text, an Sql or None"
            )
        self._wanted[topic] = wanted

    def _subscribe_all(self, engine: M) -> M:
        for topic, wanted in self._wanted.items():
            engine.subscribe(topic, wanted)
        return engine

    def _is_called_back(self, engine: M) -> bool:
        return engine.listener.is_calling

    def _instance_config(self) -> ClientConfig:
        """Return the config of the required instance."""
        return config_for(self._config, broadcast=self.broadcast)

    def subscribe(self, topic: str, wanted: str | Sql | None = None) -> None:
        """Subscribe to a further topic: messages with tags such as ``TagA || TagB``, those selected by an Sql, or all."""
        self._want(topic, wanted)
        if self._life.begun:
            self._engine.subscribe(topic, wanted)

    def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic."""
        self._wanted.pop(topic, None)
        if self._life.begun:
            self._engine.unsubscribe(topic)

    def queues(self) -> list[MessageQueue]:
        """Return this consumer's share of the queues."""
        return self._engine.queues()

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the first message of a queue that is not handled, or not polled, yet.

        Raises UsageError if the queue is not read here.
        """
        return self._engine.position(queue)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop pulling these queues until ``unpause``. Raises UsageError, and pauses none, if one is not read here."""
        engine, queues = self._engine, _several("pause", queues)
        for queue in queues:
            engine.position(queue)
        engine.pause(queues)

    def unpause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues again. Those of other consumers are left out: their pause ended with their assignment."""
        self._engine.unpause(_several("unpause", queues))


def _several(method: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    if isinstance(queues, MessageQueue):
        raise UsageError(f"{method} takes several queues: for one, {method}([queue])")
    return list(queues)


def _each_topic(topics: Topics) -> Iterable[tuple[str, str | Sql | None]]:
    if isinstance(topics, str):
        return [(topics, None)]
    if isinstance(topics, Mapping):
        return topics.items()
    return [(topic, None) for topic in topics]
