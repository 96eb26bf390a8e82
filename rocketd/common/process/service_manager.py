"""Tells systemd, or any other service manager with its protocol, how the process is: ready, reloading, stopping, alive.

Each message is one datagram to the socket of the environment variable ``NOTIFY_SOCKET``. Without the variable, or if the
socket is gone, nothing is sent. If the socket is full, the state is sent again for some seconds. See the manual page
sd_notify(3).
"""

import os
import socket
from collections import deque
from collections.abc import Mapping
from time import CLOCK_MONOTONIC, clock_gettime_ns

from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from rocketd.common.event_loop.reactor import IReactor

_TIMES_IN_LIMIT = 3
"""Notifications (WATCHDOG=1) within the time limit of the watchdog."""
_REPEAT_SECONDS = 0.1
_MAX_REPEATS = 100
_MAX_WAITING = 20
"""Messages waiting for space in the manager's socket. Further ones replace the oldest."""


class ServiceManager:
    """The service manager of this process. Reactor thread only, and never blocks."""

    _log = Logger()

    def __init__(self, reactor: IReactor, environ: Mapping[str, str]) -> None:
        self._reactor = reactor
        self._address = _socket_address(environ.get("NOTIFY_SOCKET", ""))
        self._limit = _watchdog_seconds(environ)
        self._signs: LoopingCall | None = None
        self._is_ready = False
        self._complained = False
        self._waiting: deque[bytes] = deque(maxlen=_MAX_WAITING)
        self._repeats = 0
        self._repeat: IDelayedCall | None = None

    def ready(self, status: str) -> None:
        """Report a successful start, with a text for ``systemctl status``. From now on, notify the watchdog."""
        self._is_ready = True
        self._send_state("READY=1", f"STATUS={' '.join(status.split())}")
        if self._address is not None and self._limit and self._signs is None:
            self._signs = LoopingCall(self._send_sign)
            self._signs.clock = self._reactor
            self._signs.start(self._limit / _TIMES_IN_LIMIT)

    def reloading(self) -> None:
        """Report a reload of the settings, if the process was ready. ``reloaded`` must follow."""
        if self._is_ready:
            self._send_state("RELOADING=1", f"MONOTONIC_USEC={_monotonic_microseconds()}")

    def reloaded(self) -> None:
        """Report the end of a reload."""
        if self._is_ready:
            self._send_state("READY=1")

    def stopping(self) -> None:
        """Report the start of a stop. The watchdog is notified until its end, since it may take long."""
        self._send_state("STOPPING=1", "STATUS=stopping")

    def ended(self) -> None:
        """Notify the watchdog no longer, and repeat no message."""
        if self._repeat is not None:
            self._repeat.cancel()
            self._repeats = _MAX_REPEATS
            self._send_waiting()
        if self._signs is not None:
            self._signs.stop()
            self._signs = None

    def _send_state(self, *lines: str) -> None:
        """Send a message. While the manager's socket is full, repeat it, in order with others."""
        self._waiting.append("\n".join(lines).encode())
        if self._repeat is None:
            self._repeats = 0
            self._send_waiting()

    def _send_waiting(self) -> None:
        self._repeat = None
        while self._waiting:
            try:
                self._send(self._waiting[0])
            except BlockingIOError as error:
                if self._repeats < _MAX_REPEATS:
                    self._repeats += 1
                    self._repeat = self._reactor.callLater(_REPEAT_SECONDS, self._send_waiting)
                    return
                self._complain(error)
            except OSError as error:
                self._complain(error)
            self._waiting.popleft()

    def _send_sign(self) -> None:
        try:
            self._send(b"WATCHDOG=1")
        except OSError as error:
            self._complain(error)

    def _send(self, message: bytes) -> None:
        """Send a message. Raises BlockingIOError if the manager's socket is full, OSError if it is gone."""
        if self._address is None:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            sender.sendto(message, self._address)

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            self._complained = True
            self._log.warn("NOTIFY_SOCKET: the service manager cannot be told: {error}", error=error)


def _socket_address(name: str) -> str | None:
    """Return the address of a socket, None if there is none. ``@`` stands for the zero byte of an abstract name."""
    if name.startswith("@"):
        return "\0" + name[1:]
    return name if name.startswith("/") else None


def _watchdog_seconds(environ: Mapping[str, str]) -> float:
    """Return the time without a watchdog notification after which the manager ends this process; 0 if it does not."""
    if environ.get("WATCHDOG_PID", "") not in ("", str(os.getpid())):
        return 0.0
    text = environ.get("WATCHDOG_USEC", "")
    return int(text) / 1e6 if text.isascii() and text.isdigit() and len(text) < 20 else 0.0


def _monotonic_microseconds() -> int:
    return clock_gettime_ns(CLOCK_MONOTONIC) // 1000
