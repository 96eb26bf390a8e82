"""A slave's copy of its master's tables: topics, consumer offsets, progress of delays, consumer groups.

Answers to Apache's SlaveSynchronize. The master is asked every 10 s; what it answers replaces what is here and is written
to its file. A table that cannot be had leaves the others alone, and is asked for again. A rocketd master is asked as soon
as one of its tables changes as well: see table_changes.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet import defer
from twisted.logger import Logger

from rocketd.broker.replication.table_changes import DELAYS, GROUPS, HOLD_SECONDS, OFFSETS, TOPICS, version_text
from rocketd.common.clocked_loop import ClockedLoop
from rocketd.remoting.bodies import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RemotingError

FIRST_SECONDS = 3.0
PERIOD_SECONDS = 10.0
TIMEOUT_MS = 3_000
RETRY_SECONDS = 1.0
"""After a master that did not answer, or a table that could not be had."""
REST = 4
"""After a copy that took so long, no other is begun for so many times as long."""
_SHORTEST_REST = 0.02


class SlaveSynchronize:
    """Asks the master whose clients' address is ``master_address``, None while it is not known.

    All of it belongs to the reactor thread; tables are replaced in the admin pool. ``client`` is a RemotingClient.
    """

    _log = Logger()

    def __init__(self, broker: Any, client: Any, reactor: Any) -> None:
        self.master_address: str | None = None
        self._broker = broker
        self._client = client
        self._reactor = reactor
        self._loop = ClockedLoop(reactor, self.synchronize)
        self._first: Any = None
        self._pause: Any = None
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
        """Ask no more."""
        self._watching = False
        if self._pause is not None and self._pause.active():
            self._pause.cancel()
        if self._first is not None and self._first.active():
            self._first.cancel()
        if self._loop.running:
            self._loop.stop()

    def synchronize(self) -> "defer.Deferred[None]":
        """Ask for all tables, one after the other; fires when all were answered or failed."""
        return defer.Deferred.fromCoroutine(self._synchronize())

    async def _synchronize(self) -> None:
        for name, _, _, _ in self._tables:
            if self._master() is None:
                return
            await self._ask(name)

    def _master(self) -> str | None:
        return None if self.master_address == self._broker.address else self.master_address

    async def _ask(self, wanted: str) -> "defer.Deferred[bool] | None":
        """Ask for a table; returns a Deferred of whether it was taken over, None if it cannot be had."""
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
        """Replace a table; in the admin pool, since tables may be long."""
        try:
            replace(decode(body))
        except Exception as error:
            self._reactor.callFromThread(self._complain, name, str(error))
            self._reactor.callFromThread(taken.callback, False)
        else:
            self._reactor.callFromThread(self._goes_well, name)
            self._reactor.callFromThread(taken.callback, True)

    # ------------------------------------------------------------ following a rocketd master

    async def _watch(self) -> None:
        """Have the master say when a table has changed, and copy that table, again and again."""
        while self._watching:
            try:
                seconds = await self._watch_once()
            except Exception as error:
                self._log.debug("the master's tables cannot be followed now: {error}", error=error)
                seconds = RETRY_SECONDS
            if self._watching:
                rest: defer.Deferred[None] = defer.Deferred()
                self._pause = self._reactor.callLater(seconds, rest.callback, None)
                await rest

    async def _watch_once(self) -> float:
        """Wait for one change and copy it; returns how long to rest then."""
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
        if response.code != ResponseCode.SUCCESS:
            return PERIOD_SECONDS  # one of Apache's, which does not know the request
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

    def _goes_well(self, name: str) -> None:
        if name in self._troubled:
            self._troubled.discard(name)
            self._log.info("the master's {table} are copied again", table=name)
