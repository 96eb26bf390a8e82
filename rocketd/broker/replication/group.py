"""The other brokers of this broker's name: their registered addresses, and their answers.

Anyone can register any address, so only those of trusted hosts are asked: see `trusted_peers`. A killed broker stays
registered for two minutes. So a broker counts as another master only if it says so itself: in brokerStatus if it is a
rocketd broker, otherwise in its settings. Everything belongs to the reactor thread.
"""

from collections.abc import Collection, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from twisted.internet import defer
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketd.broker.replication.parts import ReplicationParts
from rocketd.broker.replication.trusted_peers import TrustedPeers
from rocketd.common.logs.throttle import ThrottledLog
from rocketd.common.settings import properties_file
from rocketd.remoting.bodies.tables import ClusterInfo, KVTable
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.interfaces import IRemotingClient
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand

ASK_MS = 2_000
"""The time for one answer of a name server or broker."""
_LATE_SECONDS = 0.5
"""A timeout this much later than ASK_MS tells about this process alone: it hung, and the answer may have come."""
INSTANCE, NAME, ROLE, REFUSES = "haInstance", "haBrokerName", "haRole", "haSendsRefused"
"""The keys of brokerStatus for brokers of the same name, present on rocketd brokers."""
_LOG_END = "commitLogMaxOffset"
"""The key of brokerStatus with the end of the log, present on any broker."""
_MASTER_ID = 0
_NAMED = 5
"""The maximum number of ignored addresses in a line."""

T = TypeVar("T")


class Members(NamedTuple):
    """Addresses of other brokers of this name at trusted hosts: registered masters, and registered slaves.

    ``complete`` is whether there are name servers and all of them have answered.
    """

    masters: list[str]
    slaves: list[str]
    complete: bool


class Instance(NamedTuple):
    """One run of a broker; later runs compare greater. Written as ``boot-random``."""

    boot_ms: int
    random: str

    @classmethod
    def parse(cls, text: str) -> "Instance":
        """Parse the result of ``str``. Raises ValueError."""
        boot, _, random = text.partition("-")
        return cls(int(boot), random)

    def __str__(self) -> str:
        return f"{self.boot_ms}-{self.random}"


class Rival(NamedTuple):
    """Another live master of this name. ``instance`` is None if it is not a rocketd broker.

    ``log_end`` is the end offset of its log, 0 if unknown.
    """

    address: str
    instance: Instance | None
    log_end: int = 0


class BrokerGroup:
    """Asks about brokers of the same name. ``instance`` is this broker's, ``clock`` the one of the client."""

    _log = Logger()

    def __init__(
        self,
        broker: ReplicationParts,
        client: IRemotingClient,
        instance: Instance,
        clock: IReactorTime,
        peers: TrustedPeers,
    ) -> None:
        self._clock = clock
        self._broker = broker
        self._client = client
        self._instance = instance
        self._peers = peers
        self._lines = ThrottledLog(self._log)

    async def members(self) -> Members:
        """Ask all name servers at once for the brokers of this name. Missing answers add nothing."""
        own = self._broker.address
        masters: dict[str, None] = {}
        slaves: dict[str, None] = {}
        answers = await together(self._registered(each) for each in self._client.name_servers.addresses)
        for addresses in answers:
            for broker_id, address in (addresses or {}).items():
                if address != own:
                    (masters if broker_id == _MASTER_ID else slaves)[address] = None
        complete = bool(answers) and None not in answers
        trusted = await self._trusted([*masters, *slaves])
        return Members(_found(masters, trusted), _found(slaves, trusted), complete)

    async def masters_at(self, name_server: str) -> list[str]:
        """Ask one name server for other masters of this name. A missing answer adds nothing."""
        known = await self._registered(name_server) or {}
        masters = [address for i, address in known.items() if i == _MASTER_ID and address != self._broker.address]
        return _found(masters, await self._trusted(masters))

    async def _trusted(self, addresses: Collection[str]) -> dict[str, str]:
        """Map each trusted address to the one to use, and log the others."""
        trusted = await self._peers.trusted(addresses)
        if ignored := sorted(set(addresses) - trusted.keys()):
            self._lines.warn(
                "untrusted",
                "name servers know brokers of this name at {addresses}, which are ignored: their hosts are not in "
                "haAllowedAddresses; if they are yours, add them to the list of each broker of {name}; otherwise find "
                "out who registers them (brokerAllowedAddresses of the name servers)",
                addresses=", ".join(ignored[:_NAMED]),
                name=self._broker.settings.broker.broker_name,
            )
        return trusted

    async def _registered(self, name_server: str) -> dict[int, str] | None:
        """Return the addresses of this name by broker id; None without a usable answer."""
        response = await self.ask(name_server, RequestCode.GET_BROKER_CLUSTER_INFO)
        if response is None or response.code != ResponseCode.SUCCESS or not response.body:
            return None
        try:
            brokers = ClusterInfo.decode(response.body).broker_addr_table
        except Exception as error:  # it is not an answer to this request, so it says nothing
            self._log.warn(
                "name server {address}: cannot read its list of brokers: {error}", address=name_server, error=error
            )
            return None
        known = brokers.get(self._broker.settings.broker.broker_name)
        return {} if known is None else dict(known.broker_addrs)

    async def rival(self, addresses: Iterable[str]) -> Rival | None:
        """Return the first of these masters that answers and is not this broker; None if there is none."""
        found = await together(self._examine_broker(address) for address in addresses)
        return next((rival for rival in found if rival is not None), None)

    async def _examine_broker(self, address: str) -> Rival | None:
        response = await self.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        if response is None:
            return None
        name = self._broker.settings.broker.broker_name
        try:
            table = KVTable.decode(response.body or b"{}").table
            log_end = int(table.get(_LOG_END, "0"))
            if INSTANCE not in table:
                return Rival(address, None, log_end) if await self._confirms_master(address, name) else None
            instance = Instance.parse(table[INSTANCE])
        except Exception as error:  # a process answers there, but does not say that it is a master
            self._doubt(address, name, f"its brokerStatus: {error}")
            return None
        if instance == self._instance or table.get(NAME) != name or table.get(ROLE) == "SLAVE":
            return None
        return None if table.get(REFUSES) == "true" else Rival(address, instance, log_end)

    async def is_slave(self, address: str) -> bool:
        """Return whether a broker answers at an address as a slave of this name."""
        name = self._broker.settings.broker.broker_name
        response = await self.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        if response is None:
            return False
        try:
            table = KVTable.decode(response.body or b"{}").table
            if ROLE in table:
                return table[ROLE] == "SLAVE" and table.get(NAME) == name
            settings, _ = await self._settings(address)
        except Exception:  # a process answers there, but does not say that it is a slave
            return False
        return settings.get("brokerName") == name and settings.get("brokerRole") == "SLAVE"

    async def _confirms_master(self, address: str, name: str) -> bool:
        """Whether the settings of another kind of broker have this name, and not the role of a slave."""
        settings, answer = await self._settings(address)
        if not settings:
            self._doubt(address, name, f"asked for its settings, it answers {answer}")
        return settings.get("brokerName") == name and settings.get("brokerRole", "SLAVE") != "SLAVE"

    async def _settings(self, address: str) -> tuple[dict[str, str], str]:
        """Return the settings of a broker, empty if unavailable, and its answer in words."""
        response = await self.ask(address, RequestCode.GET_BROKER_CONFIG)
        if response is None or response.code != ResponseCode.SUCCESS:
            return {}, "nothing" if response is None else f"{response.code}: {response.remark}"
        text = (response.body or b"").decode("utf-8", "replace")
        return {entry.key: entry.value for entry in properties_file.parse(text)}, f"{len(text)} characters"

    def _doubt(self, address: str, name: str, why: str) -> None:
        self._lines.warn(
            address,
            "{address} is registered as a master of {name}, but does not confirm it, so it is ignored: {why}; if a "
            "broker is there, give both the same accounts; otherwise find out who registers it "
            "(brokerAllowedAddresses)",
            address=address,
            name=name,
            why=why,
        )

    async def ask(self, address: str, code: int) -> RemotingCommand | None:
        """Send a request without fields. None without an answer in time.

        After a hang of this process, the first try may find a closed connection, or its time over. Then the other side
        is asked once more.
        """
        for _ in range(2):
            began = self._clock.seconds()
            try:
                response: RemotingCommand = await self._client.invoke_sync(address, RemotingCommand(code), ASK_MS)
            except RemotingError:
                if 0 <= self._clock.seconds() - began - ASK_MS / 1000 < _LATE_SECONDS:
                    return None
            else:
                return response
        return None


def _found(addresses: Iterable[str], trusted: Mapping[str, str]) -> list[str]:
    return [trusted[address] for address in addresses if address in trusted]


async def together(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines side by side and return their results in order. Raises the first error."""
    running = [defer.Deferred.fromCoroutine(each) for each in coroutines]
    results: list[T] = await defer.gatherResults(running, consumeErrors=True)
    return results
