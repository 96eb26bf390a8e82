"""What jobs ask and change at brokers besides messages: topics, and how a broker is."""

from collections.abc import Collection
from dataclasses import dataclass

from rocketd.common.names import AUTO_CREATE_TOPIC
from rocketd.common.permission import READ, WRITE
from rocketd.remoting.admin_bodies import TopicStatsTable
from rocketd.remoting.bodies import KVTable
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.headers import CreateTopicRequestHeader, TopicRequestHeader
from rocketd.spark.errors import BrokerError
from rocketd.spark.ranges import Queue
from rocketd.spark.wire.cluster import MASTER, Cluster
from rocketd.spark.wire.faults import UnknownTopicError, body_of


def brokers(cluster: Cluster) -> list[str]:
    """Names of all brokers whose master is registered, sorted."""
    table = cluster.info().broker_addr_table
    return sorted(name for name, broker in table.items() if MASTER in broker.broker_addrs)


def create_topic(cluster: Cluster, topic: str, queues: int = 8, names: Collection[str] | None = None) -> None:
    """Create or change a topic at these brokers (None: all); returns once the name servers lead to each of them.

    Raises BrokerError.
    """
    wanted = brokers(cluster) if names is None else sorted(names)
    if not wanted:
        raise BrokerError(f"no broker is registered that topic {topic!r} could be created at", retriable=True)
    header = CreateTopicRequestHeader(topic, AUTO_CREATE_TOPIC, queues, queues, READ | WRITE, "SINGLE_TAG", 0)
    for name in wanted:
        cluster.ask(name, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    def routed() -> None:
        try:
            route = cluster.route(topic, fresh=True)
        except UnknownTopicError as error:
            raise BrokerError(str(error), error.code, retriable=True) from None
        known = {data.broker_name for data in route.queue_datas if data.write_queue_nums == queues}
        if missing := sorted(set(wanted) - known):
            raise BrokerError(f"topic {topic!r} is not registered for {', '.join(missing)} yet", retriable=True)

    cluster.patiently(routed)


@dataclass(frozen=True, slots=True)
class QueueState:
    """How far a queue reaches, and the store time of its last message in Unix milliseconds, None while it is empty."""

    start: int
    end: int
    last_stored_ms: int | None


def topic_state(cluster: Cluster, topic: str, broker: str) -> dict[Queue, QueueState]:
    """The state of a topic's queues at one broker, taken by it at one moment."""
    answer = cluster.ask(broker, RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader(topic))
    table = body_of(TopicStatsTable, answer).offset_table
    return {
        Queue(queue.topic, queue.broker_name, queue.queue_id): QueueState(
            state.min_offset, state.max_offset, state.last_update_timestamp or None
        )
        for queue, state in sorted(table.items())
    }


def runtime_info(cluster: Cluster, broker: str) -> dict[str, str]:
    """What a broker tells of its state, as mqadmin's brokerStatus shows it."""
    return body_of(KVTable, cluster.ask(broker, RequestCode.GET_BROKER_RUNTIME_INFO)).table
