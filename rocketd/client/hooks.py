"""Hooks: what an application has called before and after each send and each handling of messages.

Answers to SendMessageHook, CheckForbiddenHook, EndTransactionHook, ConsumeMessageHook and FilterMessageHook with their
contexts. Hooks are called in the thread of the client's reactor (with ``rocketd.client.sync`` the one in the background),
and must not block. What one raises is logged and changes nothing, except where the hook is there to refuse.

Names of topics and groups are those that the application knows, without the namespace.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from twisted.logger import Logger, LogLevel

from rocketd.client.errors import IllegalOptionError, SendForbiddenError, check_topic
from rocketd.client.listeners import is_coroutine_function
from rocketd.client.message import Message, ReceivedMessage, SendResult
from rocketd.client.trace.hooks import message_type_of
from rocketd.client.trace.records import ConsumeReturnType, MessageType
from rocketd.remoting.bodies import MessageQueue

# ------------------------------------------------------------ what hooks are told


class SendMessageContext(msgspec.Struct, kw_only=True):
    """One try of a send; a send that is tried again has a context for each.

    ``messages`` has one message, or those of a batch. ``properties`` are all properties as they are sent: what
    ``send_before`` adds there is sent, too (those of a batch stay at the broker; its messages have their own).
    ``body_length`` is in bytes, before the body is compressed. ``msg_id`` is the unique key, of a batch the unique keys
    with commas between. Afterwards there is either a ``result`` or an ``error``, of a oneway send neither: whether it is
    stored is not known. ``state`` is for the hooks to keep something in from before to after.
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
        """Whether it is an ordinary message, a delayed one, or the half message of a transaction."""
        return message_type_of(self.properties)


class EndTransactionContext(msgspec.Struct, kw_only=True):
    """The end of a transaction, before the broker is told.

    ``message`` is the one that was sent, or, where a broker asked (``from_check``), the one it asked about.
    ``properties`` are all it has. ``commit_or_rollback`` is TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, or TRANSACTION_NOT
    where it is not known.
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
    """Messages that a handler gets together.

    Afterwards ``success`` says whether they are consumed, ``return_type`` how the handler came back, and ``error`` what
    it raised or returned instead; ``state`` is for the hooks to keep something in from before to after.
    """

    group: str
    messages: Sequence[ReceivedMessage[Any]]
    queue: MessageQueue
    success: bool = False
    return_type: ConsumeReturnType = ConsumeReturnType.FAILED
    error: BaseException | None = None
    state: dict[Any, Any] = {}


class FilterMessageContext(msgspec.Struct, kw_only=True):
    """Messages that were pulled; those that are removed from ``messages`` are not handed out, and count as consumed."""

    group: str
    messages: list[ReceivedMessage[Any]]
    queue: MessageQueue


# ------------------------------------------------------------ what hooks are


class ProducerHook:
    """Base of a producer's hooks: override what is wanted, the rest costs nothing."""

    def check_forbidden(self, context: SendMessageContext) -> None:
        """Refuse a send by raising: it fails with SendForbiddenError, and no other broker is tried."""

    def send_before(self, context: SendMessageContext) -> None:
        """Is called before each try of a send."""

    def send_after(self, context: SendMessageContext) -> None:
        """Is called after each try of a send."""

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Is called before a broker is told how a transaction ended."""


class ConsumerHook:
    """Base of a consumer's hooks: override what is wanted, the rest costs nothing."""

    def filter_messages(self, context: FilterMessageContext) -> None:
        """Remove what is not to be handed out. If it raises, all messages stay."""

    def consume_before(self, context: ConsumeMessageContext) -> None:
        """Is called before the handler gets messages."""

    def consume_after(self, context: ConsumeMessageContext) -> None:
        """Is called when the handler has come back."""


Context = TypeVar("Context")
_Calls = Sequence[Callable[[Context], None]]


def check_hooks(option: str, hooks: Sequence[object], base: type) -> None:
    """Raise IllegalOptionError for what is no hook: no method of the base is overridden, or one would have to be awaited."""
    if not isinstance(hooks, Sequence):
        raise IllegalOptionError(f"{option}={hooks!r}: accepted is a sequence of hooks")
    for hook in hooks:
        calls = [call for name in _names(base) for call in _overriding((hook,), base, name)]
        if not calls:
            raise IllegalOptionError(f"{option}: {hook!r} has none of the methods {', '.join(_names(base))}")
        if any(map(is_coroutine_function, calls)):
            raise IllegalOptionError(f"{option}: {hook!r} has a coroutine function, and hooks are not awaited")


def check_trace(trace: bool | str) -> None:
    """Raise IllegalOptionError for what is no value of the option ``trace``, IllegalTopicError for what names no topic."""
    if isinstance(trace, str):
        check_topic(trace)
    elif not isinstance(trace, bool):
        raise IllegalOptionError(f"trace={trace!r}: accepted is True, False or the name of a topic")


def _names(base: type) -> list[str]:
    return [name for name in vars(base) if not name.startswith("_")]


def _overriding(hooks: Sequence[object], base: type, name: str) -> list[Callable[[Any], None]]:
    """Return the methods of that name, but those that do nothing."""
    found = [getattr(hook, name, None) for hook in hooks]
    return [call for call in found if call is not None and getattr(call, "__func__", call) is not vars(base)[name]]


# ------------------------------------------------------------ calling them

_log = Logger()


def _call(calls: _Calls[Context], context: Context) -> None:
    for call in calls:
        try:
            call(context)
        except Exception:
            _log.failure("hook {hook} failed", hook=call, level=LogLevel.warn)


class ProducerHooks:
    """The hooks of one producer. ``sending`` and ``ending`` say whether there is one for sends, and for transactions."""

    def __init__(self, hooks: Sequence[ProducerHook]) -> None:
        self._checks = _overriding(hooks, ProducerHook, "check_forbidden")
        self._before = _overriding(hooks, ProducerHook, "send_before")
        self._after = _overriding(hooks, ProducerHook, "send_after")
        self._ends = _overriding(hooks, ProducerHook, "end_transaction")
        self.sending = bool(self._checks or self._before or self._after)
        self.ending = bool(self._ends)

    def send_before(self, context: SendMessageContext) -> None:
        """Call what comes before a try. Raises SendForbiddenError where a hook refuses it."""
        for check in self._checks:
            try:
                check(context)
            except Exception as error:
                raise SendForbiddenError(
                    f"a hook refuses the send to {context.queue.topic}: {error}", broker=context.queue.broker_name
                ) from error
        _call(self._before, context)

    def send_after(self, context: SendMessageContext) -> None:
        """Call what comes after a try."""
        _call(self._after, context)

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Call what comes before the end of a transaction is told."""
        _call(self._ends, context)


class ConsumerHooks:
    """The hooks of one consumer. ``consuming`` and ``filtering`` say whether there is one for each of these."""

    def __init__(self, hooks: Sequence[ConsumerHook]) -> None:
        self._filters = _overriding(hooks, ConsumerHook, "filter_messages")
        self._before = _overriding(hooks, ConsumerHook, "consume_before")
        self._after = _overriding(hooks, ConsumerHook, "consume_after")
        self.consuming = bool(self._before or self._after)
        self.filtering = bool(self._filters)

    def filter_messages(self, context: FilterMessageContext) -> None:
        """Have each hook remove what it will; undoes what one has done that raises."""
        for call in self._filters:
            before = list(context.messages)
            try:
                call(context)
            except Exception:
                _log.failure("hook {hook} failed, it filters nothing", hook=call, level=LogLevel.warn)
                context.messages = before

    def consume_before(self, context: ConsumeMessageContext) -> None:
        """Call what comes before the handler."""
        _call(self._before, context)

    def consume_after(self, context: ConsumeMessageContext) -> None:
        """Call what comes after the handler."""
        _call(self._after, context)
