"""Connections to brokers that a calling thread uses itself, one request at a time.

The blocking face sends on them, which saves the way through the reactor thread and back. A link belongs to one thread from
``take`` to ``give_back`` or ``drop``. Idle links are shared by all threads of a producer, so a thread that ends leaves no
socket behind. Producers are known to brokers by the engine's connections, never by these.
"""

import atexit
import select
import socket
from collections import deque
from ipaddress import ip_address
from threading import RLock
from time import monotonic
from typing import Any, Final
from weakref import WeakSet

from rocketd.client.runtime.fork import at_fork_in_child
from rocketd.remoting.calling.channel_table import split_address
from rocketd.remoting.errors import FrameError, RemotingSendRequestError, RemotingTimeoutError
from rocketd.remoting.socket_buffers import SocketBuffers
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder

MAX_LINKS: Final = 64
"""Maximum number of links of one producer. Further threads send through the engine, on its shared connection."""

MAX_ANSWER: Final = 64 << 10
"""Longest accepted answer in bytes. The answer to a send is a few hundred bytes long."""

CONNECT_SECONDS: Final = 0.5
"""Time for making a link. After that the engine connects, within the time left."""

AVOID_SECONDS: Final = 1.0
"""Time after a failed attempt in which no further link to the address is made."""

IDLE_SECONDS: Final = 60.0
"""Time after which an idle link is closed. Brokers close theirs after 120 s."""

SUPPORTED: Final = hasattr(select, "poll")
"""Whether this system has what links need. Windows has not."""

_RECEIVED = 16 << 10


class DirectLink:
    """A connection to ``address``, which is ``host:port`` with a numeric host. ``used`` is the time of its last use."""

    __slots__ = ("_decoder", "_fd", "_poll", "_poller", "_socket", "address", "used")

    def __init__(self, address: str) -> None:
        self.address = address
        self.used = 0.0
        self._socket: Any = None

    def connect(self, seconds: float, buffers: SocketBuffers) -> None:
        """Connect. Raises OSError, and ValueError for a host that would have to be looked up: that takes its own time."""
        host, port = split_address(self.address)
        family = socket.AF_INET6 if ip_address(host).version == 6 else socket.AF_INET
        opened = self._socket = socket.socket(family, socket.SOCK_STREAM)
        opened.settimeout(seconds)
        opened.connect((host, port))
        # From here on it never waits in the socket: poll waits, and keeps its time whatever signals come.
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffers.set_on(_Holder(opened))
        self._fd = opened.fileno()
        self._poller = select.poll()
        self._poller.register(self._fd, select.POLLIN)
        self._poll = self._poller.poll
        self._decoder = FrameDecoder(MAX_ANSWER)

    def is_quiet(self) -> bool:
        """Return whether nothing came since the last answer: no bytes, and no end of the connection."""
        return not self._poll(0)

    def ask(self, frame: bytes, opaque: int, deadline: float) -> RemotingCommand:
        """Send a request and return its answer. ``deadline`` is a time of ``monotonic``. After an error, drop the link.

        Raises RemotingTimeoutError, and RemotingSendRequestError if the connection failed or the answer is another one.
        """
        began = monotonic()
        try:
            try:
                sent = self._socket.send(frame)
            except BlockingIOError:
                sent = 0
            if sent < len(frame):
                self._send_rest(memoryview(frame)[sent:], began, deadline)
            while True:
                left = deadline - monotonic()
                if left <= 0 or not self._poll(left * 1000):
                    raise self._too_late(began, deadline)
                data = self._socket.recv(_RECEIVED)
                if not data:
                    raise RemotingSendRequestError(self.address, "the connection closed before the answer came")
                frames = self._decoder.feed(data)
                if frames:
                    break
            answer = RemotingCommand.decode(frames[0])
        except FrameError as error:
            reason = f"the connection closed before the answer came: the received bytes are not a frame: {error}"
            raise RemotingSendRequestError(self.address, reason) from error
        except OSError as error:
            raise RemotingSendRequestError(self.address, error.strerror or str(error)) from error
        if answer.opaque != opaque or not answer.is_response or len(frames) > 1 or self._decoder.held:
            raise RemotingSendRequestError(self.address, "the peer sent something other than the answer")
        return answer

    def _send_rest(self, rest: memoryview, began: float, deadline: float) -> None:
        self._poller.modify(self._fd, select.POLLOUT)
        while rest:
            left = deadline - monotonic()
            if left <= 0 or not self._poll(left * 1000):
                raise self._too_late(began, deadline)
            rest = rest[self._socket.send(rest) :]
        self._poller.modify(self._fd, select.POLLIN)

    def _too_late(self, began: float, deadline: float) -> RemotingTimeoutError:
        return RemotingTimeoutError(f"no answer from {self.address} within {max(0.0, deadline - began) * 1000:.0f} ms")

    def interrupt(self) -> None:
        """End the wait of the thread that uses the link. Any thread."""
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # not connected, or closed by now

    def close(self) -> None:
        """Close the socket. A second call does nothing."""
        if self._socket is not None:
            self._socket.close()


class _Holder:
    """Has a socket, as transports do."""

    __slots__ = ("socket",)

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened


class LinkPool:
    """The links of one producer. Any thread may call any method.

    ``in_use`` has the links on which a request is under way. At most ``limit`` links are open at a time.
    """

    def __init__(
        self, limit: int = MAX_LINKS, idle_seconds: float = IDLE_SECONDS, buffers: SocketBuffers | None = None
    ) -> None:
        self.in_use: set[DirectLink] = set()
        self.closed = False
        self._limit = limit
        self._idle_seconds = idle_seconds
        self._buffers = buffers or SocketBuffers()
        self._idle: dict[str, deque[DirectLink]] = {}
        self._open: set[DirectLink] = set()
        self._avoided: dict[str, float] = {}
        self._lock = RLock()  # a signal handler may send while its thread has it
        _pools.add(self)

    def __len__(self) -> int:
        return len(self._open)

    def take(self, address: str, seconds: float) -> DirectLink | None:
        """Return a link to an address, made within ``seconds`` if none is idle. None: use the engine."""
        idle = self._idle.get(address)
        while idle:
            try:
                link = idle.pop()  # the one used last
            except IndexError:  # another thread was faster
                break
            self.in_use.add(link)
            if not self.closed and link.is_quiet():
                return link
            self.drop(link)
        return self._make(address, seconds)

    def _make(self, address: str, seconds: float) -> DirectLink | None:
        now = monotonic()
        if self._avoided.get(address, now) > now:
            return None
        link = DirectLink(address)
        with self._lock:
            if self.closed or len(self._open) >= self._limit:
                return None
            self._open.add(link)
            self.in_use.add(link)
        try:
            link.connect(min(seconds, CONNECT_SECONDS), self._buffers)
        except (OSError, ValueError):
            self._avoided[address] = monotonic() + AVOID_SECONDS
            self.drop(link)
            return None
        except BaseException:
            self.drop(link)
            raise
        self._avoided.pop(address, None)
        if self.closed:
            self.drop(link)
            return None
        return link

    def give_back(self, link: DirectLink) -> None:
        """Return a link after its answer came."""
        link.used = monotonic()
        self.in_use.discard(link)
        if not self.closed:
            idle = self._idle.get(link.address)
            if idle is None:
                idle = self._idle.setdefault(link.address, deque())
            idle.append(link)
        if self.closed:
            self.drop(link)

    def drop(self, link: DirectLink) -> None:
        """Close a link after a failure."""
        with self._lock:
            self.in_use.discard(link)
            self._open.discard(link)
            link.close()

    def close_idle(self) -> None:
        """Close the links that were not used for a while."""
        oldest = monotonic() - self._idle_seconds
        for idle in list(self._idle.values()):
            while idle:
                try:
                    link = idle.popleft()
                except IndexError:
                    break
                if link.used >= oldest:
                    idle.appendleft(link)
                    break
                self.drop(link)

    def close(self) -> None:
        """Close all links, and end the waits of the threads that use one. Those threads close their links."""
        self.closed = True
        with self._lock:
            for link in list(self._open):
                if link in self.in_use:
                    link.interrupt()
                else:
                    self.drop(link)

    def leave_parent(self) -> None:
        """Close this process's copies of the sockets after a fork. The parent goes on with its own."""
        self._lock = RLock()
        self.closed = True
        for link in list(self._open):
            link.close()


_pools: "WeakSet[LinkPool]" = WeakSet()


def _begin_child() -> None:
    for pool in list(_pools):
        pool.leave_parent()
    _pools.clear()


def _exit() -> None:
    for pool in list(_pools):
        pool.close()


at_fork_in_child(_begin_child)
atexit.register(_exit)
