"""Name server and broker in this process, a client that speaks frames, and the log lines they cause."""

from contextlib import asynccontextmanager

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol
from twisted.logger import LogLevel, globalLogPublisher

from rocketd.broker.service import make_broker
from rocketd.broker.settings import BrokerSettings
from rocketd.namesrv.service import make_namesrv
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.frame import FrameDecoder

WAIT_SECONDS = 5


class Client(Protocol):
    """Sends commands or bytes and hands out the answers by opaque."""

    def __init__(self):
        self.closed = Deferred()
        self.is_closed = False
        self._decoder = FrameDecoder()
        self._waiting = {}

    def dataReceived(self, data):
        for frame in self._decoder.feed(data):
            answer = RemotingCommand.decode(frame)
            waiting = self._waiting.pop(answer.opaque, None)
            if waiting is not None:
                waiting.callback(answer)

    def connectionLost(self, reason=None):
        self.is_closed = True
        waiting, self._waiting = self._waiting, {}
        for result in waiting.values():
            result.callback(None)
        self.closed.callback(None)

    def expect(self, opaque):
        """Fire with the answer to that request, or None when the connection closes before."""
        result = self._waiting[opaque] = Deferred()
        result.addTimeout(WAIT_SECONDS, reactor)
        return result

    def ask(self, command):
        """Send a command; fires as `expect` does."""
        result = self.expect(command.opaque)
        self.transport.write(command.encode())
        return result

    def wait_closed(self):
        return self.closed.addTimeout(WAIT_SECONDS, reactor)


async def connect(port):
    return await connectProtocol(TCP4ClientEndpoint(reactor, "127.0.0.1", port), Client())


class LogLines:
    """What is logged as a warning or worse while it is installed."""

    def __init__(self):
        self.events = []

    def __call__(self, event):
        if event.get("log_level", LogLevel.info) >= LogLevel.warn:
            self.events.append(event)

    def __enter__(self):
        globalLogPublisher.addObserver(self)
        return self

    def __exit__(self, *_):
        globalLogPublisher.removeObserver(self)


def namesrv_in(directory, **options):
    settings, warnings = NamesrvSettings.load(
        overrides={
            "listenPort": "0",
            "kvConfigPath": f"{directory}/kvConfig.json",
            "configStorePath": f"{directory}/namesrv.properties",
            **options,
        }.items()
    )
    assert warnings == []
    return make_namesrv(settings)


def broker_in(directory, namesrv_address, **options):
    settings, warnings = BrokerSettings.load(
        overrides={
            "listenPort": "0",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "brokerName": "broker-a",
            "namesrvAddr": namesrv_address,
            "storePathRootDir": f"{directory}/store",
            "mappedFileSizeCommitLog": "1048576",
            "mappedFileSizeConsumeQueue": "60000",
            "diskMaxUsedSpaceRatio": "99",
            **options,
        }.items()
    )
    assert warnings == []
    return make_broker(settings)


@asynccontextmanager
async def both_servers(directory, **options):
    """Run both; `options` are settings of both."""
    name_server = namesrv_in(directory, **options)
    name_server.startService()
    try:
        broker = broker_in(directory, f"127.0.0.1:{name_server.port}", **options)
        broker.startService()
        try:
            yield name_server, broker
        finally:
            await broker.stopService()
    finally:
        await name_server.stopService()
