"""Interfaces of plugins: descriptors of processors, hooks and listeners. Plugins import them from ``interfaces``."""

from collections.abc import Sequence
from typing import Any

from twisted.plugin import IPlugin
from zope.interface import Attribute

from rocketd.remoting.interfaces import IConnectionListener, IJobProcessor, IRequestProcessor, IRPCHook


class IProcessorPlugin(IPlugin):
    """A plugin descriptor found by ``twisted.plugin``: cheap to import, it creates the processor on request."""

    name: str = Attribute("Unique name, for logs.")
    daemon: str = Attribute("'broker' or 'namesrv': the daemon it belongs to.")
    codes: Sequence[int] = Attribute("The request codes it handles: a tuple of int.")
    pool: str = Attribute(
        "Name of the thread pool it runs in. An unknown name makes a pool, with as many threads as the attribute "
        "``threads`` says: 1 to 64, and 1 if there is no such attribute."
    )

    def create(daemon: Any) -> IRequestProcessor | IJobProcessor:
        """Make the processor. ``daemon`` is the IBroker or INameServer it will serve in."""


class IRPCHookPlugin(IPlugin):
    """A plugin descriptor of a hook around all requests of a server, found by ``twisted.plugin``."""

    name: str = Attribute("Unique name, for logs.")
    daemon: str = Attribute("'broker' or 'namesrv': the daemon it belongs to.")

    def create_rpc_hook(daemon: Any) -> IRPCHook:
        """Return the hook, which may be an IFieldsHook. ``daemon`` is the IBroker or INameServer."""


class IConnectionListenerPlugin(IPlugin):
    """A plugin descriptor of a connection listener, found by ``twisted.plugin``."""

    name: str = Attribute("Unique name, for logs.")
    daemon: str = Attribute("'broker' or 'namesrv': the daemon it belongs to.")

    def create_connection_listener(daemon: Any) -> IConnectionListener:
        """Return the listener. ``daemon`` is the IBroker or INameServer."""
