"""A slave's copy of its master's tables: topics, consumer offsets, progress of delays, consumer groups.

Answers to Apache's SlaveSynchronize. The master is asked every 10 s; what it answers replaces what is here and is written
to its file. A table that cannot be had leaves the others alone, and is asked for again.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet import defer
from twisted.logger import Logger

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
        self._troubled: set[str] = set()
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

    def stop(self) -> None:
        """Ask no more."""
        if self._first is not None and self._first.active():
            self._first.cancel()
        if self._loop.running:
            self._loop.stop()

    def synchronize(self) -> "defer.Deferred[None]":
        """Ask for all tables, one after the other; fires when all were answered or failed."""
        return defer.Deferred.fromCoroutine(self._synchronize())

    async def _synchronize(self) -> None:
        for name, code, decode, replace in self._tables:
            master = self.master_address
            if master is None or master == self._broker.address:
                return
            try:
                response = await self._client.invoke_sync(master, RemotingCommand(code), TIMEOUT_MS)
                if response.code != ResponseCode.SUCCESS:
                    raise RemotingError(f"it answered {response.code}: {response.remark}")
            except Exception as error:
                self._complain(name, f"the master at {master}: {error}")
            else:
                take = partial(self._take, name, decode, replace, response.body or b"{}")
                self._broker.dispatcher.pool("admin").call(take)

    def _take(self, name: str, decode: Callable[[bytes], Any], replace: Callable[[Any], None], body: bytes) -> None:
        """Replace a table; in the admin pool, since tables may be long."""
        try:
            replace(decode(body))
        except Exception as error:
            self._reactor.callFromThread(self._complain, name, str(error))
        else:
            self._reactor.callFromThread(self._goes_well, name)

    def _complain(self, name: str, why: str) -> None:
        if name not in self._troubled:
            self._troubled.add(name)
            self._log.error("the master's {table} cannot be copied, trying again: {why}", table=name, why=why)

    def _goes_well(self, name: str) -> None:
        if name in self._troubled:
            self._troubled.discard(name)
            self._log.info("the master's {table} are copied again", table=name)
