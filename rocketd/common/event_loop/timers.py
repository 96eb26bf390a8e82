"""Twisted's timers, imported at their first use, because the import also loads the base of all reactors.

Write ``timers.deferLater(...)``, because an import of the name alone would import them at once.
"""

from typing import TYPE_CHECKING

from rocketd.common.lazy_names import lazy_names

if TYPE_CHECKING:
    from twisted.internet.task import deferLater

    from rocketd.common.event_loop.clocked_loop import ClockedLoop
else:
    __getattr__, __dir__ = lazy_names(
        __name__, {"rocketd.common.event_loop.clocked_loop": ("ClockedLoop",), "twisted.internet.task": ("deferLater",)}
    )

__all__ = ["ClockedLoop", "deferLater"]
