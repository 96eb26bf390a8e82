"""Where topics are: routes asked of the name servers, and the queues made of them.

Answers to the route half of MQClientInstance and to TopicPublishInfo.
"""

from collections.abc import Iterable

from rocketd.client.errors import BrokerError, NoRouteError
from rocketd.common.names import AUTO_CREATE_TOPIC
from rocketd.common.permission import is_readable, is_writable
from rocketd.remoting.bodies import MessageQueue, TopicRouteData
from rocketd.remoting.client import RemotingClient
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.headers import GetRouteInfoRequestHeader, write_header

DEFAULT_TOPIC_QUEUES = 4
"""Queues of a topic that the first message makes, if the broker allows as many."""

TIMEOUT_MS = 3000
MASTER = 0


class Routes:
    """The routes of the topics that were asked for, and the addresses of the brokers in them. Reactor thread."""

    def __init__(self, remoting: RemotingClient) -> None:
        self._remoting = remoting
        self._routes: dict[str, TopicRouteData] = {}
        self._brokers: dict[str, dict[int, str]] = {}

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that can be written, for a new topic those it will have.

        Raises NoRouteError, which says why, and RemotingError when no name server answers.
        """
        route = self._routes.get(topic)
        if route is None:
            route = await self._find(topic, make=True)
        queues = writable_queues(topic, route)
        if not queues:
            raise NoRouteError(f"no broker takes messages of topic {topic}: {_describe(route)}")
        return queues

    async def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that can be read. Raises as ``publish_queues`` does."""
        route = self._routes.get(topic)
        if route is None:
            route = await self._find(topic, make=False)
        return readable_queues(topic, route)

    async def refresh(self, topics: Iterable[str]) -> None:
        """Ask anew for topics; one that nobody knows any more keeps its route."""
        for topic in set(topics):
            route = await self._fetch(topic)
            if route is not None:
                self._keep(topic, route)

    def forget(self, topic: str) -> None:
        """Ask anew when the topic is next needed."""
        self._routes.pop(topic, None)

    @property
    def topics(self) -> set[str]:
        """All topics that have a route."""
        return set(self._routes)

    def address_of(self, broker_name: str, broker_id: int = MASTER) -> str | None:
        """Return the address of a broker, that of its master where the one asked for is not known."""
        addresses = self._brokers.get(broker_name, {})
        return addresses.get(broker_id) or addresses.get(MASTER) or next(iter(addresses.values()), None)

    def addresses(self, *, slaves: bool) -> list[str]:
        """Return the addresses of all brokers, with or without slaves."""
        return [
            address
            for addresses in self._brokers.values()
            for broker_id, address in addresses.items()
            if slaves or broker_id == MASTER
        ]

    async def _find(self, topic: str, make: bool) -> TopicRouteData:
        route = await self._fetch(topic)
        if route is None and make:
            route = await self._fetch(AUTO_CREATE_TOPIC)
            for queue in route.queue_datas if route is not None else ():
                queue.read_queue_nums = queue.write_queue_nums = min(DEFAULT_TOPIC_QUEUES, queue.read_queue_nums)
        if route is None:
            servers = ";".join(self._remoting.name_servers.addresses)
            hint = (
                "and no broker that makes topics by itself is registered there either; start a broker with this name "
                "server, or create the topic"
                if make
                else "send to it first, or create it"
            )
            raise NoRouteError(f"no route for topic {topic}: name server {servers} does not know it, {hint}")
        self._keep(topic, route)
        return route

    async def _fetch(self, topic: str) -> TopicRouteData | None:
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, write_header(header))
        response = await self._remoting.invoke_sync(None, request, TIMEOUT_MS)
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if response.code != ResponseCode.SUCCESS:
            raise BrokerError(self._remoting.name_servers.chosen or "name server", response)
        return TopicRouteData.decode(response.body)

    def _keep(self, topic: str, route: TopicRouteData) -> None:
        self._routes[topic] = route
        for broker in route.broker_datas:
            self._brokers[broker.broker_name] = dict(broker.broker_addrs)


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
