"""Connection events, delivered to third-party listeners from one separate thread.

Counterpart: `NettyEventExecutor` and `ChannelEventListener` (Apache). The queue is bounded: a listener slower than the
peers loses events, with a count in the log, but delays no other part.
"""

import threading
from queue import Empty, Full, Queue
from time import monotonic

from twisted.logger import Logger

from rocketd.common.logs.throttle import ThrottledLog
from rocketd.remoting.interfaces import ConnectionEvent, EventKind, IConnectionListener
from rocketd.remoting.serving.third_party.running_calls import CONNECTION_LISTENER, PluginCalls

QUEUE_LIMIT = 10_000
"""Events that may wait for the listeners."""
_STOP_SECONDS = 5.0
_STUCK_SECONDS = 0.1


class ConnectionEvents:
    """The queue of events and the thread that empties it.

    ``add``, ``start`` and ``put`` belong to the reactor thread, ``stop`` to any other thread. Without a listener, the
    thread does not run and ``put`` does nothing.
    """

    def __init__(self, name: str, limit: int = QUEUE_LIMIT, calls: PluginCalls | None = None) -> None:
        self._name = name
        self._calls = calls or PluginCalls()
        self._listeners: tuple[tuple[str, IConnectionListener], ...] = ()
        self._queue: Queue[ConnectionEvent] = Queue(limit)
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._log = ThrottledLog(Logger())

    def add(self, listener: object, name: str = "") -> None:
        """Add a listener with its name for the log. Raises TypeError if it does not provide IConnectionListener."""
        self._listeners = (*self._listeners, (name or repr(listener), IConnectionListener(listener)))

    def start(self) -> None:
        """Start the thread if there is a listener."""
        if self._listeners and self._thread is None:
            self._stopping.clear()
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Deliver the waiting events, for at most 5 s, and end the thread.

        A listener already abandoned by the server's stop is not waited for.
        """
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is None:
            return
        deadline = monotonic() + _STOP_SECONDS
        while thread.is_alive() and monotonic() < deadline and not self._calls.given_up(CONNECTION_LISTENER):
            thread.join(_STUCK_SECONDS)
        if thread.is_alive():
            busy = ", ".join(map(str, self._calls.busy(CONNECTION_LISTENER)))
            self._log.error(
                "connection events left",
                "{count} connection events are not delivered: {busy}",
                count=self._queue.qsize(),
                busy=busy,
            )

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
            for name, listener in self._listeners:
                self._tell(name, listener, event)

    def _tell(self, name: str, listener: IConnectionListener, event: ConnectionEvent) -> None:
        method = event.kind.value
        call = self._calls.begin(CONNECTION_LISTENER, name, method)
        try:
            getattr(listener, method)(event)
        except BaseException as error:  # even sys.exit in a listener must not end the thread
            self._log.error(
                "connection listener failed",
                "connection listener {listener} failed for {event}: {error}",
                listener=name,
                event=event.kind.name,
                error=repr(error),
            )
        finally:
            self._calls.end(call)
