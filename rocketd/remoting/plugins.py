"""Finding the processors: the built-in ones and those of third parties come the same way.

A package adds processors by putting a module with ``IProcessorPlugin`` objects into its ``twisted/plugins/`` folder.
"""

from typing import Any

from twisted.logger import Logger
from twisted.plugin import getPlugins

from rocketd.remoting.dispatch import Dispatcher
from rocketd.remoting.interfaces import IProcessorPlugin
from twisted import plugins as plugin_package

_log = Logger()


def load_processors(dispatcher: Dispatcher, daemon: str, service: Any) -> list[str]:
    """Register every installed processor of a daemon ('broker' or 'namesrv'); return their names.

    Third-party plugins come after rocketd's own; one whose code is taken already is refused with a log line that names
    both the plugin and the code.
    """
    found = [plugin for plugin in getPlugins(IProcessorPlugin, plugin_package) if plugin.daemon == daemon]
    found.sort(key=lambda plugin: (not plugin.name.startswith("rocketd."), plugin.name))
    names = []
    for plugin in found:
        processor = plugin.create(service)
        for code in plugin.codes:
            try:
                dispatcher.register(code, processor, plugin.pool)
            except ValueError as error:
                _log.error("processor plugin {name}: {error}", name=plugin.name, error=error)
        names.append(plugin.name)
    return names
