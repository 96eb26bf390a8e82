"""A slave's copy of its master's tables: topics, consumer offsets, delay progress, consumer groups.

The master is asked every 10 s. Its answer replaces the table here and is written to the file. A table that is not
available does not affect the others, and is requested again. A rocketd master is also asked as soon as one of its
tables changes: see `table_changes`.

Counterpart: `SlaveSynchronize` (Apache).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet import defer
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rocketd.broker.replication.as_master.table_changes import (
    DELAYS,
    GROUPS,
    HOLD_SECONDS,
    OFFSETS,
    TOPICS,
    version_text,
)
from rocketd.broker.replication.parts import ReplicationParts
from rocketd.common.event_loop.clocked_loop import ClockedLoop
from rocketd.common.event_loop.reactor import IReactor
from rocketd.remoting.bodies.tables import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.interfaces import IRemotingClient
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand

FIRST_SECONDS = 3.0
PERIOD_SECONDS = 10.0
TIMEOUT_MS = 3_000
RETRY_SECONDS = 1.0
"""The pause after a master did not answer, or a table was not available."""
REST = 4
"""The pause after a copy, as a multiple of its duration."""
_SHORTEST_REST = 0.02


class SlaveSynchronize:
    """Asks the master at ``master_address``, the address for clients; None while it is unknown.

    Everything belongs to the reactor thread; tables are replaced in the admin pool.
    """

    _log = Logger()

    def __init__(self, broker: ReplicationParts, client: IRemotingClient, reactor: IReactor) -> None:
        self.master_address: str | None = None
        self._broker = broker
        self._client = client
        self._reactor = reactor
        self._loop = ClockedLoop(reactor, self.synchronize)
        self._first: IDelayedCall | None = None
        self._pause: IDelayedCall | None = None
        self._troubled: set[str] = set()
        self._watching = False
        self._seen: dict[str, str] = {}
        self._names = {
            TOPICS: "topics",
            OFFSETS: "consumer offsets",
            DELAYS: "progress of delays",
            GROUPS: "consumer groups",
        }
        self._tables: tuple[tuple[str, int, Callable[[bytes], Any], Callable[[Any], None]], ...] = (
            (
                "topics",
                RequestCode.GET_ALL_TOPIC_CONFIG,
                TopicConfigSerializeWrapper.decode,
                broker.topics.replace_all,
            ),
            (
                "consumer offsets",
                RequestCode.GET_ALL_CONSUMER_OFFSET,
                ConsumerOffsetSerializeWrapper.decode,
                broker.offsets.take_from_master,
            ),
            (
                "progress of delays",
                RequestCode.GET_ALL_DELAY_OFFSET,
                DelayOffsetSerializeWrapper.decode,
                broker.schedule.take_from_master,
            ),
            (
                "consumer groups",
                RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
                SubscriptionGroupWrapper.decode,
                broker.groups.replace_all,
            ),
        )

    def start(self) -> None:
        """Begin to ask."""
        self._first = self._reactor.callLater(FIRST_SECONDS, self._loop.start, PERIOD_SECONDS)
        self._watching = True
        defer.Deferred.fromCoroutine(self._watch())

    def stop(self) -> None:
        """Stop asking."""
        self._watching = False
        if self._pause is not None and self._pause.active():
            self._pause.cancel()
        if self._first is not None and self._first.active():
            self._first.cancel()
        if self._loop.running:
            self._loop.stop()

    def synchronize(self) -> "defer.Deferred[None]":
        """Ask for all tables in turn. Fires when each was answered or failed."""
        return defer.Deferred.fromCoroutine(self._synchronize())

    async def _synchronize(self) -> None:
        for name, _, _, _ in self._tables:
            if self._master() is None:
                return
            await self._ask(name)

    def _master(self) -> str | None:
        return None if self.master_address == self._broker.address else self.master_address

    async def _ask(self, wanted: str) -> "defer.Deferred[bool] | None":
        """Ask for a table. Returns a Deferred with the success of its replacement; None if it is not available."""
        code, decode, replace = next(table[1:] for table in self._tables if table[0] == wanted)
        master = self._master()
        if master is None:
            return None
        try:
            response = await self._client.invoke_sync(master, RemotingCommand(code), TIMEOUT_MS)
            if response.code != ResponseCode.SUCCESS:
                raise RemotingError(f"it answered {response.code}: {response.remark}")
        except Exception as error:
            self._complain(wanted, f"the master at {master}: {error}")
            return None
        taken: defer.Deferred[bool] = defer.Deferred()
        take = partial(self._take, wanted, decode, replace, response.body or b"{}", taken)
        self._broker.dispatcher.pool("admin").call(take)
        return taken

    def _take(
        self,
        name: str,
        decode: Callable[[bytes], Any],
        replace: Callable[[Any], None],
        body: bytes,
        taken: "defer.Deferred[bool]",
    ) -> None:
        """Replace a table. Runs in the admin pool, because tables may be long."""
        try:
            replace(decode(body))
        except Exception as error:
            self._reactor.callFromThread(self._complain, name, str(error))
            self._reactor.callFromThread(taken.callback, False)
        else:
            self._reactor.callFromThread(self._mark_copied, name)
            self._reactor.callFromThread(taken.callback, True)

    # ------------------------------------------------------------ following a rocketd master

    async def _watch(self) -> None:
        """Follow the master: wait for a change, copy that table, and repeat."""
        while self._watching:
            try:
                seconds = await self._watch_once()
            except Exception as error:
                self._log.debug("cannot wait for changes of the master's tables: {error}", error=error)
                seconds = RETRY_SECONDS
            if self._watching:
                rest: defer.Deferred[None] = defer.Deferred()
                self._pause = self._reactor.callLater(seconds, rest.callback, None)
                await rest

    async def _watch_once(self) -> float:
        """Wait for one change and copy it; return the following pause in seconds."""
        master = self._master()
        if master is None:
            return RETRY_SECONDS
        fields = {
            TOPICS: version_text(self._broker.topics.data_version),
            GROUPS: version_text(self._broker.groups.data_version),
            OFFSETS: self._seen.get(OFFSETS, ""),
            DELAYS: self._seen.get(DELAYS, ""),
        }
        request = RemotingCommand(RequestCode.AWAIT_TABLE_CHANGES, fields)
        response = await self._client.invoke_sync(master, request, HOLD_SECONDS * 1000 + TIMEOUT_MS)
        if response.code == ResponseCode.SYSTEM_BUSY:
            return RETRY_SECONDS  # this slave does not follow the master's log yet
        if response.code != ResponseCode.SUCCESS:
            return PERIOD_SECONDS  # an Apache master, which does not know the request
        began = self._reactor.seconds()
        for table, wanted in self._names.items():
            value = (response.ext_fields or {}).get(table, "")
            if value != fields[table]:
                taken = await self._ask(wanted)
                if taken is None or not await taken:
                    return RETRY_SECONDS
                self._seen[table] = value
        took: float = self._reactor.seconds() - began
        return max(_SHORTEST_REST, REST * took)

    def _complain(self, name: str, why: str) -> None:
        if name not in self._troubled:
            self._troubled.add(name)
            self._log.error("the master's {table} cannot be copied, trying again: {why}", table=name, why=why)

    def _mark_copied(self, name: str) -> None:
        if name in self._troubled:
            self._troubled.discard(name)
            self._log.info("the master's {table} are copied again", table=name)
