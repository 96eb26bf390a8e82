"""A third-party hook around requests, guarded like its processors.

The hook's exceptions are checked, and a stop knows the hooks with running threads.
"""

from collections.abc import Mapping
from typing import Any

from zope.interface import implementer

from rocketd.remoting.interfaces import IFieldsHook, IRPCHook
from rocketd.remoting.serving.third_party.guarded_processor import hide
from rocketd.remoting.serving.third_party.running_calls import PluginCalls
from rocketd.remoting.wire.command import RemotingCommand


def guarded_hook(kind: str, name: str, hook: object, calls: PluginCalls) -> "PluginHook":
    """Return the guard around a hook. Raises TypeError if the object does not provide IRPCHook."""
    guard = PluginFieldsHook if getattr(hook, "before_fields", None) is not None else PluginHook
    return guard(kind, name, IRPCHook(hook), calls)


@implementer(IRPCHook)
class PluginHook:
    """Calls a hook. Any thread."""

    def __init__(self, kind: str, name: str, hook: Any, calls: PluginCalls) -> None:
        self._kind = kind
        self._name = name
        self._hook = hook
        self._calls = calls

    def before_request(self, address: str, request: RemotingCommand) -> None:
        """Show a request to the hook. Raises RequestError, PluginError or another exception of the hook."""
        call = self._calls.begin(self._kind, self._name, "before_request")
        try:
            self._hook.before_request(address, request)
        except BaseException as error:
            if (hidden := hide(error, request)) is not None:
                raise hidden from error
            raise
        finally:
            self._calls.end(call)

    def after_response(self, address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        """Show a response to the hook. Raises like ``before_request``."""
        call = self._calls.begin(self._kind, self._name, "after_response")
        try:
            self._hook.after_response(address, request, response)
        except BaseException as error:
            if (hidden := hide(error, request)) is not None:
                raise hidden from error
            raise
        finally:
            self._calls.end(call)


@implementer(IFieldsHook)
class PluginFieldsHook(PluginHook):
    """Calls a hook that works without the command. Any thread."""

    def before_fields(
        self, address: str, code: int, fields: Mapping[str, str], body: bytes | memoryview | None
    ) -> None:
        """Show the fields of a request to the hook. Exceptions of the hook pass through."""
        call = self._calls.begin(self._kind, self._name, "before_fields")
        try:
            self._hook.before_fields(address, code, fields, body)
        finally:
            self._calls.end(call)
