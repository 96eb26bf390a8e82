"""Warns if consumers of one group in this process have different subscriptions.

A broker keeps one subscription per group: that of the last heartbeat. Members with a different subscription miss
messages. Apache requires equal subscriptions of all members, but its client does not check them.
"""

from twisted.logger import Logger

from rocketd.client.instance import registry
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.instance.members import ConsumerMember
from rocketd.common.names import RETRY_PREFIX

_log = Logger()


def warn_of_other_subscriptions(consumer: ConsumerMember, instance: ClientInstance) -> None:
    """Log a warning if another consumer of the group, on the same reactor and cluster, has other topics or tags."""
    ours = _subscriptions(consumer)
    cluster = _cluster(instance)
    for other in registry.instances_on(instance.reactor):
        mate = other.consumers.get(consumer.group)
        if mate is None or mate is consumer or _cluster(other) != cluster:
            continue
        theirs = _subscriptions(mate)
        if ours and theirs and ours != theirs:
            _log.warn(
                "consumers of group {group} in this process have different subscriptions, one to {ours}, one to "
                "{theirs}: brokers keep one subscription for a group, so each misses messages; give them the same "
                "topics and tags, or different groups",
                group=consumer.group,
                ours=_words(ours),
                theirs=_words(theirs),
            )
            return


def _cluster(instance: ClientInstance) -> object:
    config = instance.config
    return sorted(config.name_servers()), config.name_server_url, config.environment


def _subscriptions(consumer: ConsumerMember) -> dict[str, str]:
    return {
        subscription.topic: subscription.sub_string
        for subscription in consumer.consumer_data().subscription_data_set
        if not subscription.topic.startswith(RETRY_PREFIX)
    }


def _words(subscriptions: dict[str, str]) -> str:
    return ", ".join(f"{topic} ({wanted})" for topic, wanted in sorted(subscriptions.items()))
