"""Hooks around sends and consumption, for packages of third parties: tracing, accounting.

Answers to Apache's SendMessageHook, ConsumeMessageHook and their contexts. As there, a hook may change the properties of a
message before it is stored, and what a hook raises changes nothing; here its first failure is logged. Without any hook the
hot paths do no more than look.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twisted.logger import Logger

from rocketd.broker.interfaces import IConsumeMessageHook, IMessageHookPlugin, ISendMessageHook
from rocketd.remoting.plugins import load_extensions


@dataclass(slots=True)
class SendMessageContext:
    """One send, which may be a batch. What the second part says is known after it only.

    ``properties`` is Apache's property string and may be replaced before the message is stored. ``born_host`` is the
    sender's address ``host:port``, ``born_timestamp`` its time in Unix milliseconds. ``msg_id`` is that of the answer,
    ``queue_offset`` that of the first message, -1 when nothing was stored. ``code`` and ``remark`` are those of the answer,
    also where a one-way request gets none. ``trace`` is for the hook's own use.
    """

    producer_group: str
    topic: str
    queue_id: int
    properties: str
    body_length: int
    born_host: str
    born_timestamp: int
    broker_address: str
    is_batch: bool
    trace: Any = None

    code: int = -1
    remark: str | None = None
    msg_id: str = ""
    queue_offset: int = -1
    stored_size: int = 0


@dataclass(slots=True)
class ConsumeMessageContext:
    """One answer to a pull, or a message that was given back.

    ``client_host`` is the consumer's address ``host:port``; ``size`` counts the bytes of the records. ``code`` is that of
    the answer.
    """

    consumer_group: str
    topic: str
    queue_id: int
    client_host: str
    code: int
    messages: int = 0
    size: int = 0


class MessageHooks:
    """The hooks of a broker. ``add`` belongs to the start, the rest to any thread."""

    _log = Logger()

    def __init__(self) -> None:
        self.send: tuple[Any, ...] = ()
        self.consume: tuple[Any, ...] = ()
        self._failed: set[tuple[Any, str]] = set()

    def add(self, hook: Any) -> None:
        """Have a hook called. Raises TypeError when it is none."""
        if ISendMessageHook.providedBy(hook):
            self.send = (*self.send, hook)
        if IConsumeMessageHook.providedBy(hook):
            self.consume = (*self.consume, hook)
        elif not ISendMessageHook.providedBy(hook):
            raise TypeError(f"{hook!r} provides neither ISendMessageHook nor IConsumeMessageHook")

    def load(self, broker: Any) -> list[str]:
        """Add the hooks of all installed plugins; returns their names. One that fails is logged and left out."""
        return load_extensions(IMessageHookPlugin, None, lambda plugin: self.add(plugin.create_hook(broker)))

    def before_send(self, context: SendMessageContext) -> None:
        """Call all hooks before a send."""
        for hook in self.send:
            self._call(hook.send_message_before, context)

    def after_send(self, context: SendMessageContext) -> None:
        """Call all hooks after a send."""
        for hook in self.send:
            self._call(hook.send_message_after, context)

    def before_consume(self, context: ConsumeMessageContext) -> None:
        """Call all hooks before the answer to a pull."""
        for hook in self.consume:
            self._call(hook.consume_message_before, context)

    def after_consume(self, context: ConsumeMessageContext) -> None:
        """Call all hooks after a message was given back."""
        for hook in self.consume:
            self._call(hook.consume_message_after, context)

    def _call(self, method: Callable[[Any], None], context: Any) -> None:
        try:
            method(context)
        except Exception:
            place = (type(method.__self__), method.__name__)  # type: ignore[attr-defined]
            if place not in self._failed:  # it may fail for every message: once is enough
                self._failed.add(place)
                self._log.failure("message hook {hook} failed; this is said once", hook=method)
