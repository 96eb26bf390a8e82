"""Consume in a Twisted application: NAMESRV_ADDR=host:9876 twistd -n --pidfile= -y examples/twisted_service.tac"""

from twisted.application.service import Application, Service
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketd.client import Consumer, Message, Producer, ReceivedMessage


class Greeter(Service):
    """Sends itself a message, consumes it, and ends the application."""

    log = Logger()

    def startService(self) -> None:
        """Begin; what fails goes to the log."""
        super().startService()
        self.greeted: Deferred[None] = Deferred()
        Deferred.fromCoroutine(self.begin()).addErrback(lambda failure: self.log.failure("no start", failure))

    async def begin(self) -> None:
        """Send, then consume."""
        async with Producer("example_twisted_producer") as producer:
            await producer.send(Message("ExampleTwisted", b"hello"))
        self.consumer = Consumer("example_twisted", topics="ExampleTwisted", begin="earliest", handler=self.handle)
        await self.consumer.open()
        await self.greeted
        reactor.stop()

    async def handle(self, message: ReceivedMessage) -> None:
        """Consume one message."""
        print("consumed", message.body.decode(), flush=True)
        self.greeted.callback(None)

    def stopService(self) -> Deferred[None]:
        """Let handlers end, and store offsets, before the application ends."""
        super().stopService()
        return self.consumer.close()


application = Application("greeter")
Greeter().setServiceParent(application)
