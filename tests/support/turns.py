"""A reactor driven by the test, for connections in memory."""

from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock


class Turns(Clock):
    """A reactor that runs its calls only in ``settle``; their times do not matter."""

    def callFromThread(self, function, *arguments, **keywords):
        self.callLater(0, function, *arguments, **keywords)

    def settle(self):
        while self.calls:
            self.advance(0.001)


class Recorder(Protocol):
    def __init__(self):
        self.data = b""
        self.sizes = []
        self.lost = None

    def dataReceived(self, data):
        self.data += data
        self.sizes.append(len(data))

    def connectionLost(self, reason):
        self.lost = reason.type
