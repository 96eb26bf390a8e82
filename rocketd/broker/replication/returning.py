"""Copies topics, groups and offsets from the slaves to a returning master, before it serves.

Apache's 4.9.7 has nothing like it; 5.x calls it pre-online. While a master is away, consumers continue at a slave and
commit there. Without this step, the master's older offsets would replace the slave's. Everything belongs to the reactor
thread; tables are changed and written in a thread of its pool.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from twisted.internet import threads
from twisted.logger import Logger

from rocketd.broker.replication.group import BrokerGroup, together
from rocketd.broker.replication.parts import ReplicationParts
from rocketd.common.event_loop.reactor import IReactor
from rocketd.remoting.bodies.tables import (
    Body,
    ConsumerOffsetSerializeWrapper,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from rocketd.remoting.wire.codes import RequestCode, ResponseCode

B = TypeVar("B", bound=Body)


class ReturningMaster:
    """Asks slaves, also Apache's, for entries this master lacks. An absent slave costs at most a few seconds."""

    _log = Logger()

    def __init__(self, broker: ReplicationParts, group: BrokerGroup, reactor: IReactor) -> None:
        self._broker = broker
        self._group = group
        self._reactor = reactor

    async def take_over(self, slaves: list[str]) -> None:
        """Adopt topics and groups missing here, and the larger offset of each queue.

        Anyone can register any address, so a broker that does not answer as a slave of this name is ignored.
        """
        await together(self._take_over(address) for address in slaves)

    async def _take_over(self, slave: str) -> None:
        broker = self._broker
        if not await self._group.is_slave(slave):
            self._log.warn(
                "cannot get the tables that this master lacks from slave {address}: it does not answer as a slave of this "
                "name",
                address=slave,
            )
            return
        behind = broker.store.dispatch_behind_bytes()

        def end_of(topic: str, queue_id: int) -> int | None:
            """Return the end of a queue, None while it is unknown."""
            return None if behind else broker.store.get_max_offset(topic, queue_id)

        tables: list[tuple[int, Callable[[bytes], Any], Callable[[Any], int], str]] = [
            (RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigSerializeWrapper.decode, broker.topics.adopt, "topics"),
            (
                RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
                SubscriptionGroupWrapper.decode,
                broker.groups.adopt,
                "consumer groups",
            ),
            (
                RequestCode.GET_ALL_CONSUMER_OFFSET,
                ConsumerOffsetSerializeWrapper.decode,
                partial(broker.offsets.take_larger, end_of=end_of),
                "offsets",
            ),
        ]
        responses = await together(self._group.ask(slave, code) for code, _, _, _ in tables)
        for response, (_, decode, take, name) in zip(responses, tables, strict=True):
            if response is None or response.code != ResponseCode.SUCCESS:
                why = "it does not answer" if response is None else f"it answers {response.code}: {response.remark}"
                self._log.warn(
                    "cannot get the {table} that this master lacks from slave {address}: {why}",
                    address=slave,
                    table=name,
                    why=why,
                )
                continue
            try:
                count = await self._in_thread(partial(_taken, decode, take, response.body or b"{}"))
            except Exception as error:
                self._log.error(
                    "the {table} of slave {address} cannot be copied: {error}",
                    table=name,
                    address=slave,
                    error=error,
                )
            else:
                if count:
                    self._log.info(
                        "{table} were copied from slave {address}: {count}", count=count, table=name, address=slave
                    )

    async def _in_thread(self, function: Callable[[], int]) -> int:
        count: int = await threads.deferToThreadPool(self._reactor, self._reactor.getThreadPool(), function)
        return count


def _taken(decode: Callable[[bytes], B], take: Callable[[B], int], body: bytes) -> int:
    return take(decode(body))
