"""Sends messages with a time of their own to the topic in which they wait.

Answers to HookUtils.handleScheduleMessage of Apache's 5.x: its properties, in its order, with its limits.
"""

import re
from collections.abc import Callable
from typing import Any

from rocketd.broker import problems
from rocketd.broker.timer.records import identity_of
from rocketd.common import permission
from rocketd.common import properties as names
from rocketd.common.names import TIMER_TOPIC
from rocketd.remoting.errors import RequestError
from rocketd.store.message import MessageInner

_TIMES = ((names.TIMER_DELAY_SEC, 1_000), (names.TIMER_DELAY_MS, 1), (names.TIMER_DELIVER_MS, 0))
"""The properties that ask for a time, the first that is there counts, with milliseconds of their unit; 0: no delay, but
a time.
"""
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


class TimerGate:
    """Belongs to the storage thread, but for ``forget_cancellations``, which is the timer thread's."""

    def __init__(self, broker: Any, wake: Callable[[], None]) -> None:
        """``wake`` is called for every message that will have to be read from the topic; any thread may call it."""
        self._broker = broker
        self._settings = broker.settings.store
        self._wake = wake
        self._coming: dict[str, int] = {}

    def redirect(self, message: MessageInner, table: dict[str, str], now_ms: int) -> None:
        """Have a message wait whose properties ask for a time to come; they are still to be encoded.

        Raises RequestError as ``time_to_come`` does.
        """
        due_ms = self.time_to_come(table, now_ms)
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

    def time_to_come(self, table: dict[str, str], now_ms: int) -> int | None:
        """Return the time to come that properties ask for, in ms; None when they ask for none. Changes nothing.

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
                raise self._illegal("a cancellation needs a time to come, such as that of the message to be cancelled")
            return None
        limit_ms = self._settings.timer_max_delay_sec * 1_000
        if due_ms - now_ms > limit_ms:
            raise self._illegal(
                f"the message is to be delivered in {due_ms - now_ms} ms, at most {limit_ms} are allowed"
            )
        return due_ms

    def _due_ms(self, table: dict[str, str], now_ms: int) -> int | None:
        """The time that properties ask for, in ms; None when they ask for none."""
        for name, unit_ms in _TIMES:
            text = table.get(name)
            if text is not None:
                if _NUMBER.fullmatch(text) is None:
                    raise self._illegal(f"{name} is {text!r:.50}, which is no number")
                return now_ms + int(text) * unit_ms if unit_ms else int(text)
        return None

    def _illegal(self, found: str) -> RequestError:
        return problems.TIMER_ILLEGAL.error(limit=self._settings.timer_max_delay_sec * 1_000, found=found)

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
