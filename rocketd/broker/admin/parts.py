"""The broker as the processors of administrators' requests see it: all of its parts."""

from typing import Protocol

from rocketd.broker.access.access_control import AccessControl
from rocketd.broker.lag.parts import LagParts
from rocketd.broker.timer.parts import TimerParts
from rocketd.broker.timer.schedule import ScheduleMessageService
from rocketd.broker.timer.service import TimerMessageService
from rocketd.broker.transaction.parts import TransactionParts
from rocketd.remoting.bodies.tables import DelayOffsetSerializeWrapper


class AdminParts(LagParts, TransactionParts, TimerParts, Protocol):
    """All parts of a broker."""

    access: AccessControl | None
    schedule: ScheduleMessageService
    timers: TimerMessageService

    def delay_offsets(self) -> DelayOffsetSerializeWrapper:
        """Copy the delivery progress of each delay level. Any thread."""
