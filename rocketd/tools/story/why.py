"""``rocketd why``: tell the story of one message.

Counterpart: mqadmin queryMsgById and queryMsgTraceById (Apache), and the page of messages of Apache's dashboard.
"""

from typing import Any

import click

from rocketd.client.admin import AdminEngine
from rocketd.client.messages.message import ReceivedMessage
from rocketd.client.trace.records import ConsumeReturnType, TraceContext, TraceRecordError, TraceType, decode_records
from rocketd.common.command_line.commands import command
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.option_types import group_name, topic_name
from rocketd.common.command_line.output import escape_cell, show, show_bytes
from rocketd.common.event_loop.reactor import IReactor
from rocketd.common.message_properties import DELAY, REAL_TOPIC
from rocketd.common.names import TRANS_HALF_TOPIC
from rocketd.tools.base.cluster import ClusterAccess, cluster_options, run_client_command
from rocketd.tools.base.json_lines import json_text
from rocketd.tools.messages.message_text import time_text
from rocketd.tools.story.groups import group_story
from rocketd.tools.story.search import WAITING, Messages, find, traces, waiting


@command("why")
@click.argument("id")
@click.option(
    "-t", "--topic", type=topic_name, metavar="TOPIC", help="Topic of the message. Default: all topics are searched."
)
@click.option("-g", "--group", type=group_name, metavar="GROUP", help="Only this group. Default: all of the topic.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
@cluster_options
def why_command(
    cluster: ClusterAccess,
    id: str,  # noqa: A002 - the name is click's
    topic: str | None,
    group: str | None,
    as_json: bool,
) -> int:
    """Tell the story of the message with an ID: where and when it was stored, and what each consumer group did with it.

    A group has consumed it, filtered it out, waits for it, tries it again, or has made it a dead letter. Delayed messages
    and half messages of transactions are found, too, and so is the trace if the clients wrote one. The exit status is 1
    if no broker has the message.
    """
    return run_client_command(lambda reactor: _why(reactor, cluster, id, topic, group, as_json))


async def _why(
    reactor: IReactor, cluster: ClusterAccess, wanted: str, topic: str | None, group: str | None, as_json: bool
) -> int:
    async with cluster.admin(reactor) as admin:
        found = await find(admin, topic, wanted)
        wanted = found[0].msg_id if found else wanted
        kept = await waiting(admin, wanted)
        if not found and not kept:
            raise CommandError(f"no broker has a message {wanted}" + ("" if topic is None else f" of topic {topic}"))
        facts = _facts(found, kept)
        if found:
            facts["groups"] = await _groups(admin, found[0], kept, group)
        facts["trace"] = [line for body in await traces(admin, wanted) for line in _trace(body, wanted)]
    if as_json:
        show_bytes(json_text(facts).encode() + b"\n")
        return 0
    groups, trace = facts.pop("groups", ()), facts.pop("trace")
    lines = [f"{name}: {value}" for name, value in facts.items() if value not in (None, "")]
    lines += [f"group {each['group']}: {each['state']}: {each['detail']}" for each in groups]
    if found and not groups:
        lines.append(f"groups: none reads topic {found[0].topic}")
    show(*map(escape_cell, [*lines, *(f"trace: {line}" for line in sorted(trace))]), sep="\n")
    return 0


def _facts(found: Messages, kept: Messages) -> dict[str, Any]:
    """Return the facts about the place and the time."""
    first = (found or kept)[0]
    facts: dict[str, Any] = {"id": first.msg_id, "topic": first.topic, **_place(first)}
    if not found:
        facts["topic"] = first.properties.get(REAL_TOPIC, first.topic)
        facts["waits"] = _wait(first)
    elif before := [each for each in kept if each.properties.get(REAL_TOPIC) == first.topic]:
        facts["before"] = f"{WAITING[before[0].topic]} since {time_text(before[0].store_timestamp)}"
    if len(found) > 1:
        facts["copies"] = f"{len(found)}: the sender tried again, and each copy is consumed"
    return facts


def _place(message: ReceivedMessage[bytes]) -> dict[str, Any]:
    queue = message.queue
    return {
        "born": time_text(message.born_timestamp),
        "stored": time_text(message.store_timestamp),
        "place": f"{queue.broker_name} queue {queue.queue_id} offset {message.queue_offset}",
        "tags": message.tags,
        "keys": " ".join(message.keys),
    }


def _wait(message: ReceivedMessage[bytes]) -> str:
    if message.topic == TRANS_HALF_TOPIC:
        return "half message of a transaction: it is not committed, or it was rolled back"
    level = message.properties.get(DELAY)
    how = f" at level {level}" if level is not None else ""
    return f"{WAITING[message.topic]}{how}: no group can read it yet"


async def _groups(
    admin: AdminEngine, message: ReceivedMessage[bytes], kept: Messages, group: str | None
) -> list[dict[str, str]]:
    names = await admin.topic_groups(message.topic) if group is None else [group]
    stories = [await group_story(admin, name, message, kept) for name in names]
    return [{"group": each.group, "state": each.state, "detail": each.detail} for each in stories]


def _trace(body: str, wanted: str) -> list[str]:
    try:
        contexts = decode_records(body)
    except TraceRecordError:
        return []
    return [_event(each) for each in contexts if any(bean.msg_id == wanted for bean in each.beans)]


def _event(event: TraceContext) -> str:
    moment, took = time_text(event.timestamp), f"in {event.cost_time} ms"
    match event.trace_type:
        case TraceType.PUB:
            return f"{moment} producer group {event.group} {'sent' if event.success else 'failed to send'} it {took}"
        case TraceType.SUB_BEFORE:
            return f"{moment} consumer group {event.group} got it"
        case TraceType.SUB_AFTER:
            known = event.context_code in ConsumeReturnType.__members__.values()
            word = ConsumeReturnType(event.context_code).name if known else str(event.context_code)
            return f"{moment} consumer group {event.group} ended with {word} {took}"
        case _:
            return f"{moment} producer group {event.group}: {event.beans[0].transaction_state}"
