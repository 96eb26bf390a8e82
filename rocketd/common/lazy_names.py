"""Names imported from other modules at their first use: unused ones cost nothing.

A fork waits, at most MAX_FORK_WAIT, until the imports of other threads have ended. Otherwise the child would inherit their
import locks, but not the threads that release them.
"""

import logging  # noqa: F401 - it must register its functions for forks first, see _begin_fork
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from importlib import import_module
from threading import Condition, get_ident
from typing import Final

MAX_FORK_WAIT: Final = 30.0
"""Maximum time in seconds for which a fork waits for imports. It may itself hold a lock that an import needs."""

_changed = Condition()
"""Held during a fork, but not during an import: two threads may import modules that need each other's."""

_importing: Counter[int] = Counter()
"""The number of imports under way, by thread."""


def lazy_names(
    module: str, names: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a module. ``names`` are the names to import from other modules, by module.

    Names to import from the module itself are its submodules. Type checkers need the imports as well, below
    ``if TYPE_CHECKING``. Any thread.
    """
    places = {name: place for place, imported in names.items() for name in imported}

    def get(name: str) -> object:
        place = places.get(name)
        if place is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        thread = get_ident()
        with _changed:
            _importing[thread] += 1
        try:
            value = import_module(f"{module}.{name}") if place == module else getattr(import_module(place), name)
        finally:
            with _changed:
                _importing[thread] -= 1
                if not _importing[thread]:
                    del _importing[thread]
                _changed.notify_all()
        setattr(sys.modules[module], name, value)  # Python finds it without this function from now on
        return value

    return get, lambda: sorted({*vars(sys.modules[module]), *places})


def _begin_fork() -> None:
    """Wait for the imports of other threads, and let none begin.

    Such functions run in reverse order of registration. So the lock of logging, which imports need, is not held yet.
    """
    _changed.acquire()
    _changed.wait_for(lambda: not _others(), MAX_FORK_WAIT)


def _begin_child() -> None:
    """Forget threads that the child does not have."""
    for thread in _others():
        del _importing[thread]
    _changed.release()


def _others() -> set[int]:
    return _importing.keys() - {get_ident()}


if hasattr(os, "register_at_fork"):  # only if processes can fork
    os.register_at_fork(before=_begin_fork, after_in_parent=_changed.release, after_in_child=_begin_child)
