"""Finding the processors: the built-in ones and those of third parties come the same way.

A package adds processors by putting a module with ``IProcessorPlugin`` objects into its ``twisted/plugins/`` folder. What
is wrong with such a package costs that package, with one log line, and never the daemon.
"""

from typing import Any

from twisted.logger import Logger
from twisted.plugin import getPlugins

from rocketd.remoting.dispatch import Dispatcher
from rocketd.remoting.interfaces import IProcessorPlugin
from twisted import plugins as plugin_package

BUILT_IN_PREFIX = "rocketd."
"""How the names of rocketd's own plugins begin."""

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
    for code in free:
        dispatcher.register(code, processor, plugin.pool)
    return True
