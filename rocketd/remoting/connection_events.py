"""Events of connections, delivered to the listeners of third parties from one thread of their own.

Counterpart: `NettyEventExecutor` and `ChannelEventListener` (Apache). The queue is bounded: a listener that is slower than
the peers loses events, with a count in the log, and delays nobody.
"""

import enum
import threading
from queue import Empty, Full, Queue
from typing import Any, NamedTuple

from twisted.logger import Logger

from rocketd.common.log_throttle import ThrottledLog
from rocketd.remoting.interfaces import IConnectionListener

QUEUE_LIMIT = 10_000
"""Events that may wait for the listeners."""
_STOP_SECONDS = 5.0


class EventKind(enum.Enum):
    """What happened to a connection; the value is the listener's method."""

    CONNECT = "connected"
    CLOSE = "closed"
    IDLE = "idle"
    EXCEPTION = "failed"


class ConnectionEvent(NamedTuple):
    """One event. ``address`` is the peer's ``host:port``; ``reason`` is empty unless the kind is EXCEPTION or IDLE."""

    kind: EventKind
    address: str
    reason: str = ""


class ConnectionEvents:
    """The queue of events and the thread that empties it.

    ``add``, ``start`` and ``put`` belong to the reactor thread, ``stop`` to any other thread. Without a listener there is
    neither a thread nor a queue, and ``put`` does nothing.
    """

    def __init__(self, name: str, limit: int = QUEUE_LIMIT) -> None:
        self._name = name
        self._listeners: tuple[Any, ...] = ()
        self._queue: Queue[ConnectionEvent] = Queue(limit)
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._log = ThrottledLog(Logger())

    def add(self, listener: Any) -> None:
        """Have a listener told. Raises TypeError if it does not provide IConnectionListener."""
        self._listeners = (*self._listeners, IConnectionListener(listener))

    def start(self) -> None:
        """Start the thread if there is a listener."""
        if self._listeners and self._thread is None:
            self._stopping.clear()
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Deliver the events that wait, for at most 5 s, and end the thread."""
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(_STOP_SECONDS)

    def put(self, kind: EventKind, address: str, reason: str = "") -> None:
        """Queue an event. If the queue is full, the event is dropped and counted in the log."""
        if self._thread is None:
            return
        try:
            self._queue.put_nowait(ConnectionEvent(kind, address, reason))
        except Full:
            self._log.error(
                "connection events dropped",
                "connection event {event} of {address} is dropped: {limit} events wait for the listeners",
                event=kind.name,
                address=address,
                limit=self._queue.maxsize,
            )

    def _run(self) -> None:
        while True:
            try:
                event = self._queue.get(timeout=0.1 if self._stopping.is_set() else 1.0)
            except Empty:
                if self._stopping.is_set():
                    return
                continue
            for listener in self._listeners:
                self._tell(listener, event)

    def _tell(self, listener: Any, event: ConnectionEvent) -> None:
        try:
            getattr(listener, event.kind.value)(event)
        except Exception as error:
            self._log.error(
                "connection listener failed",
                "connection listener {listener} failed for {event}: {error}",
                listener=listener,
                event=event.kind.name,
                error=repr(error),
            )
