"""The reactor of a short command: Twisted's, without OpenSSL, whose import takes a fifth of such a command."""

import sys

from rocketd.common.event_loop.reactor import IReactor, global_reactor
from rocketd.common.imports import without_collection

_OPENSSL = "OpenSSL"


def light_reactor() -> IReactor:
    """Return the reactor of this process. The first call imports it.

    Twisted's reactors and endpoints do without OpenSSL if there is none, so it is hidden from them. A client with TLS does
    not need their part of TLS, and imports OpenSSL when it connects.
    """
    if _OPENSSL in sys.modules or "twisted.internet.reactor" in sys.modules:
        return global_reactor()
    sys.modules[_OPENSSL] = None  # type: ignore[assignment]  # makes its import an ImportError
    try:
        with without_collection():
            import twisted.internet.endpoints  # noqa: F401 - the client needs them next

            return global_reactor()
    finally:
        del sys.modules[_OPENSSL]
