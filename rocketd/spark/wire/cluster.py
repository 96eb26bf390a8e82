"""A cluster as a task sees it: name servers, routes, and brokers.

Only masters are asked for queue bounds, and only they are sent messages. Routes and addresses are cached, and refreshed
after a failed request.
"""

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from rocketd.common.names import (
    AUTO_CREATE_TOPIC,
    DEFAULT_TOPIC_QUEUES,
    REPLY_TOPIC_POSTFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)
from rocketd.protocol import cluster as requests
from rocketd.protocol.cluster import MASTER
from rocketd.protocol.queues import permitted_queues, readable_queues
from rocketd.protocol.typed_request import R, TypedRequest
from rocketd.remoting.bodies.tables import ClusterInfo, TopicRouteData
from rocketd.remoting.headers.client import Header
from rocketd.remoting.wire.codes import ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.spark.errors import NoAnswerError
from rocketd.spark.ranges import Queue
from rocketd.spark.wire.connection import BlockingConnection, connection_to
from rocketd.spark.wire.faults import NoMasterError, UnknownTopicError, check, patiently, read_answer
from rocketd.spark.wire.options import ClusterOptions

T = TypeVar("T")


class ClusterClient:
    """Routes and brokers of one cluster. For one thread; it holds no socket, so it can be pickled for tasks.

    Requests that may succeed later are repeated for `options.patience` seconds. All methods raise ClusterError, with
    the subclasses NoAnswerError, NoMasterError and UnknownTopicError.
    """

    def __init__(self, options: ClusterOptions) -> None:
        self.options = options
        self._routes: dict[str, TopicRouteData] = {}
        self._addresses: dict[str, dict[int, str]] = {}
        self._name_server = 0

    # ------------------------------------------------------------ name servers

    def ask_name_server(self, code: int, header: Header | None = None) -> RemotingCommand:
        """Ask the name servers in turn, starting with the last good one, until one answers with any code."""
        servers = self.options.namesrv
        problems: list[str] = []
        for turn in range(len(servers)):
            number = (self._name_server + turn) % len(servers)
            try:
                answer = connection_to(servers[number], self.options).request(code, header)
            except NoAnswerError as error:
                if not error.retriable:
                    raise
                problems.append(str(error))
                continue
            self._name_server = number
            return answer
        raise NoAnswerError(f"no name server answers: {'; '.join(problems)}", retriable=True)

    def route(self, topic: str, *, fresh: bool = False) -> TopicRouteData:
        """Return the route of a topic; `fresh` bypasses the cache. Raises UnknownTopicError."""
        known = None if fresh else self._routes.get(topic)
        return self.patiently(lambda: self._ask_route(topic)) if known is None else known

    def _ask_route(self, topic: str) -> TopicRouteData:
        route = self._answer_of_name_server(requests.route(topic))
        if route is None:
            self._routes.pop(topic, None)
            raise UnknownTopicError(
                f"name server {self._name_server_address()} knows no topic {topic!r}; create it, or check its name",
                ResponseCode.TOPIC_NOT_EXIST,
            )
        self._routes[topic] = route
        for broker in route.broker_datas:
            self._addresses[broker.broker_name] = dict(broker.broker_addrs)
        return route

    def info(self) -> ClusterInfo:
        """Return all brokers with their addresses, and the clusters they belong to."""
        info = self.patiently(lambda: self._answer_of_name_server(requests.cluster_info()))
        for name, broker in info.broker_addr_table.items():
            self._addresses[name] = dict(broker.broker_addrs)
        return info

    def topics(self) -> list[str]:
        """Return all topics of applications and groups (``%RETRY%``, ``%DLQ%``), sorted, without system topics."""
        named = self.patiently(lambda: self._answer_of_name_server(requests.topics()))
        info = self.info()
        servers = {*info.broker_addr_table, *info.cluster_addr_table}
        replies = {f"{cluster}_{REPLY_TOPIC_POSTFIX}" for cluster in info.cluster_addr_table}
        hidden = SYSTEM_TOPICS | servers | replies
        return sorted(t for t in set(named) if t not in hidden and not t.startswith(SYSTEM_TOPIC_PREFIX))

    def _answer_of_name_server(self, request: TypedRequest[R]) -> R:
        answer = self.ask_name_server(request.code, request.header)
        check(f"name server {self._name_server_address()}", request.code, answer, request.good)
        return read_answer(request, answer)

    def _name_server_address(self) -> str:
        """Return the name server that answered last."""
        return self.options.namesrv[self._name_server]

    # ------------------------------------------------------------ queues

    def queues(self, topic: str) -> list[Queue]:
        """Return the readable queues, sorted. Raises UnknownTopicError."""
        found = readable_queues(topic, self.route(topic, fresh=True))
        return sorted(Queue(topic, queue.broker_name, queue.queue_id) for queue in found)

    def write_queues(self, topic: str, *, fresh: bool = False) -> list[Queue]:
        """Return the writable queues whose master is known, sorted. Raises UnknownTopicError.

        For an unknown topic, return the queues that brokers create with the first message, if they do
        (autoCreateTopicEnable). Like Apache's producers, this uses the route of the template topic for new topics.
        """
        limit = None
        try:
            route = self.route(topic, fresh=fresh)
        except UnknownTopicError as error:
            try:
                route, limit = self.route(AUTO_CREATE_TOPIC, fresh=True), DEFAULT_TOPIC_QUEUES
            except UnknownTopicError:
                raise error from None
        return sorted(
            Queue(topic, queue.broker_name, queue.queue_id)
            for queue in permitted_queues(topic, route)
            if limit is None or queue.queue_id < limit
        )

    # ------------------------------------------------------------ brokers

    def addresses(self, broker: str) -> dict[int, str]:
        """Return the addresses of a broker by broker id; empty for an unknown broker."""
        known = self._addresses.get(broker)
        if known is None or MASTER not in known:
            self.info()
        return self._addresses.get(broker, {})

    def master(self, broker: str) -> str:
        """Return the address of a broker's master. Raises NoMasterError."""
        address = self.addresses(broker).get(MASTER)
        if address is None:
            raise NoMasterError(
                f"broker {broker} has no master that is registered at {';'.join(self.options.namesrv)}; wait until it "
                "is back",
                retriable=True,
            )
        return address

    def forget(self, broker: str) -> None:
        """Drop the cached addresses of a broker, so that the next request looks them up."""
        self._addresses.pop(broker, None)

    def connection(self, broker: str) -> BlockingConnection:
        """Return the connection to a broker's master. Raises NoAnswerError, NoMasterError."""
        try:
            return connection_to(self.master(broker), self.options)
        except NoAnswerError:
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
        """Ask a broker's master, with retries. Only for idempotent requests."""
        return self.patiently(
            lambda: self.ask_at(broker, self.master(broker), code, header, body, good=good, fields=fields)
        )

    def answer(self, broker: str, request: TypedRequest[R]) -> R:
        """Return the result of a request to a broker's master, with retries. Only for idempotent requests."""
        return self.patiently(lambda: self.answer_at(broker, self.master(broker), request))

    def answer_at(self, broker: str, address: str, request: TypedRequest[R]) -> R:
        """Return the result of a request to a broker at one of its addresses, without retries."""
        answer = self.ask_at(broker, address, request.code, request.header, good=request.good)
        return read_answer(request, answer)

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
        """Ask a broker at one of its addresses, without retries."""
        try:
            answer = connection_to(address, self.options).request(code, header, body, fields)
        except NoAnswerError:
            self.forget(broker)
            raise
        return check(f"broker {broker} at {address}", code, answer, good)

    def patiently(self, attempt: Callable[[], T]) -> T:
        """Call `attempt`, and repeat it after transient errors."""
        return patiently(attempt, self.options.patience)
