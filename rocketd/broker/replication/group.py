"""The other brokers of this broker's name: where name servers say they are, and what they say of themselves.

No counterpart in Apache. All of it belongs to the reactor thread.
"""

from collections.abc import Coroutine, Iterable
from typing import Any, NamedTuple, TypeVar

from twisted.internet import defer
from twisted.logger import Logger

from rocketd.common import properties_file
from rocketd.remoting.bodies import ClusterInfo, KVTable
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RemotingError

ASK_MS = 2_000
"""How long one name server or broker is given to answer."""
INSTANCE, NAME, ROLE, REFUSES = "haInstance", "haBrokerName", "haRole", "haSendsRefused"
"""What brokerStatus of a rocketd broker tells its namesakes."""
_MASTER_ID = 0

T = TypeVar("T")


class Members(NamedTuple):
    """Addresses of other brokers of this name: those registered as its master, and as its slaves."""

    masters: list[str]
    slaves: list[str]


class Instance(NamedTuple):
    """One run of a broker; the later one is greater. Written as ``boot-random``."""

    boot_ms: int
    random: str

    @classmethod
    def parse(cls, text: str) -> "Instance":
        """Read what ``str`` has written. Raises ValueError."""
        boot, _, random = text.partition("-")
        return cls(int(boot), random)

    def __str__(self) -> str:
        return f"{self.boot_ms}-{self.random}"


class Rival(NamedTuple):
    """Another live master of this name. ``instance`` is None if it is not a rocketd, or does not tell."""

    address: str
    instance: Instance | None


class BrokerGroup:
    """Asks about this broker's namesakes. ``client`` is a RemotingClient, ``instance`` is this broker's own."""

    _log = Logger()

    def __init__(self, broker: Any, client: Any, instance: Instance) -> None:
        self._broker = broker
        self._client = client
        self._instance = instance

    async def members(self) -> Members:
        """Ask all name servers at once who has this broker's name; those that do not answer say nothing."""
        own = self._broker.address
        masters: dict[str, None] = {}
        slaves: dict[str, None] = {}
        for addresses in await together(self._registered(each) for each in self._client.name_servers.addresses):
            for broker_id, address in addresses.items():
                if address != own:
                    (masters if broker_id == _MASTER_ID else slaves)[address] = None
        return Members(list(masters), list(slaves))

    async def _registered(self, name_server: str) -> dict[int, str]:
        response = await self.ask(name_server, RequestCode.GET_BROKER_CLUSTER_INFO)
        if response is None or response.code != ResponseCode.SUCCESS or not response.body:
            return {}
        try:
            brokers = ClusterInfo.decode(response.body).broker_addr_table
        except Exception as error:  # it is not an answer to this request, so it says nothing
            self._log.warn("name server {address}: its list of brokers: {error}", address=name_server, error=error)
            return {}
        known = brokers.get(self._broker.settings.broker.broker_name)
        return {} if known is None else dict(known.broker_addrs)

    async def rival(self, addresses: Iterable[str]) -> Rival | None:
        """Return the first of these masters that is another than this broker and answers, None if none does."""
        found = await together(self._look_at(address) for address in addresses)
        return next((rival for rival in found if rival is not None), None)

    async def _look_at(self, address: str) -> Rival | None:
        response = await self.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        if response is None:
            return None
        name = self._broker.settings.broker.broker_name
        try:
            table = KVTable.decode(response.body or b"{}").table
            if INSTANCE not in table:
                return Rival(address, None) if await self._may_be_master(address, name) else None
            instance = Instance.parse(table[INSTANCE])
        except Exception:  # something answers there, and does not say that it is not the master
            return Rival(address, None)
        if instance == self._instance or table.get(NAME) != name or table.get(ROLE) == "SLAVE":
            return None
        return None if table.get(REFUSES) == "true" else Rival(address, instance)

    async def _may_be_master(self, address: str, name: str) -> bool:
        """Whether the settings of an Apache broker do not say that it is another, or a slave."""
        response = await self.ask(address, RequestCode.GET_BROKER_CONFIG)
        if response is None or response.code != ResponseCode.SUCCESS:
            return True
        text = (response.body or b"").decode("utf-8", "replace")
        settings = {entry.key: entry.value for entry in properties_file.parse(text)}
        return settings.get("brokerName", name) == name and settings.get("brokerRole") != "SLAVE"

    async def ask(self, address: str, code: int) -> RemotingCommand | None:
        """Ask for something that needs no fields; None if there is no answer in time."""
        try:
            response: RemotingCommand = await self._client.invoke_sync(address, RemotingCommand(code), ASK_MS)
        except RemotingError:
            return None
        return response


async def together(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines side by side and return their results in order; the first error is raised."""
    running = [defer.Deferred.fromCoroutine(each) for each in coroutines]
    results: list[T] = await defer.gatherResults(running, consumeErrors=True)
    return results
