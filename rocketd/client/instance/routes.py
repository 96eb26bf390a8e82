"""Where topics are: routes asked of the name servers, the queues made of them, and why a topic has none.

Answers to the route half of MQClientInstance and to TopicPublishInfo.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

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
    check_response,
)
from rocketd.common.log_throttle import LogThrottle
from rocketd.common.names import AUTO_CREATE_TOPIC
from rocketd.common.permission import is_readable, is_writable
from rocketd.remoting.bodies import ClusterInfo, MessageQueue, QueueData, TopicRouteData
from rocketd.remoting.channel_table import join, tell_all
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.headers import GetRouteInfoRequestHeader, Header
from rocketd.remoting.name_servers import NameServers

DEFAULT_TOPIC_QUEUES = 4
"""Queues of a topic that the first message makes, if the broker allows as many."""

MASTER = 0

Ask = Callable[[int, Header | None], Awaitable[RemotingCommand]]
"""Asks a name server; fails with the errors of a client."""


@dataclass(slots=True)
class _Topic:
    route: TopicRouteData
    writable: list[MessageQueue]
    readable: list[MessageQueue]


class Routes:
    """The routes of the topics that were asked for, and the addresses of the brokers in them. Reactor thread."""

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
        self, topic: str, template: str = AUTO_CREATE_TOPIC, most: int = DEFAULT_TOPIC_QUEUES
    ) -> list[MessageQueue]:
        """Return the queues that can be written; for a new topic those it will have: as ``template``, at most ``most``.

        The list is not to be changed. Raises NoNameServerError, NoBrokerError, TopicNotFoundError or
        BrokerUnreachableError.
        """
        known = self._topics.get(topic)
        if known is None:
            known = await self._find(topic, template, most)
        if not known.writable:
            raise BrokerUnreachableError(f"no broker takes messages of topic {topic}: {_describe(known.route)}")
        return known.writable

    def known_publish_queues(self, topic: str) -> list[MessageQueue] | None:
        """Return what ``publish_queues`` would without asking; None where it would ask, or raise."""
        known = self._topics.get(topic)
        return known.writable or None if known is not None else None

    async def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that can be read; the list is not to be changed. Raises as ``publish_queues`` does."""
        known = self._topics.get(topic)
        if known is None:
            known = await self._find(topic, None, 0)
        return known.readable

    async def route(self, topic: str) -> TopicRouteData:
        """Return the route of a topic that there is. Raises as ``publish_queues`` does."""
        known = self._topics.get(topic)
        return (known or await self._find(topic, None, 0)).route

    async def refresh(self, topics: Iterable[str]) -> None:
        """Ask anew for topics; one that nobody knows any more keeps its route. Raises NoNameServerError or BrokerError."""
        for topic in set(topics):
            route = await self._fetch(topic)
            if route is not None:
                self._keep(topic, route)

    def forget(self, topic: str) -> None:
        """Ask anew when the topic is next needed."""
        self._topics.pop(topic, None)

    def doubt(self, topic: str) -> None:
        """Ask anew for a topic that has a route, behind the scenes; the route stays as long as there is no other.

        That a broker cannot be reached is no reason to have no route: the name servers may be out of reach, too, and
        asking as for a new topic would make it at another broker.
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
        """Ask for nothing any more behind the scenes."""
        for looking in list(self._doubted.values()):
            looking.cancel()

    def forget_offline_brokers(self) -> None:
        """Forget the addresses that stand in no topic's route any more."""
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
        """All topics that have a route."""
        return set(self._topics)

    def address_of(self, broker_name: str, broker_id: int = MASTER) -> str | None:
        """Return the address of a broker with this id, if it is known."""
        return self._brokers.get(broker_name, {}).get(broker_id)

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

    # ------------------------------------------------------------ asking

    async def _find(self, topic: str, template: str | None, most: int) -> _Topic:
        """Ask, once for all who want to know at a time."""
        key = (topic, template is not None)
        waiting = self._asking.get(key)
        if waiting is not None:
            return await join(waiting)
        waiting = self._asking[key] = []
        answer = join(waiting)
        asked = Deferred.fromCoroutine(self._look_up(topic, template, most))
        asked.addBoth(self._found, key, waiting)
        return await answer

    def _found(self, result: _Topic | Failure, key: tuple[str, bool], waiting: list[Deferred[_Topic]]) -> None:
        del self._asking[key]
        tell_all(result, waiting)

    async def _look_up(self, topic: str, template: str | None, most: int) -> _Topic:
        route = await self._fetch(topic)
        if route is None and template is not None:
            route = await self._fetch(template)
            for queue in route.queue_datas if route is not None else ():
                queue.read_queue_nums = queue.write_queue_nums = min(most, queue.read_queue_nums)
        if route is None:
            raise await self._reason(topic, template)
        return self._keep(topic, route)

    async def _reason(self, topic: str, template: str | None) -> NoRouteError:
        """Find out why a topic has no route."""
        info = ClusterInfo.decode(
            check_response("name server", await self._asked(RequestCode.GET_BROKER_CLUSTER_INFO, None)).body
        )
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
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        response = await self._asked(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        check_response(self._name_servers.chosen or "name server", response)
        return TopicRouteData.decode(response.body)

    async def _asked(self, code: int, header: Header | None) -> RemotingCommand:
        """Return a name server's answer. Raises NoNameServerError."""
        try:
            answer = await self._ask(code, header)
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise NoNameServerError(
                    f"{self._name_servers.chosen} is no name server, for it knows no routes; it may be a broker: give the "
                    "address of its name server, whose port is 9876 unless it was told another",
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
            # The lists stay the same ones: whoever goes through them in turn need not begin anew.
            known.route, fresh = route, known
        self._topics[topic] = fresh
        for broker in route.broker_datas:
            self._brokers[broker.broker_name] = dict(broker.broker_addrs)
        return fresh


def writable_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Return the queues of a route that can be written: of brokers with a master, in the order of broker names.

    An ordered topic has those that its configuration lists.
    """
    if route.order_topic_conf:
        queues = []
        for part in route.order_topic_conf.split(";"):
            broker, _, number = part.partition(":")
            queues += [MessageQueue(topic, broker, queue_id) for queue_id in range(int(number or 0))]
        return queues
    masters = {broker.broker_name for broker in route.broker_datas if MASTER in broker.broker_addrs}
    return [
        MessageQueue(topic, data.broker_name, queue_id)
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
        if is_writable(data.perm) and data.broker_name in masters
        for queue_id in range(data.write_queue_nums)
    ]


def readable_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Return the queues of a route that can be read."""
    return [
        MessageQueue(topic, data.broker_name, queue_id)
        for data in route.queue_datas
        if is_readable(data.perm)
        for queue_id in range(data.read_queue_nums)
    ]


def _describe(route: TopicRouteData) -> str:
    return (
        ", ".join(f"{data.broker_name} has permission {data.perm}" for data in route.queue_datas) or "it has no queues"
    )


def _in_order(route: TopicRouteData) -> list[QueueData]:
    return sorted(route.queue_datas, key=lambda data: data.broker_name)
