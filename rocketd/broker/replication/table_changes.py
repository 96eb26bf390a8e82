"""The master's side of tables that slaves follow: requests that are held until a table changes.

No counterpart in Apache, whose slaves ask every 10 s. A slave of rocketd says which tables it has, by AWAIT_TABLE_CHANGES
(30003). The answer says what the master has, as soon as that is another. So the next request tells that the slave has
taken over what the answer before has announced.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from twisted.logger import Logger

from rocketd.broker.settlement import Settled
from rocketd.common.clocked_loop import ClockedLoop
from rocketd.remoting.bodies import DataVersion
from rocketd.remoting.codes import ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.store.message import PutStatus

TOPICS, GROUPS, OFFSETS, DELAYS = "topics", "groups", "offsets", "delays"
"""Fields of the request and its answer, one for each table."""
HOLD_SECONDS = 5.0
"""How long a request is held; also how long a slave counts as following after it was heard."""
PROGRESS_SECONDS = 1.0
"""Offsets alone are announced to a slave once in so long: they change all the time."""
MAX_HELD = 64
_LOOK_SECONDS = 0.25

_log = Logger()


def version_text(version: DataVersion) -> str:
    """Write a table's version as a field."""
    return f"{version.counter}-{version.timestamp}"


def _version(text: str) -> DataVersion | None:
    counter, _, timestamp = text.partition("-")
    try:
        return DataVersion(counter=int(counter), timestamp=int(timestamp))
    except ValueError:
        return None


class _Held(NamedTuple):
    context: Any
    seen: dict[str, str]
    since: float
    deadline: float


class _Waiter(NamedTuple):
    version: DataVersion
    deadline: float
    callback: Settled


class TableChanges:
    """Answers slaves, and sends that wait for slaves to know a new topic.

    All of it belongs to the reactor thread, but for ``watch`` and ``settle``, which any thread may call.
    """

    def __init__(self, broker: Any, reactor: Any, has_slaves: Callable[[], bool]) -> None:
        """``has_slaves`` tells whether slaves follow the log."""
        self._broker = broker
        self._reactor = reactor
        self._has_slaves = has_slaves
        self._held: list[_Held] = []
        self._waiting: list[_Waiter] = []
        self._heard = float("-inf")
        self._lagging = False
        self._looking = False
        self._loop = ClockedLoop(reactor, self._look)

    def start(self) -> None:
        """Begin to look for changes; those of topics and groups announce themselves."""
        self._broker.topics.on_change(lambda _: self._look_soon())
        self._broker.groups.on_change(self._look_soon)
        self._loop.start(_LOOK_SECONDS, now=False)

    def stop(self) -> None:
        """Answer all that is held, and everybody who waits."""
        if self._loop.running:
            self._loop.stop()
        for held in self._held:
            self._answer(held.context)
        self._held.clear()
        self._end_waiting(PutStatus.FLUSH_SLAVE_TIMEOUT)

    # ------------------------------------------------------------ any thread

    def watch(self, request: RemotingCommand, context: Any) -> None:
        """Take a slave's request; ``context`` gets the answer."""
        fields = request.ext_fields or {}
        seen = {name: fields.get(name, "") for name in (TOPICS, GROUPS, OFFSETS, DELAYS)}
        self._reactor.callFromThread(self._watch, seen, context)

    def settle(self, names: frozenset[str], callback: Settled) -> None:
        """Call back when a slave that follows the tables has those of now; see Settlement."""
        self._reactor.callFromThread(self._settle, self._broker.topics.data_version, callback)

    def _look_soon(self) -> None:
        if self._held and not self._looking:
            self._looking = True
            self._reactor.callFromThread(self._look)

    # ------------------------------------------------------------ requests of slaves

    def _watch(self, seen: dict[str, str], context: Any) -> None:
        now = self._reactor.seconds()
        self._heard = now
        self._acknowledge(_version(seen[TOPICS]))
        if len(self._held) >= MAX_HELD:
            context.answer(
                RemotingCommand.response(
                    ResponseCode.SYSTEM_BUSY,
                    f"{MAX_HELD} slaves follow the tables already, which is the most there may be",
                )
            )
            return
        held = _Held(context, seen, now, now + HOLD_SECONDS)
        self._held.append(held)
        self._look()

    def _look(self) -> None:
        """Answer the requests whose slave lacks something, or that were held long enough."""
        self._looking = False
        self._look_at_waiting()
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

    def _answer(self, context: Any) -> None:
        context.answer(RemotingCommand.response(ext_fields=self._known()))

    # ------------------------------------------------------------ sends that wait

    def _settle(self, version: DataVersion, callback: Settled) -> None:
        now = self._reactor.seconds()
        if not self._has_slaves() or now - self._heard > 2 * HOLD_SECONDS:
            callback(PutStatus.PUT_OK)  # nobody follows the tables: slaves of Apache's ask in their time
        elif self._lagging:
            callback(PutStatus.SLAVE_NOT_AVAILABLE)
        else:
            timeout = self._broker.settings.store.slave_timeout / 1000
            self._waiting.append(_Waiter(version, now + timeout, callback))
            self._look()

    def _acknowledge(self, seen: DataVersion | None) -> None:
        """Go on with those who wait for no later version than a slave has."""
        current = self._broker.topics.data_version
        if seen is None or seen.counter > current.counter:
            return  # not a version of this table
        if self._lagging and seen == current:
            self._lagging = False
            _log.info("a slave has all topics again: sends to new topics wait for it again")
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if waiter.version.counter <= seen.counter and waiter.version.timestamp <= seen.timestamp:
                waiter.callback(PutStatus.PUT_OK)
            else:
                self._waiting.append(waiter)

    def _look_at_waiting(self) -> None:
        """Give up when a send has waited too long: the next ones need not find out again."""
        if not self._waiting:
            return
        if not self._has_slaves():
            self._end_waiting(PutStatus.PUT_OK)  # what became of the log says more
        elif self._waiting[0].deadline <= self._reactor.seconds():
            self._lagging = True
            _log.warn(
                "no slave has taken over the topics in time: sends to new topics are answered SLAVE_NOT_AVAILABLE at once "
                "until one has"
            )
            self._end_waiting(PutStatus.FLUSH_SLAVE_TIMEOUT)

    def _end_waiting(self, status: PutStatus) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.callback(status)
