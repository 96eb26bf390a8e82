"""Buffer sizes of a connection: kernel buffers, and marks of the unsent bytes in this process.

Counterpart: the options SO_SNDBUF, SO_RCVBUF and WRITE_BUFFER_WATER_MARK of `NettyRemotingServer` (Apache).
"""

import socket
from typing import NamedTuple


class WriteMarks(NamedTuple):
    """Unsent bytes of a connection: from ``high`` on it is not served, below ``low`` it is served again. 0 means no
    mark.
    """

    high: int = 0
    low: int = 0

    @classmethod
    def of(cls, high: int, low: int) -> "WriteMarks":
        """Return the marks of two settings. As in Apache, both must be set, and low must not exceed high."""
        return cls(high, low) if 0 < low <= high else cls()


class SocketBuffers(NamedTuple):
    """Sizes in bytes. 0 leaves a buffer to the system, and it grows as the connection needs."""

    send: int = 0
    receive: int = 0

    def set_on(self, holder: object) -> None:
        """Set the sizes on the socket of a transport or listening port. The system may reduce or double them.

        Connections inherit the sizes of the port that accepted them.
        """
        opened = getattr(holder, "socket", None)
        if opened is None:
            return
        for option, size in ((socket.SO_SNDBUF, self.send), (socket.SO_RCVBUF, self.receive)):
            if size > 0:
                opened.setsockopt(socket.SOL_SOCKET, option, size)
