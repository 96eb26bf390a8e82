"""Requests about a cluster: its brokers, its topics, and the route of a topic.

Counterpart: `MQClientAPIImpl` (Apache). Pure functions.
"""

from typing import Final

from rocketd.common.names import AUTO_CREATE_TOPIC
from rocketd.common.permission import READ, WRITE
from rocketd.protocol.typed_request import TypedRequest, no_result
from rocketd.remoting.bodies.tables import ClusterInfo, KVTable, TopicFilterType, TopicList, TopicRouteData
from rocketd.remoting.headers.client import CreateTopicRequestHeader, GetRouteInfoRequestHeader
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand

MASTER: Final = 0
"""The broker id of a master. Its slaves have other ids."""


def route(topic: str) -> TypedRequest[TopicRouteData | None]:
    """Ask a name server for the route of a topic; None if it does not know the topic."""
    header = GetRouteInfoRequestHeader(topic, accept_standard_json_only=True)
    good = (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST)
    return TypedRequest(RequestCode.GET_ROUTEINFO_BY_TOPIC, _route, header, good)


def cluster_info() -> TypedRequest[ClusterInfo]:
    """Ask a name server for all brokers, their addresses and their clusters."""
    return TypedRequest(RequestCode.GET_BROKER_CLUSTER_INFO, _cluster_info)


def topics() -> TypedRequest[list[str]]:
    """Ask a name server for the names of all topics, including system topics."""
    return TypedRequest(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, _topics)


def create_topic(topic: str, queues: int) -> TypedRequest[None]:
    """Tell a broker to create a topic with ``queues`` queues to read and write, or to change it."""
    header = CreateTopicRequestHeader(
        topic=topic,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=READ | WRITE,
        topic_filter_type=TopicFilterType.SINGLE_TAG.value,
        topic_sys_flag=0,
    )
    return TypedRequest(RequestCode.UPDATE_AND_CREATE_TOPIC, no_result, header)


def runtime_info() -> TypedRequest[dict[str, str]]:
    """Ask a broker for its state, as mqadmin's brokerStatus shows it."""
    return TypedRequest(RequestCode.GET_BROKER_RUNTIME_INFO, _runtime_info)


def _route(answer: RemotingCommand) -> TopicRouteData | None:
    return None if answer.code == ResponseCode.TOPIC_NOT_EXIST else TopicRouteData.decode(answer.body)


def _cluster_info(answer: RemotingCommand) -> ClusterInfo:
    return ClusterInfo.decode(answer.body)


def _topics(answer: RemotingCommand) -> list[str]:
    return TopicList.decode(answer.body).topic_list


def _runtime_info(answer: RemotingCommand) -> dict[str, str]:
    return KVTable.decode(answer.body).table
