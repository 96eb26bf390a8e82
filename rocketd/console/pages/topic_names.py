"""Names of topics and groups: those of applications, and those of servers, retries and dead letters."""

from dataclasses import dataclass
from typing import Self

from rocketd.common.names import (
    DLQ_PREFIX,
    PRESET_GROUPS,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    reply_topic,
)
from rocketd.console.cluster import ConsoleCluster


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The names, in order. ``of_servers`` are named after brokers and clusters."""

    all: list[str]
    of_servers: frozenset[str]

    @classmethod
    async def of(cls, cluster: ConsoleCluster) -> Self:
        """Ask the name servers."""
        brokers = await cluster.admin.brokers()
        clusters = {broker.cluster for broker in brokers}
        named = {broker.broker_name for broker in brokers} | clusters | set(map(reply_topic, clusters))
        return cls(await cluster.admin.topics(), frozenset(named))

    def is_own(self, topic: str) -> bool:
        """Return whether a topic is an application's."""
        prefixes = (SYSTEM_TOPIC_PREFIX, RETRY_PREFIX, DLQ_PREFIX)
        return not (topic.startswith(prefixes) or topic in SYSTEM_TOPICS or topic in self.of_servers)

    @property
    def own(self) -> list[str]:
        """The topics of applications."""
        return [topic for topic in self.all if self.is_own(topic)]


def is_own_group(group: str) -> bool:
    """Return whether a consumer group is an application's, and does not exist at every broker from its first start."""
    return not group.startswith(SYSTEM_GROUP_PREFIX) and group not in PRESET_GROUPS
