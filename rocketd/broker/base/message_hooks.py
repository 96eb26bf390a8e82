"""Hooks around sends and consumption, for third parties: tracing, accounting.

A hook may change the properties of a message before it is stored. An exception of a hook has no effect, but its first
one is logged. Without hooks the hot paths only test for them.

Counterpart: `SendMessageHook`, `ConsumeMessageHook` and their contexts (Apache).
"""

from twisted.logger import Logger

from rocketd.broker.base.hook_contexts import ConsumeMessageContext, SendMessageContext
from rocketd.broker.base.interfaces import IConsumeMessageHook, IMessageHookPlugin, ISendMessageHook
from rocketd.remoting.serving.plugins import load_extensions
from rocketd.remoting.serving.third_party.running_calls import MESSAGE_HOOK, PluginCalls


class MessageHooks:
    """The hooks of a broker. ``add`` belongs to the start, the rest to any thread."""

    _log = Logger()

    def __init__(self, calls: PluginCalls | None = None) -> None:
        """``calls`` records which thread is in a hook."""
        self._calls = calls or PluginCalls()
        self._names: dict[int, str] = {}
        self.send: tuple[object, ...] = ()
        self.consume: tuple[object, ...] = ()
        self._failed: set[tuple[type, str]] = set()

    def add(self, hook: object, name: str = "") -> None:
        """Add a hook; the log of a stop uses ``name``. Raises TypeError if it provides neither interface."""
        self._names[id(hook)] = name or type(hook).__qualname__
        if ISendMessageHook.providedBy(hook):
            self.send = (*self.send, hook)
        if IConsumeMessageHook.providedBy(hook):
            self.consume = (*self.consume, hook)
        elif not ISendMessageHook.providedBy(hook):
            raise TypeError(f"{hook!r} provides neither ISendMessageHook nor IConsumeMessageHook")

    def load(self, broker: object) -> list[str]:
        """Add the hooks of all installed plugins; return their names. A failing one is logged and left out."""
        return load_extensions(
            IMessageHookPlugin, None, lambda plugin: self.add(plugin.create_hook(broker), str(plugin.name))
        )

    def before_send(self, context: SendMessageContext) -> None:
        """Call all hooks before a send."""
        for hook in self.send:
            self._call(hook, "send_message_before", context)

    def after_send(self, context: SendMessageContext) -> None:
        """Call all hooks after a send."""
        for hook in self.send:
            self._call(hook, "send_message_after", context)

    def before_consume(self, context: ConsumeMessageContext) -> None:
        """Call all hooks before the answer to a pull."""
        for hook in self.consume:
            self._call(hook, "consume_message_before", context)

    def after_consume(self, context: ConsumeMessageContext) -> None:
        """Call all hooks after a message was sent back."""
        for hook in self.consume:
            self._call(hook, "consume_message_after", context)

    def _call(self, hook: object, method: str, context: SendMessageContext | ConsumeMessageContext) -> None:
        call = self._calls.begin(MESSAGE_HOOK, self._names[id(hook)], method)
        try:
            getattr(hook, method)(context)
        except BaseException:  # a hook that calls sys.exit must not end the thread
            place = (type(hook), method)
            if place not in self._failed:  # it may fail for every message: log it once
                self._failed.add(place)
                self._log.failure(
                    "message hook {hook} failed; its further failures are not logged",
                    hook=f"{self._names[id(hook)]}.{method}",
                )
        finally:
            self._calls.end(call)
