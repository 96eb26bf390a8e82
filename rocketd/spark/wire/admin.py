"""Administration of brokers for jobs: creating topics, and reading the state of topics and brokers."""

from collections.abc import Collection
from dataclasses import dataclass

from rocketd.protocol import cluster as requests
from rocketd.protocol.cluster import MASTER
from rocketd.protocol.typed_request import TypedRequest
from rocketd.remoting.bodies.admin import TopicOffset, TopicStatsTable
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.headers.client import TopicRequestHeader
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.spark.errors import ClusterError
from rocketd.spark.ranges import Queue
from rocketd.spark.wire.cluster import ClusterClient
from rocketd.spark.wire.faults import UnknownTopicError


def brokers(cluster: ClusterClient) -> list[str]:
    """Return the names of all brokers whose master is registered, sorted."""
    table = cluster.info().broker_addr_table
    return sorted(name for name, broker in table.items() if MASTER in broker.broker_addrs)


def create_topic(cluster: ClusterClient, topic: str, queues: int = 8, names: Collection[str] | None = None) -> None:
    """Create or change a topic at these brokers (None: all).

    Returns once the name servers have a route to each of them.

    Raises ClusterError.
    """
    wanted = brokers(cluster) if names is None else sorted(names)
    if not wanted:
        raise ClusterError(f"no broker is registered that topic {topic!r} could be created at", retriable=True)
    for name in wanted:
        cluster.answer(name, requests.create_topic(topic, queues))

    def routed() -> None:
        try:
            route = cluster.route(topic, fresh=True)
        except UnknownTopicError as error:
            raise ClusterError(str(error), error.code, retriable=True) from None
        known = {data.broker_name for data in route.queue_datas if data.write_queue_nums == queues}
        if missing := sorted(set(wanted) - known):
            raise ClusterError(f"topic {topic!r} is not registered for {', '.join(missing)} yet", retriable=True)

    cluster.patiently(routed)


@dataclass(frozen=True, slots=True)
class QueueState:
    """The bounds of a queue, and the store time of its last message in Unix milliseconds, None for an empty queue."""

    start: int
    end: int
    last_stored_ms: int | None


def topic_state(cluster: ClusterClient, topic: str, broker: str) -> dict[Queue, QueueState]:
    """Return the state of a topic's queues at one broker, in one answer of that broker."""
    request = TypedRequest(RequestCode.GET_TOPIC_STATS_INFO, _offset_table, TopicRequestHeader(topic))
    table = cluster.answer(broker, request)
    return {
        Queue(queue.topic, queue.broker_name, queue.queue_id): QueueState(
            state.min_offset, state.max_offset, state.last_update_timestamp or None
        )
        for queue, state in sorted(table.items())
    }


def runtime_info(cluster: ClusterClient, broker: str) -> dict[str, str]:
    """Return the runtime statistics of a broker, as mqadmin's brokerStatus shows them."""
    return cluster.answer(broker, requests.runtime_info())


def _offset_table(answer: RemotingCommand) -> dict[MessageQueue, TopicOffset]:
    return TopicStatsTable.decode(answer.body).offset_table
