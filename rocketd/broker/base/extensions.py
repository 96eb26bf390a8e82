"""Extensions of a broker by third parties, besides processors and message hooks.

A failure affects only the package that caused it, and is logged in one line. Only access validators and stores that
cannot be made prevent the broker from starting.

Counterpart: the ServiceLoader look-ups of `BrokerController`, and `messageStorePlugIn` (Apache).
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from twisted.logger import Logger
from zope.interface import implementer
from zope.interface.exceptions import BrokenMethodImplementation, DoesNotImplement, Invalid
from zope.interface.verify import verifyObject

from rocketd.broker.base.interfaces import (
    IAccessValidator,
    IAccessValidatorPlugin,
    IArrivalListener,
    IArrivalListenerPlugin,
    IBroker,
    ILogDispatcher,
    ILogDispatcherPlugin,
    IMessageStorePlugin,
    ITransactionListener,
    ITransactionListenerPlugin,
)
from rocketd.common.logs.throttle import ThrottledLog
from rocketd.common.settings.declaration import ConfigError
from rocketd.remoting.interfaces import IRPCHook
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.serving.plugins import load_extensions
from rocketd.remoting.serving.third_party.guarded_hook import PluginHook, guarded_hook
from rocketd.remoting.serving.third_party.plugin_search import find_plugins
from rocketd.remoting.serving.third_party.running_calls import (
    ACCESS_VALIDATOR,
    ARRIVAL_LISTENER,
    LOG_DISPATCHER,
    TRANSACTION_LISTENER,
)
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import Arrival, DispatchRequest
from rocketd.store.format.record import MessageExt
from rocketd.store.interfaces import IMessageStore


@implementer(IRPCHook)
class ValidatorHook:
    """Passes each request to an access validator before it is handled. Any thread."""

    def __init__(self, validator: object) -> None:
        self._validator = IAccessValidator(validator)

    def before_request(self, address: str, request: RemotingCommand) -> None:
        """Let the request pass, or raise."""
        self._validator.validate(address, request)

    def after_response(self, address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        """Do nothing."""


def accounts_are_replaced() -> bool:
    """Whether an installed access validator replaces the accounts."""
    return any(getattr(plugin, "replaces_accounts", False) for plugin in _installed(IAccessValidatorPlugin))


class ExtensionOwner(Protocol):
    """The broker, as its extensions need it. Plugins get the same object, an IBroker."""

    dispatcher: Dispatcher


class Extensions:
    """The extensions of one broker. Unless stated otherwise, methods belong to the start, in this order."""

    def __init__(self, broker: ExtensionOwner) -> None:
        self._broker = broker
        self._log = ThrottledLog(Logger())
        self._transaction: tuple[tuple[str, ITransactionListener], ...] = ()
        self.names: list[str] = []
        """The names of the loaded extensions, for the start line."""

    def access_validators(self) -> tuple[list[PluginHook], bool]:
        """Return the hooks of the installed validators, and whether one of them replaces the accounts.

        Raises ConfigError if one cannot be made: a broker must not run open because its guard is broken.
        """
        hooks, replaced = [], False
        for plugin in _installed(IAccessValidatorPlugin):
            try:
                hook = ValidatorHook(plugin.create_access_validator(self._broker))
                calls = self._broker.dispatcher.plugin_calls
                hooks.append(guarded_hook(ACCESS_VALIDATOR, str(plugin.name), hook, calls))
                replaced = replaced or bool(getattr(plugin, "replaces_accounts", False))
            except Exception as error:
                raise ConfigError(
                    f"aclEnable = true: the access validator {plugin.name} cannot be made: {error!r}; repair or "
                    "uninstall it"
                ) from error
            self.names.append(str(plugin.name))
        return hooks, replaced

    def wrap_store(self, store: IMessageStore, wanted: str) -> IMessageStore:
        """Wrap the store in the plugins named by the setting, the first one outermost. Raises ConfigError."""
        found = {str(plugin.name): plugin for plugin in _installed(IMessageStorePlugin)}
        for name in reversed([part.strip() for part in wanted.split(",") if part.strip()]):
            if name not in found:
                there = ", ".join(sorted(found)) or "none"
                raise ConfigError(f"messageStorePlugIn = {wanted}: {name} is not installed; installed are: {there}")
            try:
                store = found[name].wrap_store(self._broker, store)
                faults = _faults(store)
            except Exception as error:
                raise ConfigError(f"messageStorePlugIn = {wanted}: {name} cannot wrap the store: {error!r}") from error
            if faults:
                raise ConfigError(
                    f"messageStorePlugIn = {wanted}: the store of {name} is not an IMessageStore: {'; '.join(faults)}. "
                    "Derive it from rocketd.store.interfaces.StoreWrapper, or add the missing attributes, see "
                    "rocketd/store/interfaces.py"
                )
            self.names.append(name)
        return store

    def load(self, store: IMessageStore) -> None:
        """Add the dispatchers and listeners to a store that has not started."""
        broker = cast(IBroker, self._broker)

        def dispatcher(plugin: ILogDispatcherPlugin) -> None:
            extension = ILogDispatcher(plugin.create_log_dispatcher(broker))
            store.add_dispatcher(self._guarded(LOG_DISPATCHER, str(plugin.name), extension, "dispatch"))

        def arrivals(plugin: IArrivalListenerPlugin) -> None:
            extension = IArrivalListener(plugin.create_arrival_listener(broker))
            store.add_arrival_listener(self._guarded(ARRIVAL_LISTENER, str(plugin.name), extension, "arrived"))

        def transactions(plugin: ITransactionListenerPlugin) -> None:
            extension = ITransactionListener(plugin.create_transaction_listener(broker))
            self._transaction = (*self._transaction, (str(plugin.name), extension))

        self.names += load_extensions(ILogDispatcherPlugin, None, dispatcher)
        self.names += load_extensions(IArrivalListenerPlugin, None, arrivals)
        self.names += load_extensions(ITransactionListenerPlugin, None, transactions)

    def transaction_checked(self, half: MessageExt) -> None:
        """Report that a producer is asked about a half message. Storage thread."""
        for name, listener in self._transaction:
            self._guarded(TRANSACTION_LISTENER, name, listener, "checked")(half)

    def transaction_given_up(self, half: MessageExt) -> None:
        """Report that a half message was checked too often and is given up. Storage thread."""
        for name, listener in self._transaction:
            self._guarded(TRANSACTION_LISTENER, name, listener, "given_up")(half)

    def _guarded(self, kind: str, name: str, extension: object, method: str) -> Callable[[Any], None]:
        calls = self._broker.dispatcher.plugin_calls
        function = getattr(extension, method)

        def guarded(argument: Sequence[DispatchRequest] | Sequence[Arrival] | MessageExt) -> None:
            call = calls.begin(kind, name, method)
            try:
                function(argument)
            except BaseException as error:  # an extension that calls sys.exit must not end the thread
                self._log.error(f"extension {name}", "extension {name} failed: {error}", name=name, error=repr(error))
            finally:
                calls.end(call)

        return guarded


def _faults(store: object) -> list[str]:
    """Return the names a store lacks of IMessageStore, and the methods with different parameters."""
    try:
        verifyObject(IMessageStore, store)
    except Invalid as error:  # one fault, or several combined
        return [_fault(each) for each in getattr(error, "exceptions", (error,))]
    return []


def _fault(error: Exception) -> str:
    if isinstance(error, DoesNotImplement):
        return "its class does not declare the interface"
    if isinstance(error, BrokenMethodImplementation):
        return f"{getattr(error.method, '__name__', error.method)}: {error.mess}"
    name = getattr(error, "name", error)
    return f"{getattr(name, '__name__', name)} is missing"


def _installed(interface: Any) -> list[Any]:
    return sorted(find_plugins(interface), key=lambda plugin: str(plugin.name))
