"""Finding the processors: the built-in ones and those of third parties come the same way.

A package adds processors by putting a module with ``IProcessorPlugin`` objects into its ``twisted/plugins/`` folder. What
is wrong with such a package costs that package, with one log line, and never the daemon.
"""

from collections.abc import Callable
from typing import Any

from twisted.logger import Logger
from twisted.plugin import getPlugins

from rocketd.remoting.dispatch import Dispatcher
from rocketd.remoting.interfaces import IConnectionListenerPlugin, IProcessorPlugin, IRPCHook, IRPCHookPlugin
from rocketd.remoting.plugin_processor import PluginProcessor
from rocketd.remoting.server import RemotingServer
from twisted import plugins as plugin_package

BUILT_IN_PREFIX = "rocketd."
"""How the names of rocketd's own plugins begin."""

MAX_THREADS = 64
"""Threads that one pool of a plugin may have."""

_log = Logger()


def load_processors(dispatcher: Dispatcher, daemon: str, service: Any) -> list[str]:
    """Register every installed processor of a daemon ('broker' or 'namesrv'); return the names of those that got a code.

    Third-party plugins come after rocketd's own; a code that is taken already is refused to them with a log line that
    names both the plugin and the code. A third-party plugin that fails is logged and left out; a built-in one that fails
    raises what it raises.
    """
    found = []
    for plugin in getPlugins(IProcessorPlugin, plugin_package):
        try:
            if plugin.daemon == daemon:
                found.append((not str(plugin.name).startswith(BUILT_IN_PREFIX), str(plugin.name), plugin))
        except Exception:
            _log.failure("processor plugin {plugin} has no daemon or name; it is left out", plugin=plugin)
    found.sort(key=lambda entry: entry[:2])
    names = []
    for third_party, name, plugin in found:
        try:
            if _register(dispatcher, name, plugin, service):
                names.append(name)
        except Exception:
            if not third_party:
                raise
            _log.failure("processor plugin {name} cannot be loaded; it is left out", name=name)
    return names


def load_extensions(interface: Any, daemon: str | None, add: Callable[[Any], None]) -> list[str]:
    """Hand the installed plugins of a kind to ``add``, by name; return the names of those that it took.

    ``daemon`` leaves out those of the other server. A plugin that fails is logged and left out.
    """
    names = []
    for plugin in sorted(getPlugins(interface, plugin_package), key=lambda found: str(getattr(found, "name", ""))):
        name = str(getattr(plugin, "name", plugin))
        try:
            if daemon is not None and plugin.daemon != daemon:
                continue
            add(plugin)
        except Exception:
            _log.failure("{kind} {name} cannot be loaded; it is left out", kind=interface.__name__, name=name)
        else:
            names.append(name)
    return names


def load_server_extensions(server: RemotingServer, daemon: str, service: Any) -> list[str]:
    """Add the installed RPC hooks and connection listeners to a server that has not started; return their names."""
    dispatcher = server.dispatcher

    def add_hook(plugin: Any) -> None:
        dispatcher.hooks = (*dispatcher.hooks, IRPCHook(plugin.create_rpc_hook(service)))

    hooks = load_extensions(IRPCHookPlugin, daemon, add_hook)
    listeners = load_extensions(
        IConnectionListenerPlugin,
        daemon,
        lambda plugin: server.events.add(plugin.create_connection_listener(service)),
    )
    return hooks + listeners


def _register(dispatcher: Dispatcher, name: str, plugin: Any, service: Any) -> bool:
    """Register a plugin for those of its codes that are free; False when none is."""
    codes = tuple(dict.fromkeys(plugin.codes))
    free = [code for code in codes if not dispatcher.handles(code)]
    for code in codes:
        if code not in free:
            _log.error(
                "processor plugin {name}: request code {code} has a processor already; this plugin does not get it",
                name=name,
                code=code,
            )
    if not free:
        return False
    processor = plugin.create(service)
    if not name.startswith(BUILT_IN_PREFIX) and not hasattr(processor, "process_jobs"):
        processor = PluginProcessor(name, processor, dispatcher.call_from_thread, dispatcher.clock)
    _make_pool(dispatcher, name, plugin)
    for code in free:
        dispatcher.register(code, processor, plugin.pool)
    return True


def _make_pool(dispatcher: Dispatcher, name: str, plugin: Any) -> None:
    """Make the plugin's pool with as many threads as it asks for. Raises ValueError for a wrong number of threads."""
    threads = getattr(plugin, "threads", 1)
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS:
        raise ValueError(
            f"processor plugin {name}: threads is {threads!r}; accepted is a number from 1 to {MAX_THREADS}"
        )
    there = dispatcher.pools.get(plugin.pool)
    if there is None:
        dispatcher.add_pool(plugin.pool, threads=threads)
    elif threads not in (1, there.threads):
        _log.warn(
            "processor plugin {name} asks for {threads} threads, and its pool {pool} has {there} already; name another pool",
            name=name,
            threads=threads,
            pool=plugin.pool,
            there=there.threads,
        )
