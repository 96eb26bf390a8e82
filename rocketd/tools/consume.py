"""``rocketd consume``: print the messages of a topic as they come.

Answers to mqadmin consumeMessage, but as a member of a group.
"""

from typing import Any, ClassVar

from twisted.internet.defer import Deferred
from twisted.logger import LogLevel
from twisted.python import usage

from rocketd.client.consumer.options import ConsumerOptions, Order
from rocketd.client.consumer.push_consumer import PushConsumer
from rocketd.client.errors import RocketMQError, StopConsuming
from rocketd.client.message import ReceivedMessage
from rocketd.common.names import group_fault, topic_fault
from rocketd.tools.console import CommandError, OutputClosedError, run, show, show_log
from rocketd.tools.options import ClientOptions, positive, seconds
from rocketd.tools.refusals import RefusalWatch

_STARTS = ("earliest", "latest")


def _start(text: str) -> str:
    if text not in _STARTS:
        raise usage.UsageError(f"--from {text}: accepted is {' or '.join(_STARTS)}")
    return text


class ConsumeOptions(ClientOptions):
    """Options of ``rocketd consume``."""

    synopsis = "Usage: rocketd consume [options] TOPIC"
    longdesc = (
        "Print tag, keys and body of each message, separated by tabs, until Ctrl-C. A broker that refuses the group or the "
        "topic ends it, with exit status 1."
    )

    optParameters: ClassVar[list[list[Any]]] = [
        ["group", "g", "rocketd-consume", "Consumer group; what it has consumed does not come again."],
        ["tag", None, "*", "Tags to consume, such as 'TagA || TagB'."],
        ["from", None, "earliest", "Where a group that is new begins: earliest or latest.", _start],
        ["count", None, None, "Stop after so many messages.", positive],
        ["timeout", None, None, "Stop after so many seconds; with --count, too few messages are a failure.", seconds],
    ]

    def __init__(self) -> None:
        super().__init__()
        self.topic = ""

    def parseArgs(self, topic: str | None = None) -> None:
        """Take the topic."""
        if topic is None:
            raise usage.UsageError("TOPIC is missing")
        self.topic = topic

    def postOptions(self) -> None:
        """Refuse names that none can have."""
        for what, text, fault in (
            ("topic", self.topic, topic_fault(self.topic)),
            ("--group", self["group"], group_fault(self["group"])),
            ("--tag", self["tag"], None if self["tag"].isprintable() else "tags are text"),
        ):
            if fault is not None:
                raise usage.UsageError(f"{what} {text!r}: {fault}")

    def run(self) -> int:
        """Print until done; return the exit status."""
        show_log(LogLevel.critical)
        return run("rocketd consume", self._consume, (CommandError, RocketMQError))

    async def _consume(self, reactor: Any) -> int:
        count: int | None = self["count"]
        seen = 0
        done: Deferred[None] = Deferred()
        stopping: list[Deferred[None]] = []
        ended_by: list[Exception] = []

        def finish() -> None:
            if not stopping:
                stopping.append(Deferred.fromCoroutine(consumer.stop()))
                done.callback(None)

        def give_up(error: Exception) -> None:
            ended_by.append(error)
            finish()

        async def print_message(message: ReceivedMessage[bytes]) -> None:
            nonlocal seen
            body = message.body.decode("utf-8", "backslashreplace")
            try:
                show(message.tags or "", " ".join(message.keys), body, sep="\t")
            except (CommandError, OutputClosedError) as error:
                give_up(error)
                raise StopConsuming() from None
            seen += 1
            if seen == count:
                finish()

        client = self.make_client(reactor, [RefusalWatch(self.topic, give_up)])
        # One after the other: they are printed as they lie in the queues.
        options = ConsumerOptions(start=self["from"], order=Order.NONE, concurrency=1)
        consumer: PushConsumer[bytes] = PushConsumer(client, self["group"], print_message, options=options)
        consumer.subscribe(self.topic, self["tag"])
        client.startService()
        timer = None if self["timeout"] is None else reactor.callLater(self["timeout"], finish)
        try:
            await consumer.start()
            if not await client.routes.subscribe_queues(self.topic):
                raise CommandError(f"topic {self.topic} has no queue that may be read: no broker lets it be")
            await done
        finally:
            if timer is not None and timer.active():
                timer.cancel()
            await (stopping[0] if stopping else consumer.stop())
            await client.stopService()
        if ended_by:
            raise ended_by[0]
        if count is not None and seen < count:
            raise CommandError(f"{seen} of {count} messages came within {self['timeout']:g} s")
        return 0
