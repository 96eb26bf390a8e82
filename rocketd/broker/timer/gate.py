"""Sends messages with a time of their own to the topic in which they wait.

Answers to HookUtils.handleScheduleMessage of Apache's 5.x: its properties, in its order, with its limits.
"""

import re
from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

from rocketd.broker import problems
from rocketd.broker.timer.records import identity_of
from rocketd.common import permission
from rocketd.common import properties as names
from rocketd.common.names import TIMER_TOPIC
from rocketd.remoting.errors import RequestError
from rocketd.store.message import MessageInner

_TIMES = (
    (names.TIMER_DELAY_SEC, 1_000, "seconds"),
    (names.TIMER_DELAY_MS, 1, "milliseconds"),
    (names.TIMER_DELIVER_MS, 0, "milliseconds since 1970"),
)
"""The properties that ask for a time, the first that is there counts, with milliseconds of their unit; 0: no delay, but
a time.
"""
_NUMBER = re.compile(r"([+-]?)0*([0-9]+)", re.ASCII)
_DIGITS = 19
"""Of the longest number of 64 bits."""
_LIKE_SECONDS = range(10**9, 10**10)
"""Times in milliseconds that lie in the first four months of 1970, and in seconds between 2001 and 2286."""
_QUIET_MS = 60_000
"""For how long what was warned of is not warned of again."""


class TimerGate:
    """Belongs to the storage thread, but for ``forget_cancellations``, which is the timer thread's."""

    _log = Logger()

    def __init__(self, broker: Any, wake: Callable[[], None]) -> None:
        """``wake`` is called for every message that will have to be read from the topic; any thread may call it."""
        self._broker = broker
        self._settings = broker.settings.store
        self._wake = wake
        self._coming: dict[str, int] = {}
        self._warned_ms: int | None = None

    def redirect(self, message: MessageInner, table: dict[str, str], now_ms: int) -> None:
        """Have a message wait whose properties ask for a time to come; they are still to be encoded.

        Raises RequestError as ``time_to_come`` does.
        """
        due_ms = self.time_to_come(message.topic, table, now_ms)
        if due_ms is None:
            return
        # So that it is known to tools, and to Apache's broker as a topic that is in use.
        self._broker.topics.create_topic_in_send_message_back(TIMER_TOPIC, 1, permission.READ | permission.WRITE, 0)
        table[names.TIMER_OUT_MS] = str(due_ms)
        table[names.REAL_TOPIC] = message.topic
        table[names.REAL_QID] = str(message.queue_id)
        cancels = table.get(names.TIMER_DEL_UNIQKEY)
        if cancels is not None:
            self._coming[identity_of(message.topic, cancels, names_topic=True)] = (
                self._broker.store.max_physical_offset()
            )
        message.topic = TIMER_TOPIC
        message.queue_id = 0
        self._wake()

    def time_to_come(self, topic: str, table: dict[str, str], now_ms: int) -> int | None:
        """Return the time to come that properties ask for, in ms; None when they ask for none. Changes nothing.
        ``topic`` is only told.

        Raises RequestError for a time that cannot be kept, and for a cancellation without a time to come.
        """
        if names.TIMER_OUT_MS in table:
            return None  # it has been delivered once already
        cancels = table.get(names.TIMER_DEL_UNIQKEY)
        due_ms = self._due_ms(table, now_ms)
        if due_ms is None and cancels is None:
            return None
        if not self._settings.timer_wheel_enable:
            raise problems.TIMER_NOT_ENABLED.error()
        if due_ms is None or due_ms <= now_ms:
            if cancels is not None:
                raise problems.TIMER_CANCELLATION.error(limit=self._limit_ms)
            self._warn_of_seconds(table.get(names.REAL_TOPIC, topic), table, due_ms, now_ms)
            return None
        if due_ms - now_ms > self._limit_ms:
            raise self._too_far(
                f"the message is to be delivered in {due_ms - now_ms} ms, at most {self._limit_ms} are allowed"
            )
        return due_ms

    def _due_ms(self, table: dict[str, str], now_ms: int) -> int | None:
        """The time that properties ask for, in ms; None when they ask for none."""
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

    def _warn_of_seconds(self, topic: str, table: dict[str, str], due_ms: int | None, now_ms: int) -> None:
        """Tell the operator of a time that was meant in seconds, for its sender is told that all is well."""
        if due_ms not in _LIKE_SECONDS or names.TIMER_DELIVER_MS not in table:
            return
        if self._warned_ms is not None and 0 <= now_ms - self._warned_ms < _QUIET_MS:
            return
        self._warned_ms = now_ms
        self._log.warn(
            "a message to {topic} was delivered at once: its TIMER_DELIVER_MS is {value}, which is a time of 1970 in "
            "milliseconds and seems to be meant in seconds; such are not logged again for {quiet:g} s",
            topic=topic,
            value=due_ms,
            quiet=_QUIET_MS / 1_000,
        )

    def is_being_cancelled(self, identity: str) -> bool:
        """Whether a cancellation of the message is in the log that the timer thread has not read yet."""
        begin = self._coming.get(identity)
        if begin is None:
            return False
        if self._broker.store.max_physical_offset() > begin:
            return True
        del self._coming[identity]  # the store has refused it
        return False

    def forget_cancellations(self, read_to: int) -> None:
        """Forget cancellations that lie in the log before an offset: they have been read and applied."""
        for identity, begin in list(self._coming.items()):
            if begin < read_to:
                # A later one of the same message changes nothing.
                self._coming.pop(identity, None)
