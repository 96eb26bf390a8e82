"""Routes of topics from the name servers, their queues, and the reason if a topic has none.

Counterpart: the route half of `MQClientInstance`, and `TopicPublishInfo` (Apache).
"""

from collections.abc import Awaitable, Callable, Iterable

import msgspec
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketd.client.errors import (
    BrokerUnreachableError,
    ConnectionLostError,
    NoBrokerError,
    NoNameServerError,
    NoRouteError,
    RequestTimeoutError,
    RocketMQError,
    TopicNotFoundError,
    UnreachableError,
)
from rocketd.common.logs.throttle import LogThrottle
from rocketd.common.names import AUTO_CREATE_TOPIC, DEFAULT_TOPIC_QUEUES
from rocketd.protocol import cluster
from rocketd.protocol.cluster import MASTER
from rocketd.protocol.queues import readable_queues, writable_queues
from rocketd.protocol.typed_request import R, TypedRequest
from rocketd.remoting.bodies.tables import MessageQueue, QueueData, TopicRouteData
from rocketd.remoting.calling.channel_table import join, tell_all
from rocketd.remoting.calling.name_servers import NameServers
from rocketd.remoting.headers.client import Header
from rocketd.remoting.wire.codes import ResponseCode
from rocketd.remoting.wire.command import RemotingCommand

Ask = Callable[[int, Header | None], Awaitable[RemotingCommand]]
"""Asks a name server. Fails with the errors of a client."""


class _Topic(msgspec.Struct):
    route: TopicRouteData
    writable: list[MessageQueue]
    readable: list[MessageQueue]


class Routes:
    """The routes of requested topics, and the addresses of their brokers.

    Reactor thread, except for ``known_publish_queues`` and ``address_of``: their lists and tables are replaced, not changed.
    """

    _log = Logger()

    def __init__(self, ask: Ask, name_servers: NameServers, seconds: Callable[[], float]) -> None:
        self._ask = ask
        self._name_servers = name_servers
        self._topics: dict[str, _Topic] = {}
        self._brokers: dict[str, dict[int, str]] = {}
        self._doubted: dict[str, Deferred[None]] = {}
        self._unseen = LogThrottle(seconds, interval=10.0)
        self._asking: dict[tuple[str, bool], list[Deferred[_Topic]]] = {}

    async def publish_queues(
        self, topic: str, template: str = AUTO_CREATE_TOPIC, limit: int = DEFAULT_TOPIC_QUEUES
    ) -> list[MessageQueue]:
        """Return the writable queues. A new topic will have the queues of ``template``, at most ``limit``.

        The list must not be changed.

        Raises:

        - NoNameServerError: no name server answers.
        - NoBrokerError: no broker is registered.
        - TopicNotFoundError: no broker has the topic or creates it.
        - BrokerUnreachableError: no broker takes messages of the topic.
        """
        known = self._topics.get(topic)
        if known is None:
            known = await self._find(topic, template, limit)
        if not known.writable:
            raise BrokerUnreachableError(f"no broker takes messages of topic {topic}: {_describe(known.route)}")
        return known.writable

    def known_publish_queues(self, topic: str) -> list[MessageQueue] | None:
        """Return the result of ``publish_queues`` if it is known without a request; otherwise None. Any thread."""
        known = self._topics.get(topic)
        return known.writable or None if known is not None else None

    async def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues. The list must not be changed. Raises the errors of ``publish_queues``."""
        known = self._topics.get(topic)
        if known is None:
            known = await self._find(topic, None, 0)
        return known.readable

    async def route(self, topic: str) -> TopicRouteData:
        """Return the route of an existing topic. Raises the errors of ``publish_queues``."""
        known = self._topics.get(topic)
        return (known or await self._find(topic, None, 0)).route

    async def refresh(self, topics: Iterable[str]) -> None:
        """Fetch the routes of topics. An unknown topic keeps its route. Raises NoNameServerError or BrokerError."""
        for topic in set(topics):
            route = await self._fetch(topic)
            if route is not None:
                self._keep(topic, route)

    def forget(self, topic: str) -> None:
        """Drop the route. It is fetched again when it is needed."""
        self._topics.pop(topic, None)

    def doubt(self, topic: str) -> None:
        """Refresh the route of a topic in the background. The old route stays in use until there is another.

        An unreachable broker does not invalidate the route: the name servers may be unreachable, too, and a lookup as
        for a new topic would create it at another broker.
        """
        if topic in self._topics and topic not in self._doubted:
            looking = self._doubted[topic] = Deferred.fromCoroutine(self.refresh([topic]))
            looking.addErrback(self._not_seen, topic).addCallback(self._looked, topic)

    def _looked(self, _: object, topic: str) -> None:
        del self._doubted[topic]

    def _not_seen(self, failure: Failure, topic: str) -> None:
        if failure.check(RocketMQError):
            more = self._unseen.admit(topic)
            if more is not None:
                text = "the route of {topic} stays as it was: {error}{more}"
                self._log.warn(text, topic=topic, error=failure.value, more=more)
        elif not failure.check(CancelledError):
            self._log.failure("asking for the route of {topic}", failure, topic=topic)

    def stop(self) -> None:
        """Stop the requests in the background."""
        for looking in list(self._doubted.values()):
            looking.cancel()

    def forget_offline_brokers(self) -> None:
        """Forget addresses without any route."""
        listed = {
            (broker.broker_name, address)
            for known in self._topics.values()
            for broker in known.route.broker_datas
            for address in broker.broker_addrs.values()
        }
        for name, addresses in list(self._brokers.items()):
            kept = {broker_id: address for broker_id, address in addresses.items() if (name, address) in listed}
            if kept:
                self._brokers[name] = kept
            else:
                del self._brokers[name]

    @property
    def topics(self) -> set[str]:
        """All topics with a route."""
        return set(self._topics)

    def address_of(self, broker_name: str, broker_id: int = MASTER) -> str | None:
        """Return the address of a broker with this id, if it is known. Any thread."""
        return self._brokers.get(broker_name, {}).get(broker_id)

    def group_address(self, broker_name: str) -> str | None:
        """Return the address for members and offsets of groups: the master's, or a slave's while the master is gone.

        None if neither is known. Any thread.
        """
        found = self.address_to_read(broker_name, MASTER)
        return None if found is None else found[1]

    def address_to_read(self, broker_name: str, broker_id: int) -> tuple[int, str] | None:
        """Return id and address of a broker to pull from: the one with this id, else the master, else any."""
        addresses = self._brokers.get(broker_name, {})
        for wanted in (broker_id, MASTER, *addresses):
            if wanted in addresses:
                return wanted, addresses[wanted]
        return None

    def addresses(self, *, slaves: bool) -> list[str]:
        """Return the addresses of all brokers, with or without slaves."""
        return [
            address
            for addresses in self._brokers.values()
            for broker_id, address in addresses.items()
            if slaves or broker_id == MASTER
        ]

    # ------------------------------------------------------------ requests

    async def _find(self, topic: str, template: str | None, limit: int) -> _Topic:
        """Look a topic up, once for all concurrent callers."""
        key = (topic, template is not None)
        waiting = self._asking.get(key)
        if waiting is not None:
            return await join(waiting)
        waiting = self._asking[key] = []
        answer = join(waiting)
        asked = Deferred.fromCoroutine(self._look_up(topic, template, limit))
        asked.addBoth(self._found, key, waiting)
        return await answer

    def _found(self, result: _Topic | Failure, key: tuple[str, bool], waiting: list[Deferred[_Topic]]) -> None:
        del self._asking[key]
        tell_all(result, waiting)

    async def _look_up(self, topic: str, template: str | None, limit: int) -> _Topic:
        route = await self._fetch(topic)
        if route is None and template is not None:
            route = await self._fetch(template)
            for queue in route.queue_datas if route is not None else ():
                queue.read_queue_nums = queue.write_queue_nums = min(limit, queue.read_queue_nums)
        if route is None:
            raise await self._reason(topic, template)
        return self._keep(topic, route)

    async def _reason(self, topic: str, template: str | None) -> NoRouteError:
        """Find out why a topic has no route."""
        info = await self._answer(cluster.cluster_info())
        servers = ";".join(self._name_servers.addresses)
        if not info.broker_addr_table:
            return NoBrokerError(
                f"no route for topic {topic}: no broker is registered at name server {servers}; start one with this name "
                "server, or correct the name servers' addresses"
            )
        brokers = ", ".join(sorted(info.broker_addr_table))
        if template is None:
            return TopicNotFoundError(
                f"no route for topic {topic}: none of {brokers} has it; create it or send to it first"
            )
        return TopicNotFoundError(
            f"no route for topic {topic}: none of {brokers} has it, and none makes topics by itself "
            "(autoCreateTopicEnable is off); create it with mqadmin updateTopic or create_topic"
        )

    async def _fetch(self, topic: str) -> TopicRouteData | None:
        return await self._answer(cluster.route(topic))

    async def _answer(self, request: TypedRequest[R]) -> R:
        """Return the result of a request to a name server. Raises NoNameServerError, and BrokerError if it refuses."""
        response = await self._asked(request)
        return request.result(self._name_servers.chosen or "name server", response)

    async def _asked(self, request: TypedRequest[R]) -> RemotingCommand:
        """Return a name server's answer. Raises NoNameServerError."""
        try:
            answer = await self._ask(request.code, request.header)
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise NoNameServerError(
                    f"{self._name_servers.chosen} is not a name server, because it knows no routes; it may be a broker: "
                    "give the address of its name server, whose port is 9876 unless it was given another",
                    code=answer.code,
                )
            return answer
        except UnreachableError as error:
            text = (
                f"no name server can be reached: {error}"
                if self._name_servers.addresses
                else "no name server is given: name one where the client is made, or in the environment's NAMESRV_ADDR"
            )
            raise NoNameServerError(text) from error
        except (ConnectionLostError, RequestTimeoutError) as error:
            raise NoNameServerError(f"no name server answers: {error}") from error

    def _keep(self, topic: str, route: TopicRouteData) -> _Topic:
        known = self._topics.get(topic)
        fresh = _Topic(route, writable_queues(topic, route), readable_queues(topic, route))
        if known is not None and known.writable == fresh.writable and _in_order(known.route) == _in_order(route):
            # Keep the same lists, so that a round-robin over them does not start again.
            known.route, fresh = route, known
        self._topics[topic] = fresh
        for broker in route.broker_datas:
            self._brokers[broker.broker_name] = dict(broker.broker_addrs)
        return fresh


def _describe(route: TopicRouteData) -> str:
    return (
        ", ".join(f"{data.broker_name} has permission {data.perm}" for data in route.queue_datas) or "it has no queues"
    )


def _in_order(route: TopicRouteData) -> list[QueueData]:
    return sorted(route.queue_datas, key=lambda data: data.broker_name)
