"""Takes new certificates from their files while the server runs.

Answers to Apache's FileWatchService and to what its two daemons do with it: half a second after the files were changed,
new connections see the new certificate. Connections that are there stay as they are. Unlike Apache, which waits until key
and certificate have both changed, a certificate that was renewed for the same key counts at once; as long as the two do
not belong together, as in the middle of a change, what was there before goes on.
"""

import os
from typing import Any

from twisted.internet import ssl
from twisted.internet.defer import inlineCallbacks
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from rocketd.common.clocked_loop import ClockedLoop
from rocketd.remoting.certificates import TLSConfigError
from rocketd.remoting.settings import TlsConfig
from rocketd.remoting.tls import server_context

INTERVAL_SECONDS = 0.5

_log = Logger()

_Stamp = tuple[tuple[int, int, int] | None, ...]


class CertificateWatch:
    """The listening side's TLS context, always that of the newest files that are good. Raises TLSConfigError at first.

    Reactor thread only; files are read in a thread of the reactor's pool. `start` and `stop` are called by each port.
    """

    def __init__(self, settings: TlsConfig, reactor: Any) -> None:
        self._settings = settings
        self._reactor = reactor
        named = (settings.server_key_path, settings.server_cert_path, settings.server_trust_cert_path)
        self._paths = () if settings.test_mode_enable else tuple(path for path in named if path is not None)
        self._stamp = self._read_stamp()
        self.context: ssl.CertificateOptions | None = server_context(settings)
        self._ports = 0
        self._looking = ClockedLoop(reactor, self._look)

    def start(self) -> None:
        """A port listens."""
        self._ports += 1
        if self._ports == 1 and self._paths and self.context is not None:
            self._looking.start(INTERVAL_SECONDS, now=False)

    def stop(self) -> None:
        """A port has ended."""
        self._ports -= 1
        if not self._ports and self._looking.running:
            self._looking.stop()

    @inlineCallbacks
    def _look(self) -> Any:
        pool = self._reactor.getThreadPool()
        stamp = yield deferToThreadPool(self._reactor, pool, self._read_stamp)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self.context = yield deferToThreadPool(self._reactor, pool, server_context, self._settings)
        except TLSConfigError as error:
            _log.warn("the TLS files have changed, and what was read before stays in use: {error}", error=error)
        except Exception:
            _log.failure("the TLS files have changed and cannot be used; what was read before stays in use")
        else:
            _log.info("the TLS files have changed: new connections see the new certificate")

    def _read_stamp(self) -> _Stamp:
        """What changes with the files."""
        return tuple(_stamp_of(path) for path in self._paths)


def _stamp_of(path: str) -> tuple[int, int, int] | None:
    try:
        figures = os.stat(path)
    except OSError:
        return None
    return figures.st_mtime_ns, figures.st_size, figures.st_ino
