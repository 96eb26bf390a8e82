"""Finds processors: built-in and third-party ones are loaded the same way.

A package adds processors by a module with ``IProcessorPlugin`` objects in its ``twisted/plugins/`` folder. A broken
package is left out with one log line. It never stops the daemon.
"""

from collections.abc import Callable, Iterable
from typing import Any

from twisted.logger import Logger

from rocketd.remoting.interfaces import (
    IConnectionListenerPlugin,
    IProcessorPlugin,
    IRemotingServer,
    IRPCHookPlugin,
)
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.serving.third_party.guarded_hook import guarded_hook
from rocketd.remoting.serving.third_party.guarded_processor import PluginJobProcessor, PluginProcessor, takes_jobs
from rocketd.remoting.serving.third_party.plugin_search import find_plugins
from rocketd.remoting.serving.third_party.running_calls import RPC_HOOK

BUILT_IN_PREFIX = "rocketd."
"""Prefix of the names of rocketd's own plugins."""

MAX_THREADS = 64
"""Greatest number of threads of a plugin's pool."""

_log = Logger()


def of_plugins(names: Iterable[str]) -> str:
    """Return the end of a start line with the names of other packages' plugins; empty without one."""
    others = [name for name in dict.fromkeys(names) if not name.startswith(BUILT_IN_PREFIX)]
    return f"; processors: {', '.join(others)}" if others else ""


def load_processors(dispatcher: Dispatcher, daemon: str, service: object) -> list[str]:
    """Register every installed processor of a daemon ('broker' or 'namesrv'). Return the names of those that got a
    code.

    Third-party plugins come after rocketd's own. A code already taken is refused to them, with a log line naming plugin
    and code. A third-party plugin that fails is logged and left out. Exceptions of a built-in one pass through.
    """
    found = []
    for plugin in find_plugins(IProcessorPlugin):
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


def load_extensions(interface: type, daemon: str | None, add: Callable[[Any], None]) -> list[str]:
    """Pass the installed plugins of a kind to ``add``, by name. Return the names of those accepted.

    ``daemon`` leaves out those of the other server. A plugin that fails is logged and left out.
    """
    names = []
    plugin: Any
    for plugin in sorted(find_plugins(interface), key=lambda found: str(getattr(found, "name", ""))):
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


def load_server_extensions(server: IRemotingServer, daemon: str, service: object) -> list[str]:
    """Add the installed RPC hooks and connection listeners to a server before its start. Return their names."""

    def add_hook(plugin: IRPCHookPlugin) -> None:
        hook = plugin.create_rpc_hook(service)
        server.register_rpc_hook(guarded_hook(RPC_HOOK, str(plugin.name), hook, server.dispatcher.plugin_calls))

    hooks = load_extensions(IRPCHookPlugin, daemon, add_hook)
    listeners = load_extensions(
        IConnectionListenerPlugin,
        daemon,
        lambda plugin: server.events.add(plugin.create_connection_listener(service), str(plugin.name)),
    )
    return hooks + listeners


def _register(dispatcher: Dispatcher, name: str, plugin: IProcessorPlugin, service: object) -> bool:
    """Register a plugin for its free codes. Return False if none is free."""
    codes = tuple(dict.fromkeys(plugin.codes))
    free = [code for code in codes if not dispatcher.handles(code)]
    for code in codes:
        if code not in free:
            _log.error(
                "processor plugin {name}: request code {code} already has a processor; this plugin does not get it",
                name=name,
                code=code,
            )
    if not free:
        return False
    processor = plugin.create(service)
    if not name.startswith(BUILT_IN_PREFIX):
        calls = dispatcher.plugin_calls
        if takes_jobs(processor):
            processor = PluginJobProcessor(name, processor, calls)
        else:
            processor = PluginProcessor(name, processor, dispatcher.call_from_thread, calls)
    _make_pool(dispatcher, name, plugin)
    for code in free:
        dispatcher.register(int(code), processor, plugin.pool)
    return True


def _make_pool(dispatcher: Dispatcher, name: str, plugin: IProcessorPlugin) -> None:
    """Create the plugin's pool with the number of threads it wants. Raises ValueError for a wrong number."""
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
            "processor plugin {name} asks for {threads} threads, but its pool {pool} already has {there}; name another pool",
            name=name,
            threads=threads,
            pool=plugin.pool,
            there=there.threads,
        )
