"""What the three faces of consumers have in common that subscribe to topics, whether they push or poll.

No counterpart in Apache.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from rocketd.client.config import ClientConfig
from rocketd.client.consumer.group_member import GroupMember
from rocketd.client.consumer.subscription import Sql
from rocketd.client.errors import IllegalOptionError, check_topic
from rocketd.client.life import Face
from rocketd.remoting.bodies import MessageQueue

Topics = str | Iterable[str] | Mapping[str, str | Sql | None]
"""A topic, several, or each with what is wanted of it: tags such as ``TagA || TagB``, an Sql, or None for all."""

BROADCAST_INSTANCE = "DEFAULT"
"""Instance name of broadcasting consumers whose program gives none, as Apache's."""

M = TypeVar("M", bound=GroupMember)


def config_for(config: ClientConfig, *, broadcast: bool) -> ClientConfig:
    """Return the config of the instance that a consumer needs."""
    if broadcast and config.instance_name is None:
        # Offsets are kept by client id: it has to be the same after a restart.
        return replace(config, instance_name=BROADCAST_INSTANCE)
    return config


class SubscribingFace(Face[M]):
    """A consumer of topics. Its methods belong to the reactor thread once it runs."""

    kind = "consumer"
    broadcast: bool

    def _want_all(self, topics: Topics) -> None:
        self._wanted: dict[str, str | Sql | None] = {}
        for topic, wanted in _each_topic(topics):
            self._want(topic, wanted)

    def _want(self, topic: str, wanted: str | Sql | None) -> None:
        check_topic(topic)
        if not (wanted is None or isinstance(wanted, str | Sql)):
            raise IllegalOptionError(
                f"{wanted!r} is nothing to want of topic {topic}: accepted is a text, an Sql or None"
            )
        self._wanted[topic] = wanted

    def _subscribe_all(self, engine: M) -> M:
        for topic, wanted in self._wanted.items():
            engine.subscribe(topic, wanted)
        return engine

    def instance_config(self) -> ClientConfig:
        """Return the config of the instance it needs."""
        return config_for(self.config, broadcast=self.broadcast)

    def subscribe(self, topic: str, wanted: str | Sql | None = None) -> None:
        """Consume a topic, too: messages with tags such as ``TagA || TagB``, those an Sql selects, or all."""
        self._want(topic, wanted)
        if self._life.begun:
            self.engine.subscribe(topic, wanted)

    def unsubscribe(self, topic: str) -> None:
        """Consume a topic no more."""
        self._wanted.pop(topic, None)
        if self._life.begun:
            self.engine.unsubscribe(topic)

    def queues(self) -> list[MessageQueue]:
        """Return this consumer's share of the queues."""
        return self.engine.queues()

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues no more, until ``unpause``."""
        self.engine.pause(queues)

    def unpause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues again."""
        self.engine.unpause(queues)


def _each_topic(topics: Topics) -> Iterable[tuple[str, str | Sql | None]]:
    if isinstance(topics, str):
        return [(topics, None)]
    if isinstance(topics, Mapping):
        return topics.items()
    return [(topic, None) for topic in topics]
