"""One master per name: a second one does not start, and of two running ones, one steps down.

In Apache's clusters both accept messages, and the name server returns one after the other. A master asks the name
servers for masters of its name. It also asks the other address whether it is alive: the registration of a killed broker
lives on for two minutes. Everything belongs to the reactor thread.

A broker that has stepped down accepts messages again by itself if all of this holds:

- For LIFT_SECONDS, longer than brokers let pass between two registrations, every name server has answered, and none has
  known another master of this name.
- Meanwhile the other master has not answered at its address as a master of this name.
- Whenever it was seen, its log was empty, or it gave no end of a log.

Another master with a log may be this one's promoted slave, with messages this one lacks. Then an operator decides: this
broker stays stepped down, however long the other is gone.
"""

from twisted.internet import defer
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketd.broker.replication.group import BrokerGroup, Instance, Rival
from rocketd.broker.replication.parts import ReplicationParts
from rocketd.common.event_loop.clocked_loop import ClockedLoop
from rocketd.remoting.calling.channel_table import join, tell_all

CHECK_SECONDS = 10.0
LIFT_SECONDS = 60.0
"""The time another master must be gone before this one accepts messages: the longest registerNameServerPeriod."""


class SecondMasterError(Exception):
    """Another master of this broker's name is alive. The text names it and the next step."""


class SingleMaster:
    """Looks for a second master. ``instance`` is this run of the broker.

    Of two running rocketd masters, the one started first steps down. When the later one started, the first did not
    answer: it hung or was cut off, and its slave may have replaced it. An Apache master never steps down, so this one
    does.
    """

    _log = Logger()

    def __init__(self, broker: ReplicationParts, group: BrokerGroup, instance: Instance, reactor: IReactorTime) -> None:
        self.refuses = False
        """Whether this broker has stepped down. Any thread may read it."""
        self._broker = broker
        self._group = group
        self._instance = instance
        self._reactor = reactor
        self._loop = ClockedLoop(reactor, self.check)
        self._checking: list[defer.Deferred[None]] | None = None
        self._named: str | None = None
        self._other: Rival | None = None
        """The master for which this one has stepped down, as last seen; ``log_end`` is the largest one seen."""
        self._gone_since: float | None = None
        self._left_to_operator = False

    @property
    def _enabled(self) -> bool:
        enabled: bool = self._broker.settings.broker.single_master_check
        return enabled

    async def before_start(self, masters: list[str]) -> None:
        """Raise SecondMasterError if one of the registered masters is alive."""
        rival = await self._group.rival(masters) if self._enabled else None
        if rival is not None:
            name = self._broker.settings.broker.broker_name
            raise SecondMasterError(
                f"another master of {name} is registered and answers at {rival.address}: start this broker as its slave "
                "(brokerRole=SLAVE, brokerId=1), stop the other one first, or give this one another brokerName"
            )

    async def before_registering(self, masters: list[str]) -> None:
        """Step down if one of the registered masters is alive, whichever was started first.

        For a broker that serves but was never registered: clients know the other one.
        """
        rival = await self._group.rival(masters) if self._enabled else None
        if rival is not None and not self.refuses:
            self._step_down(rival)

    def start(self) -> None:
        """Check again every CHECK_SECONDS."""
        self._loop.start(CHECK_SECONDS, now=False)

    def stop(self) -> None:
        """Stop checking."""
        if self._loop.running:
            self._loop.stop()

    def check(self) -> "defer.Deferred[None]":
        """Look for another live master now. Callers meanwhile share the check.

        Step down if the other is to stay, or accept messages again if it is gone.
        """
        if self._checking is not None:
            return join(self._checking)
        waiting = self._checking = []
        checked = join(waiting)
        defer.Deferred.fromCoroutine(self._check()).addBoth(self._end_check).addBoth(tell_all, waiting)
        return checked

    def check_at(self, name_server: str) -> "defer.Deferred[None]":
        """Look for another live master if this name server has one registered.

        For the moment before a registration there. After a hang of this process, its registration would take the place
        of a master that was started meanwhile, and then this one would no longer find it.
        """
        return defer.Deferred.fromCoroutine(self._check_at(name_server))

    async def _check_at(self, name_server: str) -> None:
        if self._enabled and await self._group.masters_at(name_server):
            await self.check()

    def _end_check(self, result: object) -> object:
        self._checking = None
        return result

    async def _check(self) -> None:
        if not self._enabled:
            return
        try:
            members = await self._group.members()
            rival = await self._group.rival(members.masters)
            if self._other is not None and rival is None:
                rival = await self._group.rival([self._other.address])
        except Exception:  # raising it would end the loop
            self._log.failure("cannot look for another master")
            return
        if self._other is not None:
            self._recheck(self._other, rival, is_registered=bool(members.masters) or not members.complete)
        elif rival is None:
            self._named = None
        elif rival.instance is not None and rival.instance < self._instance:
            self._name(rival)
        else:
            self._step_down(rival)

    def _recheck(self, other: Rival, rival: Rival | None, *, is_registered: bool) -> None:
        """Accept messages again if the other master is gone, by the rule in the module docstring."""
        now = self._reactor.seconds()
        if rival is not None:
            self._other = rival._replace(log_end=max(other.log_end, rival.log_end))
        if rival is not None or is_registered:
            self._gone_since = None
        elif self._gone_since is None:
            self._gone_since = now
        elif now - self._gone_since >= LIFT_SECONDS:
            self._resume(other)

    def _resume(self, other: Rival) -> None:
        if not other.log_end:
            self._other = None
            self.refuses = False
            self._broker.store.accept_puts()
            self._broker.registration.resume()
            self._log.warn(
                "the other master at {address} is gone, and its log was empty: this broker accepts messages again",
                address=other.address,
            )
        elif not self._left_to_operator:
            self._left_to_operator = True
            self._log.error(
                "the other master at {address} is gone, and its log ended at offset {end}: it may have messages that "
                "this broker lacks, so this broker accepts none; to give up those messages, restart this broker",
                address=other.address,
                end=other.log_end,
            )

    def _name(self, rival: Rival) -> None:
        if self._named != rival.address:
            self._named = rival.address
            self._log.error(
                "another master of {name} is alive at {address}; it was started before this one and must step down: "
                "restart it as a slave",
                name=self._broker.settings.broker.broker_name,
                address=rival.address,
            )

    def _step_down(self, rival: Rival) -> None:
        self.refuses = True
        self._other = rival
        self._gone_since = None
        self._left_to_operator = False
        name = self._broker.settings.broker.broker_name
        other = f"another master of {name} is registered and answers at {rival.address}"
        text = f"this broker no longer accepts messages: {other}"
        self._broker.store.refuse_puts(text)
        self._broker.registration.hold()
        self._log.critical(
            "{text}; restart this broker as the slave of the other; or, to keep this one as master, stop the other "
            "and restart this one; if the other is not yours, find out who registers it (brokerAllowedAddresses of "
            "the name servers)",
            text=text,
        )
