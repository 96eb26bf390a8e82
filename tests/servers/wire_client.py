"""A client of one connection in the reactor: sends frames, and gives each answer to its caller."""

from contextlib import asynccontextmanager

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol
from twisted.internet.task import deferLater

from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder

ANSWER_LIMIT = 60  # seconds


class WireClient(Protocol):
    """``requests`` are the commands sent by the server; those of a code in ``answered`` are answered with success.
    ``closed`` fires with the connection's end.
    """

    def __init__(self):
        self.closed = Deferred()
        self.is_closed = False
        self.requests = []
        self.answered = set()
        self.strays = []
        self._decoder = FrameDecoder()
        self._waiting = {}

    def dataReceived(self, data):
        for frame in self._decoder.feed(data):
            command = RemotingCommand.decode(frame)
            if not command.is_response:
                self.requests.append(command)
                if command.code in self.answered:
                    self.send(RemotingCommand.response().answering(command))
            elif command.opaque in self._waiting:
                self._waiting.pop(command.opaque).callback(command)
            else:
                self.strays.append(command)

    def connectionLost(self, reason=None):
        self.is_closed = True
        waiting, self._waiting = self._waiting, {}
        for result in waiting.values():
            result.callback(None)
        self.closed.callback(None)

    def send(self, command):
        self.transport.write(command if isinstance(command, bytes) else command.encode())

    def expect(self, opaque, limit=ANSWER_LIMIT):
        """Fire with the answer to that request, or None when the connection closes before."""
        result = self._waiting[opaque] = Deferred()
        result.addTimeout(limit, reactor)
        return result

    def ask(self, command, limit=ANSWER_LIMIT):
        """Send a request; fires as `expect` does."""
        result = self.expect(command.opaque, limit)
        self.send(command)
        return result

    def wait_closed(self):
        return self.closed.addTimeout(ANSWER_LIMIT, reactor)


async def connect(port):
    return await connectProtocol(TCP4ClientEndpoint(reactor, "127.0.0.1", port), WireClient())


@asynccontextmanager
async def running(service):
    service.startService()
    try:
        yield service
    finally:
        await service.stopService()


async def eventually(condition, limit=60.0):
    """Wait until a function or coroutine function gives something true, asking every 10 ms."""
    for _ in range(int(limit * 100)):
        value = condition()
        if hasattr(value, "__await__"):
            value = await value
        if value:
            return
        await deferLater(reactor, 0.01)
    raise AssertionError(f"did not happen within {limit} s")
