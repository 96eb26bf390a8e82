"""Hooks: functions of an application called before and after each send and each handling of messages.

Counterpart: `SendMessageHook`, `CheckForbiddenHook`, `EndTransactionHook`, `ConsumeMessageHook` and `FilterMessageHook`
with their contexts (Apache). Hooks are called in the thread of the client's reactor (with ``rocketd.client.sync`` the
background thread), and must not block. An exception of a hook is logged and otherwise ignored, except in a hook made to
refuse.

Topics and groups have the application's names, without the namespace.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from twisted.logger import Logger, LogLevel

from rocketd.client.errors import IllegalOptionError, SendForbiddenError, check_topic
from rocketd.client.messages.message import Message, ReceivedMessage, SendResult
from rocketd.client.runtime.listeners import is_coroutine_function
from rocketd.client.trace.hooks import message_type_of
from rocketd.client.trace.records import ConsumeReturnType, MessageType
from rocketd.remoting.bodies.tables import MessageQueue

# ------------------------------------------------------------ contexts


class SendMessageContext(msgspec.Struct, kw_only=True):
    """One try of a send. Each try has a separate context.

    ``messages`` has one message, or those of a batch. ``properties`` are all properties to send. Additions by
    ``send_before`` are sent, too; in a batch they stay at the broker, because its messages have separate properties.
    ``body_length`` is in bytes, before compression. ``msg_id`` is the unique key, for a batch the unique keys separated
    by commas. Afterwards there is either a ``result`` or an ``error``; after a oneway send neither, because it is
    unknown whether the message is stored. Hooks may keep data from before to after in ``state``.
    """

    group: str
    messages: Sequence[Message[Any]]
    queue: MessageQueue
    broker_address: str
    oneway: bool
    properties: dict[str, str]
    body_length: int
    msg_id: str
    result: SendResult | None = None
    error: Exception | None = None
    state: dict[Any, Any] = {}

    @property
    def message_type(self) -> MessageType:
        """The type of the message: ordinary, delayed, or the half message of a transaction."""
        return message_type_of(self.properties)


class EndTransactionContext(msgspec.Struct, kw_only=True):
    """The end of a transaction, before it is sent to the broker.

    ``message`` is the sent one, or, after a broker's check (``from_check``), the checked one. ``properties`` are all
    its properties. ``commit_or_rollback`` is TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, or TRANSACTION_NOT if the state
    is unknown.
    """

    group: str
    message: Message[Any] | ReceivedMessage[Any]
    properties: dict[str, str]
    broker_address: str
    msg_id: str
    transaction_id: str | None
    commit_or_rollback: int
    from_check: bool


class ConsumeMessageContext(msgspec.Struct, kw_only=True):
    """Messages given to a handler together.

    Afterwards ``success`` tells whether they are consumed, ``return_type`` how the handler ended, and ``error`` has its
    exception or the Retry or Reject it returned. Hooks may keep data from before to after in ``state``.
    """

    group: str
    messages: Sequence[ReceivedMessage[Any]]
    queue: MessageQueue
    success: bool = False
    return_type: ConsumeReturnType = ConsumeReturnType.FAILED
    error: BaseException | None = None
    state: dict[Any, Any] = {}


class FilterMessageContext(msgspec.Struct, kw_only=True):
    """Pulled messages. Messages removed from ``messages`` are not handed out, and count as consumed."""

    group: str
    messages: list[ReceivedMessage[Any]]
    queue: MessageQueue


# ------------------------------------------------------------ base classes


class ProducerHook:
    """Base of a producer's hooks. Override some methods; the rest costs nothing."""

    def check_forbidden(self, context: SendMessageContext) -> None:
        """Refuse a send by raising: it fails with SendForbiddenError, and no other broker is tried."""

    def send_before(self, context: SendMessageContext) -> None:
        """Called before each try of a send."""

    def send_after(self, context: SendMessageContext) -> None:
        """Called after each try of a send."""

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Called before a broker is told the end of a transaction."""


class ConsumerHook:
    """Base of a consumer's hooks. Override some methods; the rest costs nothing."""

    def filter_messages(self, context: FilterMessageContext) -> None:
        """Remove messages not to be handed out. If it raises, all messages stay."""

    def consume_before(self, context: ConsumeMessageContext) -> None:
        """Called before the handler gets messages."""

    def consume_after(self, context: ConsumeMessageContext) -> None:
        """Called after the handler has ended."""


Context = TypeVar("Context")
_Calls = Sequence[Callable[[Context], None]]


def check_hooks(option: str, hooks: Sequence[object], base: type) -> None:
    """Raise IllegalOptionError for an invalid hook: it overrides no method of the base, or has a coroutine function."""
    if not isinstance(hooks, Sequence):
        raise IllegalOptionError(f"{option}={hooks!r}: accepted is a sequence of hooks")
    for hook in hooks:
        calls = [call for name in _names(base) for call in _overriding((hook,), base, name)]
        if not calls:
            raise IllegalOptionError(f"{option}: {hook!r} has none of the methods {', '.join(_names(base))}")
        if any(map(is_coroutine_function, calls)):
            raise IllegalOptionError(f"{option}: {hook!r} has a coroutine function, and hooks are not awaited")


def check_trace(trace: bool | str) -> None:
    """Raise IllegalOptionError for an invalid value of the option ``trace``, IllegalTopicError for an invalid topic."""
    if isinstance(trace, str):
        check_topic(trace)
    elif not isinstance(trace, bool):
        raise IllegalOptionError(f"trace={trace!r}: accepted is True, False or the name of a topic")


def _names(base: type) -> list[str]:
    return [name for name in vars(base) if not name.startswith("_")]


def _overriding(hooks: Sequence[object], base: type, name: str) -> list[Callable[[Any], None]]:
    """Return the methods of this name, without those of the base, which do nothing."""
    found = [getattr(hook, name, None) for hook in hooks]
    return [call for call in found if call is not None and getattr(call, "__func__", call) is not vars(base)[name]]


# ------------------------------------------------------------ calls

_log = Logger()


def _call(calls: _Calls[Context], context: Context) -> None:
    for call in calls:
        try:
            call(context)
        except Exception:
            _log.failure("hook {hook} failed", hook=call, level=LogLevel.warn)


class ProducerHooks:
    """The hooks of one producer. ``sending`` and ``ending`` tell whether there are hooks for sends and for transactions."""

    def __init__(self, hooks: Sequence[ProducerHook]) -> None:
        self._checks = _overriding(hooks, ProducerHook, "check_forbidden")
        self._before = _overriding(hooks, ProducerHook, "send_before")
        self._after = _overriding(hooks, ProducerHook, "send_after")
        self._ends = _overriding(hooks, ProducerHook, "end_transaction")
        self.sending = bool(self._checks or self._before or self._after)
        self.ending = bool(self._ends)

    def send_before(self, context: SendMessageContext) -> None:
        """Call the hooks before a try. Raises SendForbiddenError if a hook refuses it."""
        for check in self._checks:
            try:
                check(context)
            except Exception as error:
                raise SendForbiddenError(
                    f"a hook refuses the send to {context.queue.topic}: {error}", broker=context.queue.broker_name
                ) from error
        _call(self._before, context)

    def send_after(self, context: SendMessageContext) -> None:
        """Call the hooks after a try."""
        _call(self._after, context)

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Call the hooks before the end of a transaction is sent."""
        _call(self._ends, context)


class ConsumerHooks:
    """The hooks of one consumer. ``consuming`` and ``filtering`` tell whether there are hooks for these."""

    def __init__(self, hooks: Sequence[ConsumerHook]) -> None:
        self._filters = _overriding(hooks, ConsumerHook, "filter_messages")
        self._before = _overriding(hooks, ConsumerHook, "consume_before")
        self._after = _overriding(hooks, ConsumerHook, "consume_after")
        self.consuming = bool(self._before or self._after)
        self.filtering = bool(self._filters)

    def filter_messages(self, context: FilterMessageContext) -> None:
        """Let each hook remove messages. If a hook raises, its changes are undone."""
        for call in self._filters:
            before = list(context.messages)
            try:
                call(context)
            except Exception:
                _log.failure("hook {hook} failed, it filters nothing", hook=call, level=LogLevel.warn)
                context.messages = before

    def consume_before(self, context: ConsumeMessageContext) -> None:
        """Call the hooks before the handler."""
        _call(self._before, context)

    def consume_after(self, context: ConsumeMessageContext) -> None:
        """Call the hooks after the handler."""
        _call(self._after, context)
