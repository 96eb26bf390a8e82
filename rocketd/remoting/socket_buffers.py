"""The sizes of the kernel's buffers of a socket.

Counterpart: the options SO_SNDBUF and SO_RCVBUF that `NettyRemotingServer` and `NettyRemotingClient` (Apache) set.
"""

import socket
from typing import Any, NamedTuple


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
