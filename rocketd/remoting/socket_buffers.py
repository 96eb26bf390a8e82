"""The sizes of a connection's buffers: those of the kernel, and the marks of what waits in this process.

Counterpart: the options SO_SNDBUF, SO_RCVBUF and WRITE_BUFFER_WATER_MARK that `NettyRemotingServer` (Apache) sets.
"""

import socket
from typing import Any, NamedTuple


class WriteMarks(NamedTuple):
    """Unsent bytes of a connection: from ``high`` on it is not served, below ``low`` it is served again. 0 is no mark."""

    high: int = 0
    low: int = 0

    @classmethod
    def of(cls, high: int, low: int) -> "WriteMarks":
        """Return the marks of two settings. As in Apache, both must be set, and the low one must not be the higher."""
        return cls(high, low) if 0 < low <= high else cls()


class SocketBuffers(NamedTuple):
    """Sizes in bytes; 0 leaves a buffer to the system, which then makes it as large as the connection needs."""

    send: int = 0
    receive: int = 0

    def set_on(self, holder: Any) -> None:
        """Set the sizes of the socket of a transport or listening port. The system may cut or double them.

        Connections have the sizes of the port that accepted them.
        """
        opened = getattr(holder, "socket", None)
        if opened is None:
            return
        for option, size in ((socket.SO_SNDBUF, self.send), (socket.SO_RCVBUF, self.receive)):
            if size > 0:
                opened.setsockopt(socket.SOL_SOCKET, option, size)
