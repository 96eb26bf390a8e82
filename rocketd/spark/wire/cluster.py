"""A cluster as a task sees it: name servers, routes, and the brokers behind them.

Only a master is asked for bounds of queues and given messages. What was found out is kept, and found out anew when a
request fails.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeVar

from rocketd.common.names import (
    AUTO_CREATE_TOPIC,
    DEFAULT_TOPIC_QUEUES,
    REPLY_TOPIC_POSTFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)
from rocketd.common.permission import is_readable, is_writable
from rocketd.remoting.bodies import ClusterInfo, TopicList, TopicRouteData
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.headers import GetRouteInfoRequestHeader, Header
from rocketd.spark.errors import UnreachableError
from rocketd.spark.ranges import Queue
from rocketd.spark.wire.connection import Connection, connection_to
from rocketd.spark.wire.faults import NoMasterError, UnknownTopicError, body_of, check, patiently
from rocketd.spark.wire.options import ClusterOptions

T = TypeVar("T")

MASTER: Final = 0
"""Id of a broker's master; slaves have others."""


class Cluster:
    """Routes and brokers of one cluster. One thread's; it holds no socket, so it crosses to tasks by pickle.

    Requests are repeated for `options.patience` seconds where they may pass later. All methods raise BrokerError, whose
    kinds are UnreachableError, NoMasterError and UnknownTopicError.
    """

    def __init__(self, options: ClusterOptions) -> None:
        self.options = options
        self._routes: dict[str, TopicRouteData] = {}
        self._addresses: dict[str, dict[int, str]] = {}
        self._name_server = 0

    # ------------------------------------------------------------ name servers

    def ask_name_server(self, code: int, header: Header | None = None) -> RemotingCommand:
        """Ask the name servers in turn, from the last good one on, until one answers; whatever the code is."""
        servers = self.options.namesrv
        problems: list[str] = []
        for turn in range(len(servers)):
            number = (self._name_server + turn) % len(servers)
            try:
                answer = connection_to(servers[number], self.options).request(code, header)
            except UnreachableError as error:
                if not error.retriable:
                    raise
                problems.append(str(error))
                continue
            self._name_server = number
            return answer
        raise UnreachableError(f"no name server answers: {'; '.join(problems)}", retriable=True)

    def route(self, topic: str, *, fresh: bool = False) -> TopicRouteData:
        """Where a topic is; `fresh` asks again. Raises UnknownTopicError."""
        known = None if fresh else self._routes.get(topic)
        return self.patiently(lambda: self._ask_route(topic)) if known is None else known

    def _ask_route(self, topic: str) -> TopicRouteData:
        header = GetRouteInfoRequestHeader(topic, True)
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        answer = self.ask_name_server(code, header)
        server = self.options.namesrv[self._name_server]
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            self._routes.pop(topic, None)
            raise UnknownTopicError(
                f"name server {server} knows no topic {topic!r}; create it, or check its name", answer.code
            )
        route = body_of(TopicRouteData, check(f"name server {server}", code, answer))
        self._routes[topic] = route
        for broker in route.broker_datas:
            self._addresses[broker.broker_name] = dict(broker.broker_addrs)
        return route

    def info(self) -> ClusterInfo:
        """All brokers with their addresses, and the clusters they are in."""
        code = RequestCode.GET_BROKER_CLUSTER_INFO

        def ask() -> ClusterInfo:
            return body_of(ClusterInfo, check("the name server", code, self.ask_name_server(code)))

        info = self.patiently(ask)
        for name, broker in info.broker_addr_table.items():
            self._addresses[name] = dict(broker.broker_addrs)
        return info

    def topics(self) -> list[str]:
        """All topics of applications and of groups (``%RETRY%``, ``%DLQ%``), sorted; without those of brokers themselves."""
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER

        def ask() -> list[str]:
            return body_of(TopicList, check("the name server", code, self.ask_name_server(code))).topic_list

        named = self.patiently(ask)
        info = self.info()
        servers = {*info.broker_addr_table, *info.cluster_addr_table}
        replies = {f"{cluster}_{REPLY_TOPIC_POSTFIX}" for cluster in info.cluster_addr_table}
        hidden = SYSTEM_TOPICS | servers | replies
        return sorted(t for t in set(named) if t not in hidden and not t.startswith(SYSTEM_TOPIC_PREFIX))

    # ------------------------------------------------------------ queues

    def queues(self, topic: str) -> list[Queue]:
        """The queues that may be read, sorted. Raises UnknownTopicError."""
        found = self.route(topic, fresh=True).queue_datas
        return sorted(
            Queue(topic, data.broker_name, number)
            for data in found
            if is_readable(data.perm)
            for number in range(data.read_queue_nums)
        )

    def write_queues(self, topic: str, *, fresh: bool = False) -> list[Queue]:
        """The queues that may be sent to and whose master is known, sorted. Raises UnknownTopicError.

        For a topic that is not there, those that brokers will make with the first message, where they do that
        (autoCreateTopicEnable): as Apache's producers do, we take the route of the topic that stands for new ones.
        """
        most = None
        try:
            route = self.route(topic, fresh=fresh)
        except UnknownTopicError as error:
            try:
                route, most = self.route(AUTO_CREATE_TOPIC, fresh=True), DEFAULT_TOPIC_QUEUES
            except UnknownTopicError:
                raise error from None
        masters = {broker.broker_name for broker in route.broker_datas if MASTER in broker.broker_addrs}
        return sorted(
            Queue(topic, data.broker_name, number)
            for data in route.queue_datas
            if is_writable(data.perm) and data.broker_name in masters
            for number in range(data.write_queue_nums if most is None else min(most, data.write_queue_nums))
        )

    # ------------------------------------------------------------ brokers

    def addresses(self, broker: str) -> dict[int, str]:
        """Addresses of a broker by broker id, empty where it is not known."""
        known = self._addresses.get(broker)
        if known is None or MASTER not in known:
            self.info()
        return self._addresses.get(broker, {})

    def master(self, broker: str) -> str:
        """Address of a broker's master. Raises NoMasterError."""
        address = self.addresses(broker).get(MASTER)
        if address is None:
            raise NoMasterError(
                f"broker {broker} has no master that is registered at {';'.join(self.options.namesrv)}; wait until it "
                "is back",
                retriable=True,
            )
        return address

    def forget(self, broker: str) -> None:
        """Find out anew where a broker is, before it is asked again."""
        self._addresses.pop(broker, None)

    def connection(self, broker: str) -> Connection:
        """The connection to a broker's master. Raises UnreachableError, NoMasterError."""
        try:
            return connection_to(self.master(broker), self.options)
        except UnreachableError:
            self.forget(broker)
            raise

    def ask(
        self,
        broker: str,
        code: int,
        header: Header | None = None,
        body: bytes | None = None,
        *,
        good: Collection[int] = (ResponseCode.SUCCESS,),
        fields: Mapping[str, str] | None = None,
    ) -> RemotingCommand:
        """Ask a broker's master, patiently. Only for what may be done twice."""
        return self.patiently(
            lambda: self.ask_at(broker, self.master(broker), code, header, body, good=good, fields=fields)
        )

    def ask_at(
        self,
        broker: str,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes | None = None,
        *,
        good: Collection[int] = (ResponseCode.SUCCESS,),
        fields: Mapping[str, str] | None = None,
    ) -> RemotingCommand:
        """Ask a broker at one of its addresses, once."""
        try:
            answer = connection_to(address, self.options).request(code, header, body, fields)
        except UnreachableError:
            self.forget(broker)
            raise
        return check(f"broker {broker} at {address}", code, answer, good)

    def patiently(self, attempt: Callable[[], T]) -> T:
        """Do `attempt`, again and again while it fails with what may pass."""
        return patiently(attempt, self.options.patience)
