"""What packages of third parties add to a broker besides processors and message hooks.

Counterpart: the ServiceLoader look-ups of `BrokerController` and `messageStorePlugIn` (Apache). Whatever a package breaks
costs that package, with one log line; only access validators and stores that cannot be made keep the broker from starting.
"""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.logger import Logger
from twisted.plugin import getPlugins
from zope.interface import implementer

from rocketd.broker.interfaces import (
    IAccessValidator,
    IAccessValidatorPlugin,
    IArrivalListener,
    IArrivalListenerPlugin,
    ILogDispatcher,
    ILogDispatcherPlugin,
    IMessageStorePlugin,
    ITransactionListener,
    ITransactionListenerPlugin,
)
from rocketd.common.config import ConfigError
from rocketd.common.log_throttle import ThrottledLog
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.interfaces import IRPCHook
from rocketd.remoting.plugins import load_extensions
from rocketd.store.interfaces import IMessageStore
from rocketd.store.message import Arrival, DispatchRequest
from rocketd.store.message_store import MessageStore
from rocketd.store.record import MessageExt
from twisted import plugins as plugin_package


@implementer(IRPCHook)
class ValidatorHook:
    """Has an access validator look at each request before it is handled. Any thread."""

    def __init__(self, validator: Any) -> None:
        self._validator = IAccessValidator(validator)

    def before_request(self, address: str, request: RemotingCommand) -> None:
        """Let the request pass or raise."""
        self._validator.validate(address, request)

    def after_response(self, address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        """Do nothing."""


class Extensions:
    """The extensions of one broker. All methods but those named otherwise belong to the start, in this order."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self._log = ThrottledLog(Logger())
        self._transaction: tuple[Any, ...] = ()
        self.names: list[str] = []
        """Those of the extensions that were loaded, for the start line."""

    def access_validators(self) -> tuple[list[ValidatorHook], bool]:
        """Make the hooks of the installed validators, and say whether one of them takes the place of the accounts.

        Raises ConfigError if one cannot be made: a broker does not run open because its guard is broken.
        """
        hooks, replaced = [], False
        for plugin in _installed(IAccessValidatorPlugin):
            try:
                hooks.append(ValidatorHook(plugin.create_access_validator(self._broker)))
                replaced = replaced or bool(getattr(plugin, "replaces_accounts", False))
            except Exception as error:
                raise ConfigError(
                    f"aclEnable = true: the access validator {plugin.name} cannot be made: {error!r}; mend or uninstall it"
                ) from error
            self.names.append(str(plugin.name))
        return hooks, replaced

    def wrap_store(self, store: MessageStore, wanted: str) -> MessageStore:
        """Wrap the store in the plugins that the setting names, the first one outermost. Raises ConfigError."""
        found = {str(plugin.name): plugin for plugin in _installed(IMessageStorePlugin)}
        for name in reversed([part.strip() for part in wanted.split(",") if part.strip()]):
            if name not in found:
                there = ", ".join(sorted(found)) or "none"
                raise ConfigError(f"messageStorePlugIn = {wanted}: {name} is not installed; there are: {there}")
            try:
                store = found[name].wrap_store(self._broker, store)
                IMessageStore(store)
            except Exception as error:
                raise ConfigError(f"messageStorePlugIn = {wanted}: {name} cannot wrap the store: {error!r}") from error
            self.names.append(name)
        return store

    def load(self, store: MessageStore) -> None:
        """Add the dispatchers and listeners to a store that has not started."""
        broker = self._broker

        def dispatcher(plugin: Any) -> None:
            extension = ILogDispatcher(plugin.create_log_dispatcher(broker))
            store.add_dispatcher(self._guarded(str(plugin.name), extension.dispatch))

        def arrivals(plugin: Any) -> None:
            extension = IArrivalListener(plugin.create_arrival_listener(broker))
            store.add_arrival_listener(self._guarded(str(plugin.name), extension.arrived))

        def transactions(plugin: Any) -> None:
            extension = ITransactionListener(plugin.create_transaction_listener(broker))
            self._transaction = (*self._transaction, extension)

        self.names += load_extensions(ILogDispatcherPlugin, None, dispatcher)
        self.names += load_extensions(IArrivalListenerPlugin, None, arrivals)
        self.names += load_extensions(ITransactionListenerPlugin, None, transactions)

    def transaction_checked(self, half: MessageExt) -> None:
        """A producer is asked about a half message. Storage thread."""
        for listener in self._transaction:
            self._guarded(repr(listener), listener.checked)(half)

    def transaction_given_up(self, half: MessageExt) -> None:
        """A half message was checked too often and is given up. Storage thread."""
        for listener in self._transaction:
            self._guarded(repr(listener), listener.given_up)(half)

    def _guarded(self, name: str, function: Callable[[Any], None]) -> Callable[[Any], None]:
        def call(argument: Sequence[DispatchRequest] | Sequence[Arrival] | MessageExt) -> None:
            try:
                function(argument)
            except Exception as error:
                self._log.error(f"extension {name}", "extension {name} failed: {error}", name=name, error=repr(error))

        return call


def _installed(interface: Any) -> list[Any]:
    return sorted(getPlugins(interface, plugin_package), key=lambda plugin: str(plugin.name))
