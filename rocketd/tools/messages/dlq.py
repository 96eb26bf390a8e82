"""``rocketd dlq``: list, show and send again the dead letters of a consumer group.

Counterpart: the page of dead letters of Apache's dashboard; mqadmin has none. The targets of a redrive are
explained in docs/howto/retries.md.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import click

from rocketd.client.consumer.retries.dead_letter_reader import DeadLetter, DeadLetterFilter, DeadLetterReader
from rocketd.client.consumer.retries.redrive import RedriveOutcome, Redriver, RedriveTarget
from rocketd.client.errors import RocketMQError, UsageError
from rocketd.common.command_line.commands import command
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.option_types import POSITIVE, group_name, one_of
from rocketd.common.command_line.output import complain, show, show_bytes, show_table
from rocketd.common.event_loop.reactor import IReactor
from rocketd.tools.base.cluster import ClusterAccess, cluster_options, run_client_command
from rocketd.tools.base.json_lines import json_text
from rocketd.tools.messages.message_text import described, json_of, time_text
from rocketd.tools.messages.positions import moment

_COLUMNS = ("id", "topic", "died", "attempts", "exception", "reason", "keys")
_SHOWN_AT_ONCE = 200
"""Number of rows in one table. More than a pull has, so that a column seldom changes its width."""


def _selecting(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options that select dead letters, and those of a cluster."""
    for option in (
        cluster_options,
        click.option("--json", "as_json", is_flag=True, help="Print each dead letter as one line of JSON."),
        click.option("--until", type=moment, metavar="TIME", help="Only those stored before this time."),
        click.option(
            "--since",
            type=moment,
            metavar="TIME",
            help="Only those stored from this time on: 2026-01-31T09:30, or -5m for five minutes ago (s, m, h, d).",
        ),
        click.option(
            "--exception", metavar="CLASS", help="Only those of this class of exception, with or without its module."
        ),
        click.argument("group", type=group_name),
    ):
        function = option(function)
    return function


def _filter(
    exception: str | None, since: datetime | None, until: datetime | None, ids: tuple[str, ...] | None = None
) -> DeadLetterFilter:
    """Return the filter. Raises click.UsageError for an unsuitable option."""
    try:
        return DeadLetterFilter(exception, since, until, ids)
    except UsageError as error:
        raise click.UsageError(f"--{error}") from error


@command("list")
@_selecting
@click.option("--limit", type=POSITIVE, metavar="N", help="Number of dead letters after which to stop.")
def list_command(
    cluster: ClusterAccess,
    group: str,
    exception: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int | None,
    as_json: bool,
) -> int:
    """Print a line for each dead letter of GROUP: id, topic, died, attempts, exception, reason and keys.

    "topic" is the original one, and "died" the time of storing in UTC. A - is unknown: only rocketd's Python client gives
    an exception and a reason. In a file or a pipe the fields are separated by tabs. Nothing changes at the brokers.
    """
    wanted = _filter(exception, since, until)
    return run_client_command(lambda reactor: _list(reactor, cluster, group, wanted, limit, as_json))


async def _list(
    reactor: IReactor, cluster: ClusterAccess, group: str, wanted: DeadLetterFilter, limit: int | None, as_json: bool
) -> int:
    printer = _LetterPrinter(as_json)
    async with cluster.client(reactor) as client:
        reader = DeadLetterReader(client, group, wanted)
        while (page := await reader.next_page()) is not None and not printer.is_full(limit):
            for letter in page:
                if not printer.is_full(limit):
                    printer.add(letter)
    printer.flush()
    return 0


@command("show")
@click.argument("group", type=group_name)
@click.argument("id")
@click.option("--json", "as_json", is_flag=True, help="Print each dead letter as one line of JSON.")
@cluster_options
def show_command(cluster: ClusterAccess, group: str, id: str, as_json: bool) -> int:  # noqa: A002 - the name is click's
    """Print the dead letters of GROUP with an ID: that of "list", or the id of the message.

    The exit status is 1 if there is none.
    """
    return run_client_command(lambda reactor: _show(reactor, cluster, group, id, as_json))


async def _show(reactor: IReactor, cluster: ClusterAccess, group: str, wanted: str, as_json: bool) -> int:
    found = 0
    async with cluster.client(reactor) as client:
        reader = DeadLetterReader(client, group, DeadLetterFilter(ids=[wanted]))
        while (page := await reader.next_page()) is not None:
            for letter in page:
                if as_json:
                    show_bytes(_json_line(letter) + b"\n")
                else:
                    show(*_described(letter), sep="\n")
                found += 1
    if not found:
        raise CommandError(f"group {group} has no dead letter with the id {wanted}")
    return 0


@command("redrive")
@_selecting
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only this one, by an id as for show; repeatable.")
@click.option(
    "--to",
    type=one_of("group", "topic"),
    default="group",
    show_default=True,
    metavar="TARGET",
    help="group: only GROUP gets the messages. topic: all groups of the original topics get them.",
)
@click.option("--yes", is_flag=True, help="Send the messages. Default: print what would be sent.")
def redrive_command(
    cluster: ClusterAccess,
    group: str,
    exception: str | None,
    since: datetime | None,
    until: datetime | None,
    ids: tuple[str, ...],
    to: RedriveTarget,
    yes: bool,
    as_json: bool,
) -> int:
    """Send the dead letters of GROUP again, and print a line for each.

    Without --yes nothing is sent. Each message is sent once: if the command is interrupted, run it again. Do not run it
    twice at the same time. If it cannot find out whether a message was sent before, it stops with an error. Dead letters
    stay where they are until they expire. The exit status is 1 if a message cannot be sent.
    """
    wanted = _filter(exception, since, until, ids or None)
    return run_client_command(lambda reactor: _redrive(reactor, cluster, group, wanted, to, yes, as_json))


async def _redrive(
    reactor: IReactor,
    cluster: ClusterAccess,
    group: str,
    wanted: DeadLetterFilter,
    to: RedriveTarget,
    yes: bool,
    as_json: bool,
) -> int:
    printer = _LetterPrinter(as_json, outcome=True)
    counts = dict.fromkeys(RedriveOutcome, 0)
    try:
        async with cluster.client(reactor) as client:
            reader, redriver = DeadLetterReader(client, group, wanted), Redriver(client, to)
            while (page := await reader.next_page()) is not None:
                for letter in page:
                    outcome = await (redriver.redrive(letter) if yes else redriver.foresee(letter))
                    counts[outcome] += 1
                    printer.add(letter, outcome.value if yes or outcome is not RedriveOutcome.SENT else "to be sent")
    except RocketMQError as error:
        raise CommandError(f"{error}; {counts[RedriveOutcome.SENT] if yes else 0} were sent, run it again") from error
    finally:
        printer.flush()
    target = f"group {group}" if to == "group" else "their topics"
    sent = counts[RedriveOutcome.SENT]
    complain(f"{sent} sent to {target}" if yes else f"{sent} would be sent to {target}; with --yes they are sent")
    if lost := counts[RedriveOutcome.UNKNOWN_TOPIC]:
        raise CommandError(f"{lost} cannot be sent: their original topic is unknown, or no longer exists")
    return 0


class _LetterPrinter:
    """Prints dead letters as tables of some rows, or as lines of JSON. ``outcome`` adds a column."""

    def __init__(self, as_json: bool, *, outcome: bool = False) -> None:
        self._json = as_json
        self._columns = ("outcome", *_COLUMNS) if outcome else _COLUMNS
        self._rows: list[tuple[str, ...]] = []
        self._header = True
        self._count = 0

    def is_full(self, limit: int | None) -> bool:
        """Return whether so many dead letters are printed."""
        return limit is not None and self._count >= limit

    def add(self, letter: DeadLetter, outcome: str | None = None) -> None:
        """Print a dead letter, perhaps later."""
        self._count += 1
        if self._json:
            show_bytes(_json_line(letter, outcome) + b"\n")
            return
        row = (
            letter.id,
            letter.topic if letter.has_origin else "-",
            str(time_text(letter.message.store_timestamp)),
            str(letter.attempts),
            letter.exception or "-",
            letter.reason or "-",
            " ".join(letter.message.keys),
        )
        self._rows.append(row if outcome is None else (outcome, *row))
        if len(self._rows) >= _SHOWN_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Print the rows added since."""
        if not self._json and (self._rows or self._header):
            show_table(self._columns, self._rows, right=("attempts",), plain_header=self._header)
            self._rows, self._header = [], False


def _facts(letter: DeadLetter) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "id": letter.id,
        "group": letter.group,
        "died": time_text(letter.message.store_timestamp),
        "attempts": letter.attempts,
        "exception": letter.exception,
        "reason": letter.reason,
        "consumer": letter.consumer,
        "original_id": letter.original_id,
    }
    return facts if letter.unreadable is None else {**facts, "unreadable": letter.unreadable}


def _json_line(letter: DeadLetter, outcome: str | None = None) -> bytes:
    told = {} if outcome is None else {"outcome": outcome}
    return json_text({**told, **_facts(letter), "message": json_of(letter.message)}).encode()


def _described(letter: DeadLetter) -> list[str]:
    """Return a line for each fact that is known."""
    message = json_of(letter.message)
    return described({**_facts(letter), "msg_id": message.pop("id"), **message})
