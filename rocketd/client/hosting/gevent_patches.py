"""Whether gevent has made greenlets of all that clients wait by, or of none of it: between the two they would hang.

Answers to nothing of Apache's. Where ``gevent.monkey.patch_all()`` came before this package, the blocking clients' thread
is a greenlet as all others are, and a call lets the others run. Where it came after, clients would have locks, queues and a
poller that gevent knows nothing of.
"""

import sys

from rocketd.client.errors import UsageError

_NEEDED = ("threading", "queue", "select", "socket", "time")


def _patched() -> list[str]:
    """Which of the modules that clients wait by gevent has patched."""
    monkey = sys.modules.get("gevent.monkey")
    return [] if monkey is None else [name for name in _NEEDED if monkey.is_module_patched(name)]


_patched_before = bool(_patched())


def check_patches() -> None:
    """Raise UsageError where gevent has patched a part only, or after clients were imported."""
    patched = _patched()
    if not patched:
        return
    missing = [name for name in _NEEDED if name not in patched]
    if missing:
        raise UsageError(
            f"gevent has patched {', '.join(patched)}, but not {', '.join(missing)}: a client would hang. Patch all of it"
            " by gevent.monkey.patch_all(), or nothing"
        )
    # Where gevent has patched select, the module of Twisted's that polls by epoll cannot be imported any more.
    if not _patched_before or "twisted.internet.epollreactor" in sys.modules:
        raise UsageError(
            "gevent has patched this process after rocketd.client or Twisted was imported, so a client would hang: call"
            " gevent.monkey.patch_all() first of all, with gunicorn's --preload where the application begins"
        )
