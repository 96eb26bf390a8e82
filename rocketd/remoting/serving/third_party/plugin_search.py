"""The search for installed plugins. A module that cannot be imported is one line of the log, once in a process.

Twisted imports such a module again at each search, and logs its traceback each time.
"""

import os
import sys
from collections.abc import Callable
from typing import Any, Final

from twisted.logger import Logger
from twisted.python import log

from twisted import plugin
from twisted import plugins as plugin_package

_log = Logger()
_FOLDER: Final = os.path.join("twisted", "plugins", "")

_told: set[str] = set()


def find_plugins(interface: type) -> list[Any]:
    """Return the installed plugins of a kind. Main thread, because Twisted's log of the search is replaced meanwhile."""
    names = vars(plugin)
    before, names["log"] = names["log"], _SearchLog
    try:
        return list(plugin.getPlugins(interface, plugin_package))
    finally:
        names["log"] = before


class _SearchLog:
    """The functions of Twisted's log that its search uses."""

    msg: Callable[..., None] = staticmethod(log.msg)

    @staticmethod
    def err(*_: object) -> None:
        """Log the error that is being handled, unless it was logged before."""
        error = sys.exc_info()[1]
        line = f"plugin module {_module_of(error)} cannot be imported: {type(error).__name__}: {error}"
        if line not in _told:
            _told.add(line)
            _log.error("{line}; its plugins are left out", line=line)


def _module_of(error: BaseException | None) -> str:
    """Return the path of the module in a folder of plugins, for an error of its import."""
    found = getattr(error, "filename", None) or ""  # of a SyntaxError
    traceback = None if error is None else error.__traceback__
    while traceback is not None and _FOLDER not in found:
        found = traceback.tb_frame.f_code.co_filename
        traceback = traceback.tb_next
    return found if _FOLDER in found else "in a folder twisted/plugins"
