"""Checks that gevent has patched either all modules for waiting or none of them. Otherwise clients would hang.

If ``gevent.monkey.patch_all()`` came before this package, the thread of blocking clients is a greenlet like all others, and
a call lets the others run. If it came later, clients would have locks, queues and a poller unknown to gevent.
"""

import sys

_NEEDED = ("threading", "queue", "select", "socket", "time")


def _patched() -> list[str]:
    """Return the modules for waiting that gevent has patched."""
    monkey = sys.modules.get("gevent.monkey")
    return [] if monkey is None else [name for name in _NEEDED if monkey.is_module_patched(name)]


_patched_before = bool(_patched())


def is_patched() -> bool:
    """Return whether gevent has patched a module for waiting."""
    return bool(_patched())


def check_patches() -> None:
    """Raise UsageError if gevent has patched only a part, or after clients were imported."""
    from rocketd.client.errors import UsageError  # not at the top: rocketd.client imports this module first of all

    patched = _patched()
    if not patched:
        return
    missing = [name for name in _NEEDED if name not in patched]
    if missing:
        raise UsageError(
            f"gevent has patched {', '.join(patched)}, but not {', '.join(missing)}: a client would hang. Patch all of it"
            " by gevent.monkey.patch_all(), or nothing"
        )
    # After gevent has patched select, Twisted's epollreactor can no longer be imported.
    if not _patched_before or "twisted.internet.epollreactor" in sys.modules:
        raise UsageError(
            "gevent has patched this process after rocketd.client or Twisted was imported, so a client would hang: call"
            " gevent.monkey.patch_all() first of all, with gunicorn's --preload where the application begins"
        )
