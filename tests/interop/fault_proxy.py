"""A TCP proxy between the client and a server that simulates faults of networks.

It knows the bounds of frames, so it can lose, delay or cut the ones chosen by a test. Clients find a broker by its address
in a route: the proxy of a name server replaces it there with the address of another proxy, of the same length.
"""

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from threading import Thread
from typing import Any, Self

from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder

HOST = "127.0.0.1"
LIMIT = 30.0  # seconds that any call may take
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST
_PIECES = 8  # in which a frame goes through a narrow proxy


class Direction(Enum):
    """Which way a frame goes."""

    TO_SERVER = auto()
    TO_CLIENT = auto()


class Harm(Enum):
    """The kinds of harm to a frame."""

    LOSE = auto()
    DELAY = auto()
    CUT = auto()
    """Half of it goes through, then the connection is reset."""


@dataclass
class Fault:
    """A fault of the frames of one direction: requests with one of these codes, or the answers to them.

    Without codes it affects all frames. ``left`` is the number of frames still to be affected.
    """

    direction: Direction
    harm: Harm
    codes: tuple[int, ...] = ()
    left: float = float("inf")
    seconds: float = 0.0


class _Loop:
    """An asyncio loop in a separate thread; other threads call into it and wait."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = Thread(target=self.loop.run_forever, name="proxies", daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        async def run() -> Any:
            result = function(*arguments)
            return await result if isinstance(result, Awaitable) else result

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(LIMIT)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Proxies:
    """Proxies that share a thread. Their methods may be called from any other thread."""

    def __init__(self) -> None:
        self._loop = _Loop()
        self._all: list[FaultProxy] = []

    def proxy(self, server: str, addresses: Mapping[str, str] | None = None) -> "FaultProxy":
        """Open a proxy before a server; ``addresses`` maps addresses in its answers to their replacements."""
        proxy = FaultProxy(self._loop, server, addresses or {})
        self._all.append(proxy)
        proxy.heal()
        return proxy

    def close(self) -> None:
        """Reset all connections, and end."""
        for proxy in self._all:
            proxy.refuse()
            proxy.close()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FaultProxy:
    """Stands before one server at ``address``; passes everything on until it is told otherwise."""

    def __init__(self, loop: _Loop, server: str, addresses: Mapping[str, str]) -> None:
        self._socket = _bound()
        self.address = f"{HOST}:{self._socket.getsockname()[1]}"
        self.passed: Counter[int] = Counter()
        """Requests that reached the server, by their codes."""
        self._harmed = 0
        self._loop = loop
        self._server = server
        self._addresses = {old.encode(): new.encode() for old, new in addresses.items()}
        assert all(len(old) == len(new) for old, new in self._addresses.items()), self._addresses
        self._listener: asyncio.Server | None = None
        self._passages: set[_Passage] = set()
        self._faults: list[Fault] = []
        self._swallowing = False
        self._deaf = False
        self.seconds_a_piece = 0.0

    # ------------------------------------------------------------ calls of tests

    def heal(self) -> None:
        """Listen, and pass on all bytes of new connections; swallowed bytes stay lost."""

        async def heal() -> None:
            self._faults.clear()
            self._swallowing = self._deaf = False
            self.seconds_a_piece = 0.0
            if self._listener is None:
                self._listener = await asyncio.start_server(self._accepted, sock=self._socket.dup())

        self._loop.call(heal)

    def refuse(self) -> None:
        """Reset all connections, and listen no more."""

        async def refuse() -> None:
            listener, self._listener = self._listener, None
            if listener is not None:
                listener.close()
                self._socket.shutdown(socket.SHUT_RDWR)  # on Linux it only listens no more
            await self._reset_all()

        self._loop.call(refuse)

    def close(self) -> None:
        """Let the port go, after ``refuse``."""
        self._socket.close()

    def cut(self) -> None:
        """Reset all connections; new ones are accepted."""
        self._loop.call(self._reset_all)

    def black_hole(self, *, deaf: bool = False) -> None:
        """Accept, and swallow all bytes from either side, on these connections for ever; ``deaf`` does not even read."""

        def swallow() -> None:
            self._swallowing, self._deaf = True, deaf
            for passage in self._passages:
                passage.die(deaf=deaf)

        self._loop.call(swallow)

    def harm(
        self,
        direction: Direction,
        harm: Harm,
        *codes: int,
        times: float = float("inf"),
        seconds: float = 0.0,
    ) -> None:
        """Harm frames from now on. The codes are those of requests; an answer counts under the code of its request."""
        self._loop.call(self._faults.append, Fault(direction, harm, codes, times, seconds))

    def narrow(self, seconds_a_piece: float) -> None:
        """Let frames through in pieces, with so much time between two."""
        self.seconds_a_piece = seconds_a_piece

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._passages)

    @property
    def harmed(self) -> int:
        """How many frames did not pass unharmed."""
        return self._harmed

    # ------------------------------------------------------------ in the loop

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passage = _Passage(self, reader, writer)
        if self._swallowing:
            passage.die(deaf=self._deaf)
        self._passages.add(passage)
        try:
            await passage.run(self._server)
        finally:
            self._passages.discard(passage)

    async def _reset_all(self) -> None:
        cut = set(self._passages)
        for passage in cut:
            passage.reset()
        while cut & self._passages:  # a client may have connected again meanwhile
            await asyncio.sleep(0)

    def fault_for(self, direction: Direction, code: int | None) -> Fault | None:
        """Return the fault for a frame, which counts as affected by it."""
        for fault in self._faults:
            if fault.direction is direction and fault.left > 0 and (not fault.codes or code in fault.codes):
                fault.left -= 1
                self._harmed += 1
                return fault
        return None

    def count_lost(self) -> None:
        """Take note of a frame that was swallowed."""
        self._harmed += 1

    def rewritten(self, frame: bytes) -> bytes:
        """Return a frame with the addresses of proxies."""
        for old, new in self._addresses.items():
            frame = frame.replace(old, new)
        return frame


def _bound() -> socket.socket:
    """Return a socket that keeps its port as long as it is open, listening or not, so that no other program gets it."""
    while True:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            address = probe.getsockname()
        bound = socket.socket()
        try:
            bound.bind(address)  # by its number: a port that the system has chosen goes when the socket listens no more
        except OSError:
            bound.close()  # another program was faster
        else:
            return bound


class _Passage:
    """One connection of a client, and the one to the server that belongs to it."""

    def __init__(self, proxy: FaultProxy, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self.client: Any = client
        self.dead = False
        self._proxy = proxy
        self._from_client = reader
        self._server: asyncio.StreamWriter | None = None
        self._codes: dict[int, int] = {}
        self._pumps: list[asyncio.Task[None]] = []
        self._late: set[asyncio.TimerHandle] = set()

    def die(self, *, deaf: bool) -> None:
        """Stop passing on bytes, without telling either side."""
        self.dead = True
        if deaf:
            self.client.transport.pause_reading()

    async def run(self, server: str) -> None:
        """Pass on until one side closes."""
        try:
            host, _, port = server.rpartition(":")
            from_server, self._server = await asyncio.open_connection(host, int(port))
        except OSError:
            self.reset()
            return
        self._pumps = [
            asyncio.ensure_future(self._pump(self._from_client, self._server, Direction.TO_SERVER)),
            asyncio.ensure_future(self._pump(from_server, self.client, Direction.TO_CLIENT)),
        ]
        await asyncio.wait(self._pumps, return_when=asyncio.FIRST_COMPLETED)
        if self.dead and not self._pumps[0].done():
            await asyncio.wait(self._pumps[:1])  # the client is not told of the server's end
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        for late in self._late:
            late.cancel()
        self.client.close()
        self._server.close()

    def reset(self) -> None:
        """Close both connections by RST."""
        for writer in (self.client, self._server):
            if writer is not None:
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                writer.transport.abort()
        for pump in self._pumps:
            pump.cancel()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction) -> None:
        try:
            while True:
                size = await reader.readexactly(4)
                frame = size + await reader.readexactly(int.from_bytes(size, "big"))
                if self.dead:
                    self._proxy.count_lost()
                else:
                    await self._pass(frame, writer, direction)
        except (OSError, asyncio.IncompleteReadError):
            return

    async def _pass(self, frame: bytes, writer: asyncio.StreamWriter, direction: Direction) -> None:
        proxy = self._proxy
        code = self._code_of(frame)
        fault = proxy.fault_for(direction, code)
        if direction is Direction.TO_CLIENT:
            frame = proxy.rewritten(frame)
        if fault is None:
            if direction is Direction.TO_SERVER and code is not None:
                proxy.passed[code] += 1
            await self._write(writer, frame)
        elif fault.harm is Harm.DELAY:
            late = asyncio.get_running_loop().call_later(fault.seconds, writer.write, frame)
            self._late.add(late)
        elif fault.harm is Harm.CUT:
            writer.write(frame[: len(frame) // 2])
            await writer.drain()
            self.reset()

    async def _write(self, writer: asyncio.StreamWriter, frame: bytes) -> None:
        if self._proxy.seconds_a_piece:
            step = -(-len(frame) // _PIECES)
            while frame:
                writer.write(frame[:step])
                frame = frame[step:]
                await asyncio.sleep(self._proxy.seconds_a_piece)
        else:
            writer.write(frame)
        await writer.drain()

    def _code_of(self, frame: bytes) -> int | None:
        """Return the code of a request, or of the one that this answers."""
        (whole,) = FrameDecoder().feed(frame)
        command = RemotingCommand.decode(whole)
        if command.is_response:
            return self._codes.get(command.opaque)
        self._codes[command.opaque] = command.code
        return command.code
