"""``rocketd consume``: print the messages of a topic as they come.

Counterpart: mqadmin consumeMessage (Apache). With ``--group``, this command is a member of a group.
"""

import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import click
from twisted.internet.defer import CancelledError, Deferred

from rocketd.client.consumer.membership.group_beginning import CLOCK_SKEW_SECONDS
from rocketd.client.consumer.options.kind_options import ConsumerOptions, Order
from rocketd.client.consumer.push_consumer import PushConsumerEngine
from rocketd.client.errors import StopConsuming
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.message import ReceivedMessage
from rocketd.common.command_line.commands import command
from rocketd.common.command_line.errors import CommandError, OutputClosedError
from rocketd.common.command_line.option_types import POSITIVE, group_name, seconds, topic_name
from rocketd.common.command_line.output import show_bytes
from rocketd.common.event_loop.reactor import IReactor
from rocketd.tools.base.cluster import ClusterAccess, cluster_options, run_client_command
from rocketd.tools.messages.message_text import Template, json_line, printable, unescape
from rocketd.tools.messages.positions import StartPosition, position
from rocketd.tools.messages.queue_reader import TopicReader, wait_for_topic
from rocketd.tools.messages.refusals import RefusalWatch

T = TypeVar("T")

_BATCH = 32
"""Largest number of messages in one pull."""


@dataclass(frozen=True)
class ConsumeLimits:
    """The messages to print: `count` of them at most, within `timeout` seconds; None is without a limit.

    Without a `group` no broker keeps anything about this command.
    """

    topic: str
    group: str | None
    tags: str
    start: StartPosition
    count: int | None
    timeout: float | None
    wait: bool

    @property
    def batch(self) -> int:
        """The largest number of messages in one pull."""
        return min(self.count or _BATCH, _BATCH)


class MessagePrinter:
    """Prints messages, and counts them."""

    def __init__(self, count: int | None, template: str, end: str, as_json: bool) -> None:
        self._count = count
        self._template = Template(template)
        self._end = unescape(end)
        self._json = as_json
        self._clean: Callable[[bytes], bytes] = printable if sys.stdout.isatty() else bytes
        self.seen = 0

    @property
    def complete(self) -> bool:
        """Whether all wanted messages are printed."""
        return self.seen == self._count

    def print(self, message: ReceivedMessage[bytes]) -> bool:
        """Print a message. Return whether more are wanted. Raises CommandError and OutputClosedError."""
        text = json_line(message) if self._json else self._template.render(message, self._clean)
        show_bytes(text + self._end)
        self.seen += 1
        return not self.complete


def _tags(text: str) -> str:
    if not text.isprintable():
        raise click.BadParameter(f"{text!r}: tags are text")
    return text


def _checked(check: Callable[[str], object]) -> Callable[[str], str]:
    def checked(text: str) -> str:
        check(text)
        return text

    return checked


@command("consume")
@click.argument("topic", type=topic_name)
@click.option(
    "-g",
    "--group",
    type=group_name,
    metavar="GROUP",
    help="Consumer group. Its members share the messages, and each message is delivered to the group once. "
    "Default: none; every message is printed, and brokers keep nothing about this command.",
)
@click.option(
    "--tags",
    type=_tags,
    default="*",
    show_default=True,
    metavar="TAGS",
    help="Tags of the consumed messages, such as 'TagA || TagB'. * means all.",
)
@click.option(
    "--from",
    "start",
    type=position,
    default="earliest",
    show_default=True,
    metavar="WHERE",
    help="First message: earliest, latest, an offset, a time such as 2026-01-31T09:30, or -5m for five minutes ago "
    "(s, m, h, d). With --group it counts only for a new group, and cannot be an offset.",
)
@click.option("--count", type=POSITIVE, metavar="N", help="Number of messages after which to stop.")
@click.option(
    "--timeout",
    type=seconds,
    metavar="SECONDS",
    help="Time in seconds after which to stop. With --count, fewer messages then mean failure.",
)
@click.option("--no-wait", is_flag=True, help="Fail if the topic does not exist. Default: wait for it.")
@click.option(
    "--format",
    "template",
    type=_checked(Template),
    metavar="TEXT",
    help="Text for each message, with fields in braces such as '{tags} {keys} {body}'. Fields: topic, broker, queue, "
    "offset, id, tags, keys, properties, properties.NAME, born, stored, retries, size, body, body_base64.",
)
@click.option("--json", "as_json", is_flag=True, help="Print each message as one line of JSON.")
@click.option(
    "--end",
    type=_checked(unescape),
    default=r"\n",
    show_default=True,
    metavar="TEXT",
    help=r"Text after each message. It may have the escapes \n \t \r \0 \e \\ \xHH, as --format may.",
)
@cluster_options
def consume_command(
    cluster: ClusterAccess, template: str | None, as_json: bool, end: str, no_wait: bool, **wanted: Any
) -> int:
    """Print the bodies of the messages of TOPIC until Ctrl-C, and wait for TOPIC if it does not exist yet.

    In a file or a pipe each body is written as it is. On a terminal, control characters and bytes that are not UTF-8 are
    shown as escapes. If a broker refuses the group or the topic, the command ends with exit status 1.
    """
    if template is not None and as_json:
        raise click.UsageError("--format and --json: give only one of them")
    limits = ConsumeLimits(wait=not no_wait, **wanted)
    if limits.group is not None and limits.start.word == "offset":
        raise click.UsageError("--from with an offset is not possible with --group: the group has offsets of its own")
    printer = MessagePrinter(limits.count, "{body}" if template is None else template, end, as_json)
    return run_client_command(lambda reactor: print_messages(reactor, cluster, limits, printer))


async def print_messages(
    reactor: IReactor, cluster: ClusterAccess, wanted: ConsumeLimits, printer: MessagePrinter
) -> int:
    """Print messages until all are there, the time is over, or this is cancelled; return the exit status.

    Raises CommandError, OutputClosedError and RocketMQError.
    """
    late: list[bool] = []

    def end_late() -> None:
        late.append(True)
        work.cancel()

    ended: Deferred[None] = Deferred()
    watch = RefusalWatch(wanted.topic, lambda error: _end(ended, error))
    async with cluster.client(reactor, [] if wanted.group is None else [watch]) as client:
        work = Deferred.fromCoroutine(_consume(client, wanted, printer, ended))
        timer = None if wanted.timeout is None else reactor.callLater(wanted.timeout, end_late)
        try:
            await work
        except CancelledError:
            if not late:
                raise
        finally:
            ended.addErrback(lambda _: None)  # a refusal after the end is of no interest
            if timer is not None and timer.active():
                timer.cancel()
    if wanted.count is not None and not printer.complete:
        raise CommandError(f"{printer.seen} of {wanted.count} messages came within {wanted.timeout:g} s")
    return 0


async def _consume(
    client: ClientInstance, wanted: ConsumeLimits, printer: MessagePrinter, ended: "Deferred[None]"
) -> None:
    """Print messages until all are there. Raises CommandError, OutputClosedError and RocketMQError."""
    begin = datetime.fromtimestamp(client.now_ms() / 1000 - CLOCK_SKEW_SECONDS, UTC)
    was_missing = await wait_for_topic(client, wanted.topic, wait=wanted.wait)
    if not await client.routes.subscribe_queues(wanted.topic):
        raise CommandError(f"topic {wanted.topic} has no queue that may be read: no broker lets it be")
    later_start = wanted.start.for_later_queue(begin)
    start = later_start if was_missing else wanted.start
    if wanted.group is None:
        reader = TopicReader(client, wanted.topic, wanted.tags, start, later_start, wanted.batch, printer.print)
        await reader.run()
    else:
        await _consume_as_member(client, wanted, wanted.group, start, printer, ended)


async def _consume_as_member(
    client: ClientInstance,
    wanted: ConsumeLimits,
    group: str,
    start: StartPosition,
    printer: MessagePrinter,
    ended: "Deferred[None]",
) -> None:
    async def print_message(message: ReceivedMessage[bytes]) -> None:
        try:
            more = printer.print(message)
        except (CommandError, OutputClosedError) as error:
            _end(ended, error)
            raise StopConsuming() from None
        if not more:
            consumer.stop_taking()  # the messages held beyond the count stay unconsumed
            _end(ended)

    # One after the other: they are printed in the order of the queues.
    options = ConsumerOptions(
        begin=start.moment or start.word, order=Order.NONE, concurrency=1, pull_batch=wanted.batch
    )
    consumer: PushConsumerEngine[bytes] = PushConsumerEngine(client, group, print_message, options=options)
    consumer.subscribe(wanted.topic, wanted.tags)
    try:
        await consumer.start()
        await ended
    finally:
        await _run_to_end(consumer.stop())


async def _run_to_end(work: Coroutine[Deferred[Any], Any, None]) -> None:
    """Run a coroutine that must not be cut off: a cancellation of the caller is ignored until it has ended."""
    running = Deferred.fromCoroutine(work)
    while not running.called:
        waiting: Deferred[None] = Deferred()
        running.addBoth(_pass, waiting)
        with suppress(CancelledError):
            await waiting
    await running


def _pass(result: T, waiting: "Deferred[None]") -> T:
    waiting.callback(None)
    return result


def _end(ended: "Deferred[None]", error: Exception | None = None) -> None:
    """Fire a Deferred, unless it has fired before."""
    if not ended.called:
        ended.callback(None) if error is None else ended.errback(error)
