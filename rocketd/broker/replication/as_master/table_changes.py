"""The master's side of following tables: requests held until a table changes.

Apache's slaves ask every 10 s instead. A rocketd slave sends the versions of its tables with AWAIT_TABLE_CHANGES
(30003). The answer holds the master's versions, as soon as they differ. So the next request confirms that the slave has
adopted the changes announced in the last answer.

Only slaves count: hosts with an identified connection at the port for slaves. Others are refused, so they acknowledge
nothing and occupy no places. A connection has one place. A host has as many as it may have slaves
(haMaxSlavesPerAddress); its oldest request makes room.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

from twisted.logger import Logger

from rocketd.broker.replication.parts import ReplicationParts
from rocketd.broker.tables.new_name_durability import DurabilityCallback
from rocketd.common.event_loop.clocked_loop import ClockedLoop
from rocketd.common.event_loop.reactor import IReactor
from rocketd.remoting.bodies.tables import DataVersion
from rocketd.remoting.interfaces import IRequestContext
from rocketd.remoting.wire.codes import ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import PutStatus

TOPICS, GROUPS, OFFSETS, DELAYS = "topics", "groups", "offsets", "delays"
"""The fields of the request and its answer, one per table."""
HOLD_SECONDS = 5.0
"""The time a request is held, also the time a slave counts as following after a request."""
PROGRESS_SECONDS = 1.0
"""The minimum interval between announcements of offsets alone: they change all the time."""
_LOOK_SECONDS = 0.25

_log = Logger()


def version_text(version: DataVersion) -> str:
    """Return a table's version in the form of a field."""
    return f"{version.counter}-{version.timestamp}"


def _version(text: str) -> DataVersion | None:
    counter, _, timestamp = text.partition("-")
    try:
        return DataVersion(counter=int(counter), timestamp=int(timestamp))
    except ValueError:
        return None


def _contains(seen: DataVersion, wanted: DataVersion) -> bool:
    """Return whether a table of the version `seen` has the changes up to the version `wanted`."""
    return wanted.counter <= seen.counter and wanted.timestamp <= seen.timestamp


class _Held(NamedTuple):
    context: IRequestContext
    host: str
    seen: dict[str, str]
    since: float
    deadline: float


class _Waiter(NamedTuple):
    version: DataVersion
    deadline: float
    callback: DurabilityCallback


class TableChanges:
    """Answers slaves, and sends waiting until slaves know a new topic.

    Everything belongs to the reactor thread, except ``watch`` and ``confirm``: any thread.
    """

    def __init__(self, broker: ReplicationParts, reactor: IReactor, slave_hosts: Callable[[], Collection[str]]) -> None:
        """``slave_hosts`` returns the hosts of the slaves following the log."""
        self._broker = broker
        self._reactor = reactor
        self._slave_hosts = slave_hosts
        self._held: list[_Held] = []
        self._waiting: list[_Waiter] = []
        self._heard = float("-inf")
        self._confirmed: dict[str, DataVersion] = {}
        """The version of the topics that each slave has, by host."""
        self._lagging = False
        self._looking = False
        self._loop = ClockedLoop(reactor, self._look)

    def start(self) -> None:
        """Begin to look for changes. Topics and groups announce theirs."""
        self._broker.topics.on_change(lambda _: self._check_soon())
        self._broker.groups.on_change(self._check_soon)
        self._loop.start(_LOOK_SECONDS, now=False)

    def stop(self) -> None:
        """Answer all held requests and all waiting sends."""
        if self._loop.running:
            self._loop.stop()
        for held in self._held:
            self._answer(held.context)
        self._held.clear()
        self._end_waiting(PutStatus.FLUSH_SLAVE_TIMEOUT)

    # ------------------------------------------------------------ any thread

    def watch(self, request: RemotingCommand, context: IRequestContext) -> None:
        """Take a slave's request; ``context`` gets the answer."""
        fields = request.ext_fields or {}
        seen = {name: fields.get(name, "") for name in (TOPICS, GROUPS, OFFSETS, DELAYS)}
        self._reactor.callFromThread(self._watch, seen, context)

    def confirm(self, names: frozenset[str], callback: DurabilityCallback) -> None:
        """Call back when a slave following the tables has the current topics; see NewNameDurability."""
        self._reactor.callFromThread(self._confirm, self._broker.topics.data_version, callback)

    def _check_soon(self) -> None:
        if self._held and not self._looking:
            self._looking = True
            self._reactor.callFromThread(self._look)

    # ------------------------------------------------------------ requests of slaves

    def _watch(self, seen: dict[str, str], context: IRequestContext) -> None:
        address = context.connection.address
        host = address.rpartition(":")[0]
        if host not in self._slave_hosts():
            context.answer(
                RemotingCommand.response(
                    ResponseCode.SYSTEM_BUSY,
                    f"no slave at {host} follows the log of this broker: connect to its port for slaves (haListenPort) "
                    "from this address first",
                )
            )
            return
        now = self._reactor.seconds()
        self._heard = now
        self._acknowledge(host, _version(seen[TOPICS]))
        self._make_room(address, host)
        held = _Held(context, host, seen, now, now + HOLD_SECONDS)
        self._held.append(held)
        self._look()

    def _make_room(self, address: str, host: str) -> None:
        """Answer the previous request of the connection, and the host's oldest one if it has too many."""
        here = [held for held in self._held if held.host == host]
        ended = [held for held in here if held.context.connection.address == address]
        if not ended and len(here) >= self._broker.settings.store.ha_max_slaves_per_address:
            ended = here[:1]
        for held in ended:
            self._held.remove(held)
            self._answer(held.context)

    def _look(self) -> None:
        """Answer the requests of slaves with outdated tables, and those held long enough."""
        self._looking = False
        self._check_waiting()
        if not self._held:
            return
        now = self._reactor.seconds()
        known = self._known()
        keep = []
        for held in self._held:
            differing = {name for name, value in known.items() if held.seen[name] != value}
            is_due = differing & {TOPICS, GROUPS} or (differing and now - held.since >= PROGRESS_SECONDS)
            if is_due or now >= held.deadline:
                self._answer(held.context)
            else:
                keep.append(held)
        self._held = keep

    def _known(self) -> dict[str, str]:
        broker = self._broker
        return {
            TOPICS: version_text(broker.topics.data_version),
            GROUPS: version_text(broker.groups.data_version),
            OFFSETS: str(broker.offsets.changes),
            DELAYS: str(broker.schedule.changes),
        }

    def _answer(self, context: IRequestContext) -> None:
        context.answer(RemotingCommand.response(ext_fields=self._known()))

    # ------------------------------------------------------------ waiting sends

    def _confirm(self, version: DataVersion, callback: DurabilityCallback) -> None:
        now = self._reactor.seconds()
        hosts = self._slave_hosts()
        self._confirmed = {host: seen for host, seen in self._confirmed.items() if host in hosts}
        if not hosts or now - self._heard > 2 * HOLD_SECONDS:
            callback(PutStatus.PUT_OK)  # no slave follows the tables: Apache's slaves ask at fixed intervals
        elif any(_contains(seen, version) for seen in self._confirmed.values()):
            callback(PutStatus.PUT_OK)  # a slave may copy a change before it is written here
        elif self._lagging:
            callback(PutStatus.SLAVE_NOT_AVAILABLE)
        else:
            timeout = self._broker.settings.store.slave_timeout / 1000
            self._waiting.append(_Waiter(version, now + timeout, callback))
            self._look()

    def _acknowledge(self, host: str, seen: DataVersion | None) -> None:
        """Note what a slave has, and answer the waiting sends whose version is not later."""
        current = self._broker.topics.data_version
        if seen is None or seen.counter > current.counter:
            return  # not a version of this table
        self._confirmed[host] = seen
        if self._lagging and seen == current:
            self._lagging = False
            _log.info("a slave has all topics again: sends to new topics wait for it again")
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if _contains(seen, waiter.version):
                waiter.callback(PutStatus.PUT_OK)
            else:
                self._waiting.append(waiter)

    def _check_waiting(self) -> None:
        """Give up if a send has waited too long. The next ones are then answered at once."""
        if not self._waiting:
            return
        if not self._slave_hosts():
            self._end_waiting(PutStatus.PUT_OK)  # the result of replicating the log is more informative
        elif self._waiting[0].deadline <= self._reactor.seconds():
            self._lagging = True
            _log.warn(
                "no slave has copied the topics in time: sends to new topics are answered SLAVE_NOT_AVAILABLE at once "
                "until one has"
            )
            self._end_waiting(PutStatus.FLUSH_SLAVE_TIMEOUT)

    def _end_waiting(self, status: PutStatus) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.callback(status)
