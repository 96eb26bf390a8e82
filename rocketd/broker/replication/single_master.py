"""One master of a name: a second one does not start, and of two that run one steps down.

No counterpart in Apache, where both take messages and the name server names one after the other. A master asks the name
servers who is registered as master of its name, and the other address whether it lives: a registration outlives a killed
broker by two minutes. All of it belongs to the reactor thread.
"""

from typing import Any

from twisted.internet import defer
from twisted.logger import Logger

from rocketd.broker.replication.group import BrokerGroup, Instance, Rival
from rocketd.common.clocked_loop import ClockedLoop

CHECK_SECONDS = 10.0


class SecondMasterError(Exception):
    """Another master of this broker's name lives; the text names it and says what to do."""


class SingleMaster:
    """Looks for a second master. ``instance`` is this run of the broker.

    Of two rocketd masters that run, the one that was started first steps down: when the later one started, it did not
    answer, so it hung or was cut off, and its slave may have taken its place. An Apache master never steps down, so this
    one does.
    """

    _log = Logger()

    def __init__(self, broker: Any, group: BrokerGroup, instance: Instance, reactor: Any) -> None:
        self.refuses = False
        """Whether this broker has stepped down. Any thread may read it."""
        self._broker = broker
        self._group = group
        self._instance = instance
        self._loop = ClockedLoop(reactor, self.check)
        self._named: str | None = None

    @property
    def _enabled(self) -> bool:
        enabled: bool = self._broker.settings.broker.single_master_check
        return enabled

    async def before_start(self, masters: list[str]) -> None:
        """Raise SecondMasterError if one of the masters that name servers know lives."""
        rival = await self._group.rival(masters) if self._enabled else None
        if rival is not None:
            name = self._broker.settings.broker.broker_name
            raise SecondMasterError(
                f"another master of {name} is registered and answers at {rival.address}: start this broker as its slave "
                "(brokerRole=SLAVE, brokerId=1), stop the other before, or give this one another brokerName"
            )

    def start(self) -> None:
        """Look again every CHECK_SECONDS."""
        self._loop.start(CHECK_SECONDS, now=False)

    def stop(self) -> None:
        """Look no more."""
        if self._loop.running:
            self._loop.stop()

    def check(self) -> "defer.Deferred[None]":
        """Look for another live master now, and step down if it is the one to stay."""
        return defer.Deferred.fromCoroutine(self._check())

    async def _check(self) -> None:
        if self.refuses or not self._enabled:
            return
        try:
            rival = await self._group.rival((await self._group.members()).masters)
        except Exception:  # raised out of here, it would end the loop
            self._log.failure("cannot look for another master")
            return
        if rival is None or self.refuses:
            self._named = None
        elif rival.instance is not None and rival.instance < self._instance:
            self._name(rival)
        else:
            self._step_down(rival)

    def _name(self, rival: Rival) -> None:
        if self._named != rival.address:
            self._named = rival.address
            self._log.error(
                "another master of {name} is alive at {address}; it was started before this one and is to step down: "
                "start it again as a slave",
                name=self._broker.settings.broker.broker_name,
                address=rival.address,
            )

    def _step_down(self, rival: Rival) -> None:
        self.refuses = True
        name = self._broker.settings.broker.broker_name
        other = f"another master of {name} is registered and answers at {rival.address}"
        text = f"this broker takes no messages any more: {other}"
        self._broker.store.refuse_puts(text)
        self._broker.registration.hold()
        self._log.critical(
            "{text}; stop this broker, and start it again as the other's slave; or, if this one is to stay, stop the "
            "other and start this one again",
            text=text,
        )
