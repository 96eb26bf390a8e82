"""``rocketd offset``: show, reset and clone the offsets of consumer groups.

Counterpart: mqadmin consumerProgress, resetOffsetByTime, skipAccumulatedMessage and cloneGroupOffset (Apache).
"""

from collections.abc import Mapping

import click

from rocketd.client.admin import AdminEngine
from rocketd.client.queries.inspection import QueueProgress, progress_at
from rocketd.client.queries.offset_reset import Target, reset_each
from rocketd.common.command_line.commands import command
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.option_types import group_name, topic_name
from rocketd.common.command_line.output import complain, counted
from rocketd.common.event_loop.reactor import IReactor
from rocketd.common.names import RETRY_PREFIX
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.tools.admin.changes import refusals_of, status_of
from rocketd.tools.admin.groups import known_group
from rocketd.tools.admin.options import yes
from rocketd.tools.base.cluster import ClusterAccess, cluster_options, run_client_command
from rocketd.tools.base.lacking_requests import reason_of
from rocketd.tools.base.masters import NOT_ALL_ANSWERED, Answers, ask_masters
from rocketd.tools.base.rows import AS_JSON, show_rows
from rocketd.tools.base.watch import WATCH
from rocketd.tools.messages.message_text import time_text
from rocketd.tools.messages.positions import StartPosition, position

_UNKNOWN = "-"
_SHOWN = ("topic", "broker", "queue", "consumed", "end", "behind", "last consumed")
_CHANGED = ("topic", "broker", "queue", "before", "after")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Print what would be done, as without --yes.")
_TOPIC = click.option(
    "-t", "--topic", type=topic_name, metavar="TOPIC", help="Only this topic. Default: all topics of the group."
)


@command("show")
@click.argument("group", type=group_name)
@_TOPIC
@AS_JSON
@WATCH
@cluster_options
def show_command(cluster: ClusterAccess, group: str, topic: str | None, as_json: bool) -> int:
    """Print a line for each queue of GROUP: topic, broker, queue, consumed, end, behind and last consumed.

    "consumed" is the offset of the group, "end" the offset of the next message, and "behind" their difference. "last
    consumed" is the time in UTC at which the last consumed message was stored, or - if it is unknown. The exit status is
    1 if the group has no offset, and 3 if not all brokers answered.
    """
    return run_client_command(lambda reactor: _show(reactor, cluster, group, topic, as_json))


async def _show(reactor: IReactor, cluster: ClusterAccess, group: str, topic: str | None, as_json: bool) -> int:
    async with cluster.admin(reactor) as admin:
        answers = await _progress(admin, group, topic)
    progress = _of_all(answers)
    if not progress:
        answers.complain()
        raise _without_offset(group, topic, answers)
    rows = [(*_place(queue), each.consumed, each.end, each.behind, _moment(each)) for queue, each in progress.items()]
    show_rows(_SHOWN, rows, as_json=as_json, right=_SHOWN[2:6])
    return _status(answers)


def _place(queue: MessageQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id


def _moment(progress: QueueProgress) -> str | int:
    moment = progress.last_consumed_at
    return _UNKNOWN if moment is None else time_text(int(moment.timestamp() * 1000))


@command("reset")
@click.argument("group", type=group_name)
@click.argument("topic", type=topic_name)
@click.option(
    "--to",
    "start",
    type=position,
    required=True,
    metavar="PLACE",
    help="earliest, latest, an offset, a time such as 2026-01-31T09:30, or -5m for five minutes ago (s, m, h, d).",
)
@_DRY_RUN
@yes("Reset the offsets.")
@AS_JSON
@cluster_options
def reset_command(
    cluster: ClusterAccess, group: str, topic: str, start: StartPosition, dry_run: bool, yes: bool, as_json: bool
) -> int:
    """Move GROUP to another place in TOPIC, and print a line for each queue: topic, broker, queue, before and after.

    Without --yes nothing is changed. A time means the first message stored from then on. An offset outside of a queue
    becomes the nearest end of the queue. Brokers move running consumers; to move to an offset, stop all consumers first.
    A - is an offset never stored. The exit status is 1 if a broker refuses. The others are reset.
    """
    if dry_run and yes:
        raise click.UsageError("--dry-run and --yes cannot be given together")
    return run_client_command(lambda reactor: _reset(reactor, cluster, group, topic, _target(start), yes, as_json))


def _target(start: StartPosition) -> Target:
    if start.moment is not None:
        return start.moment
    return start.offset if start.word == "offset" else "latest" if start.word == "latest" else "earliest"


async def _reset(
    reactor: IReactor, cluster: ClusterAccess, group: str, topic: str, to: Target, yes: bool, as_json: bool
) -> int:
    async with cluster.admin(reactor) as admin:
        before = _consumed(await _progress(admin, group, topic))
        after, refusals = await reset_each(admin.instance, group, topic, to, dry_run=not yes)
        if refusals and yes:  # some queues of a broker that refused may be reset
            after = dict(sorted((_consumed(await _progress(admin, group, topic)) | after).items()))
    _show_changes(before, after, as_json)
    what = f"{counted(len(after), 'queue')} of {topic} for group {group}"
    if yes:
        return status_of(refusals, f"reset {what}")
    silent: Answers[object] = Answers(failed={str(error.broker): reason_of(error) for error in refusals})
    silent.complain()
    complain(f"would reset {what}; with --yes they are reset")
    return NOT_ALL_ANSWERED if silent.failed else 0


@command("clone")
@click.argument("source", type=group_name)
@click.argument("target", type=group_name)
@_TOPIC
@_DRY_RUN
@yes("Copy the offsets.")
@AS_JSON
@cluster_options
def clone_command(
    cluster: ClusterAccess, source: str, target: str, topic: str | None, dry_run: bool, yes: bool, as_json: bool
) -> int:
    """Give the offsets of the group SOURCE to the group TARGET, and print a line for each queue with both offsets.

    Without --yes nothing is changed. The consumers of TARGET must be stopped: running ones overwrite the offsets. The exit
    status is 1 if a broker refuses. The others copy their offsets.
    """
    if dry_run and yes:
        raise click.UsageError("--dry-run and --yes cannot be given together")
    return run_client_command(lambda reactor: _clone(reactor, cluster, source, target, topic, yes, as_json))


async def _clone(
    reactor: IReactor, cluster: ClusterAccess, source: str, target: str, topic: str | None, yes: bool, as_json: bool
) -> int:
    async with cluster.admin(reactor) as admin:
        answers = await _progress(admin, source, topic)
        given = _consumed(answers)
        if not given:
            answers.complain()
            raise _without_offset(source, topic, answers)
        before = _consumed(await _progress(admin, target, topic))
        if members := await admin.consumers(target):
            raise CommandError(f"group {target} has {counted(len(members), 'member')} online: stop them first")
        if yes:
            refusals = await refusals_of(admin.clone_offsets(source, target, topic))
            copied = _consumed(await _progress(admin, target, topic))
            given = {queue: copied[queue] for queue in given if queue in copied}
    _show_changes(before, given, as_json)
    what = f"{counted(len(given), 'offset')} of group {source} to group {target}"
    if yes:
        return status_of(refusals, f"copied {what}")
    status = _status(answers)
    complain(f"would copy {what}; with --yes they are copied")
    return status


def _consumed(answers: Answers[dict[MessageQueue, QueueProgress]]) -> dict[MessageQueue, int]:
    """Return the offsets of a group, without those of its retries."""
    return {
        queue: each.consumed for queue, each in _of_all(answers).items() if not queue.topic.startswith(RETRY_PREFIX)
    }


def _of_all(answers: Answers[dict[MessageQueue, QueueProgress]]) -> dict[MessageQueue, QueueProgress]:
    return dict(sorted(item for found in answers.found.values() for item in found.items()))


def _without_offset(group: str, topic: str | None, answers: Answers[dict[MessageQueue, QueueProgress]]) -> CommandError:
    where = "" if topic is None else f" in topic {topic}"
    return CommandError(f"group {group} has no offset{where}", NOT_ALL_ANSWERED if answers.failed else 1)


def _status(answers: Answers[dict[MessageQueue, QueueProgress]]) -> int:
    answers.complain()
    return NOT_ALL_ANSWERED if answers.failed else 0


async def _progress(admin: AdminEngine, group: str, topic: str | None) -> Answers[dict[MessageQueue, QueueProgress]]:
    """Return the progress of a group in one topic or all, by broker. Raises CommandError if no broker has the group.

    Brokers are asked for all topics: they count a topic that the group has never read as read up to offset 0.
    """
    answers = await ask_masters(admin.instance, lambda address: progress_at(admin.instance, address, group))
    if not answers.found:
        answers.complain()
        raise answers.nobody(f"has the group {group}")
    if not any(answers.found.values()):
        await known_group(admin, group)
    for name, found in answers.found.items():
        answers.found[name] = {queue: each for queue, each in found.items() if topic in (None, queue.topic)}
    return answers


def _show_changes(before: Mapping[MessageQueue, int], after: Mapping[MessageQueue, int], as_json: bool) -> None:
    rows = [(*_place(queue), before.get(queue, _UNKNOWN), offset) for queue, offset in after.items()]
    show_rows(_CHANGED, rows, as_json=as_json, right=_CHANGED[2:])
