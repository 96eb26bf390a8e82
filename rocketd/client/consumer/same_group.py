"""Sees that consumers of one group in this process subscribe to different things, and says so.

Answers to Apache's rule that all members of a group have the same subscriptions, which its client does not look at: a broker
keeps one subscription for a group, that of the last heartbeat, so messages pass members by.
"""

from twisted.logger import Logger

from rocketd.client.instance import registry
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.instance.members import Consumer
from rocketd.common.names import RETRY_PREFIX

_log = Logger()


def warn_of_other_subscriptions(consumer: Consumer, instance: ClientInstance) -> None:
    """Log a warning where another consumer of the group, on the same reactor and cluster, has other topics or tags."""
    ours = _subscriptions(consumer)
    cluster = _cluster(instance)
    for other in registry.instances_on(instance.reactor):
        mate = other.consumers.get(consumer.group)
        if mate is None or mate is consumer or _cluster(other) != cluster:
            continue
        theirs = _subscriptions(mate)
        if ours and theirs and ours != theirs:
            _log.warn(
                "consumers of group {group} in this process subscribe to different things, one to {ours}, one to {theirs}: "
                "brokers keep one subscription for a group, so each misses messages; give them the same topics and tags, "
                "or groups of their own",
                group=consumer.group,
                ours=_words(ours),
                theirs=_words(theirs),
            )
            return


def _cluster(instance: ClientInstance) -> object:
    config = instance.config
    return sorted(config.name_servers()), config.name_server_url, config.surroundings


def _subscriptions(consumer: Consumer) -> dict[str, str]:
    return {
        subscription.topic: subscription.sub_string
        for subscription in consumer.consumer_data().subscription_data_set
        if not subscription.topic.startswith(RETRY_PREFIX)
    }


def _words(subscriptions: dict[str, str]) -> str:
    return ", ".join(f"{topic} ({wanted})" for topic, wanted in sorted(subscriptions.items()))
