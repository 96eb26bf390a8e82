"""Queues, and the queues of a topic by its route.

Counterpart: `MQClientInstance.topicRouteData2TopicPublishInfo` (Apache). Pure functions.
"""

from typing import Protocol

from rocketd.common.permission import is_readable, is_writable
from rocketd.protocol.cluster import MASTER
from rocketd.remoting.bodies.tables import MessageQueue, TopicRouteData


class QueueLike(Protocol):
    """One queue of a topic at a broker: `MessageQueue`, or the `Queue` of `rocketd.spark`."""

    @property
    def topic(self) -> str:
        """The topic, as brokers know it."""
        ...

    @property
    def broker_name(self) -> str:
        """The common name of a master and its slaves."""
        ...

    @property
    def queue_id(self) -> int:
        """The number of the queue at its broker, from 0 on."""
        ...


def readable_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Return the readable queues of a route."""
    return [
        MessageQueue(topic, data.broker_name, queue_id)
        for data in route.queue_datas
        if is_readable(data.perm)
        for queue_id in range(data.read_queue_nums)
    ]


def writable_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Return the queues of a route for a producer.

    For an ordered topic, these are the queues in its configuration.
    """
    if route.order_topic_conf:
        queues = []
        for part in route.order_topic_conf.split(";"):
            broker, _, number = part.partition(":")
            queues += [MessageQueue(topic, broker, queue_id) for queue_id in range(int(number or 0))]
        return queues
    return permitted_queues(topic, route)


def permitted_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Return the writable queues of a route. They belong to brokers with a master, in the order of broker names."""
    masters = {broker.broker_name for broker in route.broker_datas if MASTER in broker.broker_addrs}
    return [
        MessageQueue(topic, data.broker_name, queue_id)
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
        if is_writable(data.perm) and data.broker_name in masters
        for queue_id in range(data.write_queue_nums)
    ]
