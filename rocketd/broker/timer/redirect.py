"""Redirects messages with a delivery time to the timer topic.

The properties, their order and the limits are those of Apache's broker.

Counterpart: `HookUtils.handleScheduleMessage` (Apache 5.x).
"""

import re
from collections.abc import Callable

from twisted.logger import Logger

from rocketd.broker.base import problems
from rocketd.broker.timer.parts import TimerParts
from rocketd.broker.timer.records import identity_of
from rocketd.common import message_properties as props
from rocketd.common import permission
from rocketd.common.logs.throttle import LogThrottle, ThrottledLog
from rocketd.common.names import TIMER_TOPIC
from rocketd.remoting.errors import RequestError
from rocketd.store.format.message import MessageInner

_TIMES = (
    (props.TIMER_DELAY_SEC, 1_000, "seconds"),
    (props.TIMER_DELAY_MS, 1, "milliseconds"),
    (props.TIMER_DELIVER_MS, 0, "milliseconds since 1970"),
)
"""Properties with a delay or a time, the first one present counts: name, milliseconds per unit (0 for a time), unit."""
_NUMBER = re.compile(r"([+-]?)0*([0-9]+)", re.ASCII)
_DIGITS = 19
"""The maximum number of digits of a 64-bit integer."""
_LIKE_SECONDS = range(10**9, 10**10)
"""As milliseconds these are in the first four months of 1970, as seconds between 2001 and 2286."""


class TimerRedirect:
    """The gate of timed messages. Storage thread only, except ``forget_cancellations``: timer thread."""

    _log = Logger()

    def __init__(self, broker: TimerParts, wake: Callable[[], None]) -> None:
        """``wake`` is called for every message redirected to the topic; it may be called from any thread."""
        self._broker = broker
        self._settings = broker.settings.store
        self._wake = wake
        self._coming: dict[str, int] = {}
        self._odd_times = ThrottledLog(self._log, LogThrottle(lambda: broker.clock_ms() / 1000))

    def redirect(self, message: MessageInner, table: dict[str, str], now_ms: int) -> None:
        """Redirect a message whose properties ask for a future time. The caller encodes the properties afterwards.

        Raises RequestError as ``time_to_come`` does.
        """
        due_ms = self.time_to_come(message.topic, table, now_ms)
        if due_ms is None:
            return
        # The topic has to be known to tools, and to Apache's broker as one in use.
        self._broker.topics.create_topic_in_send_message_back(TIMER_TOPIC, 1, permission.READ | permission.WRITE, 0)
        table[props.TIMER_OUT_MS] = str(due_ms)
        table[props.REAL_TOPIC] = message.topic
        table[props.REAL_QID] = str(message.queue_id)
        cancels = table.get(props.TIMER_DEL_UNIQKEY)
        if cancels is not None:
            self._coming[identity_of(message.topic, cancels, names_topic=True)] = (
                self._broker.store.max_physical_offset()
            )
        message.topic = TIMER_TOPIC
        message.queue_id = 0
        self._wake()

    def time_to_come(self, topic: str, table: dict[str, str], now_ms: int) -> int | None:
        """Return the future time in ms that properties ask for; None if there is none. Changes nothing.

        ``topic`` is used in the log only. Raises RequestError for a time beyond the limits, and for a cancellation
        without a future time.
        """
        if props.TIMER_OUT_MS in table:
            return None  # it has been delivered once already
        cancels = table.get(props.TIMER_DEL_UNIQKEY)
        due_ms = self._due_ms(table, now_ms)
        if due_ms is None and cancels is None:
            return None
        if not self._settings.timer_wheel_enable:
            raise problems.TIMER_NOT_ENABLED.error()
        if due_ms is None or due_ms <= now_ms:
            if cancels is not None:
                raise problems.TIMER_CANCELLATION.error(limit=self._limit_ms)
            self._warn_of_seconds(table.get(props.REAL_TOPIC, topic), table, due_ms)
            return None
        if due_ms - now_ms > self._limit_ms:
            raise self._too_far(
                f"the message is to be delivered in {due_ms - now_ms} ms, at most {self._limit_ms} are allowed"
            )
        return due_ms

    def _due_ms(self, table: dict[str, str], now_ms: int) -> int | None:
        """Return the time in ms from the properties; None if there is none."""
        for name, unit_ms, unit in _TIMES:
            text = table.get(name)
            if text is not None:
                number = _NUMBER.fullmatch(text)
                if number is None:
                    raise problems.TIMER_NO_NUMBER.error(
                        limit=self._limit_ms, name=name, found=f"{text!r:.50}", unit=unit
                    )
                sign, digits = number.groups()
                if len(digits) > _DIGITS:
                    raise self._too_far(f"the property {name} of the message is {text:.50}, a number too large")
                value = int(sign + digits)
                return now_ms + value * unit_ms if unit_ms else value
        return None

    @property
    def _limit_ms(self) -> int:
        limit: int = self._settings.timer_max_delay_sec * 1_000
        return limit

    def _too_far(self, found: str) -> RequestError:
        return problems.TIMER_ILLEGAL.error(limit=self._limit_ms, found=found)

    def _warn_of_seconds(self, topic: str, table: dict[str, str], due_ms: int | None) -> None:
        """Warn the operator of a time probably meant in seconds: its sender gets a success."""
        if due_ms not in _LIKE_SECONDS or props.TIMER_DELIVER_MS not in table:
            return
        self._odd_times.warn(
            "seconds",
            "a message to {topic} was delivered at once: its TIMER_DELIVER_MS is {value}, a time of 1970 in "
            "milliseconds, so it is probably in seconds",
            topic=topic,
            value=due_ms,
        )

    def is_being_cancelled(self, identity: str) -> bool:
        """Whether the log holds a cancellation of the message, not yet read by the timer thread."""
        begin = self._coming.get(identity)
        if begin is None:
            return False
        if self._broker.store.max_physical_offset() > begin:
            return True
        del self._coming[identity]  # the store has refused it
        return False

    def forget_cancellations(self, read_to: int) -> None:
        """Forget cancellations before a physical offset: they have been read and applied."""
        for identity, begin in list(self._coming.items()):
            if begin < read_to:
                # A later cancellation of the same message has no further effect.
                self._coming.pop(identity, None)
