"""Reloads certificates from their files while the server runs.

Counterpart: `FileWatchService`, and its use in the two daemons (Apache). Half a second after a change, new connections
use the new certificate. Existing connections are not affected. Apache waits until key and certificate have both
changed. Here a certificate renewed for the same key is used at once. While the two do not match, as in the middle of a
change, the previous ones stay in use.
"""

import os
from typing import Any

from twisted.internet import ssl
from twisted.internet.defer import inlineCallbacks
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from rocketd.common.event_loop.clocked_loop import ClockedLoop
from rocketd.common.event_loop.reactor import IReactor
from rocketd.remoting.settings import TlsConfig
from rocketd.remoting.tls.certificates import TLSConfigError
from rocketd.remoting.tls.contexts import server_context

INTERVAL_SECONDS = 0.5

_log = Logger()

_Stamp = tuple[tuple[int, int, int] | None, ...]


class CertificateWatch:
    """The listening side's TLS context, always from the newest valid files. The constructor raises TLSConfigError.

    Reactor thread only. Files are read in a thread of the reactor's pool. `start` and `stop` are called by each port.
    """

    def __init__(self, settings: TlsConfig, reactor: IReactor) -> None:
        self._settings = settings
        self._reactor = reactor
        named = (settings.server_key_path, settings.server_cert_path, settings.server_trust_cert_path)
        self._paths = () if settings.test_mode_enable else tuple(path for path in named if path is not None)
        self._stamp = self._read_stamp()
        self.context: ssl.CertificateOptions | None = server_context(settings)
        self._ports = 0
        self._looking = ClockedLoop(reactor, self._look)

    def start(self) -> None:
        """Count a listening port."""
        self._ports += 1
        if self._ports == 1 and self._paths and self.context is not None:
            self._looking.start(INTERVAL_SECONDS, now=False)

    def stop(self) -> None:
        """Count the end of a port."""
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
            _log.warn("the TLS files have changed, but the previous ones stay in use: {error}", error=error)
        except Exception:
            _log.failure("the TLS files have changed and cannot be used; the previous ones stay in use")
        else:
            _log.info("the TLS files have changed: new connections see the new certificate")

    def _read_stamp(self) -> _Stamp:
        """Return a value that changes with the files."""
        return tuple(_stamp_of(path) for path in self._paths)


def _stamp_of(path: str) -> tuple[int, int, int] | None:
    try:
        figures = os.stat(path)
    except OSError:
        return None
    return figures.st_mtime_ns, figures.st_size, figures.st_ino
