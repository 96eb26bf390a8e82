"""The pages of consumer groups: the list, one group with its lag and members, and the reset of its offsets."""

from datetime import datetime

from rocketd.client.errors import RocketMQError, check_group, check_response
from rocketd.client.instance.all_of import all_of
from rocketd.client.queries.inspection import GroupClient, QueueProgress, consumers_at, groups_at, progress_at
from rocketd.common.names import DLQ_PREFIX, RETRY_PREFIX
from rocketd.console.errors import ConsoleError, NotFoundError
from rocketd.console.pages.each_master import each_master
from rocketd.console.pages.elements import (
    Cell,
    Element,
    Facts,
    Form,
    Heading,
    Input,
    Link,
    Links,
    Notice,
    Redirect,
    Table,
    View,
)
from rocketd.console.pages.links import link_of_group, link_of_topic
from rocketd.console.pages.paging import page_of
from rocketd.console.pages.topic_names import is_own_group
from rocketd.console.pages.visit import MAX_ROWS, Visit, moment_text
from rocketd.protocol.cluster import MASTER
from rocketd.remoting.bodies.groups import GroupProblems
from rocketd.remoting.bodies.tables import MessageQueue, SubscriptionGroupConfig
from rocketd.remoting.headers.admin import GroupProblemsRequestHeader
from rocketd.remoting.wire.codes import RequestCode

GROUPS = Link("Groups", "/groups")
_GroupState = tuple[SubscriptionGroupConfig | None, dict[MessageQueue, QueueProgress], set[GroupClient]]
"""What one broker tells about a group: its settings, its progress and its clients."""


async def group_list(visit: Visit) -> View:
    """Return the list of groups, or those with a text in their name."""
    wanted = visit.text("find")
    client = visit.cluster.client
    answers, notices = await each_master(visit.cluster, lambda address: groups_at(client, address))
    groups = sorted({name: config for answer in answers for name, config in answer.items()}.items())
    found = [(name, config) for name, config in groups if wanted.lower() in name.lower() and is_own_group(name)]
    shown, links = page_of(visit, found, GROUPS.path, {"find": wanted})
    search = Form("Find groups", GROUPS.path, "Find", [Input("find", "Part of the name", value=wanted)])
    table = Table(
        f"{len(found):,} groups",
        [Heading("Group"), Heading("May consume"), Heading("Retries", True), Heading("Retry queues", True)],
        [
            [
                link_of_group(name),
                "yes" if config.consume_enable else "no",
                config.retry_max_times,
                config.retry_queue_nums,
            ]
            for name, config in shown
        ],
        empty="No group has such a name.",
    )
    return View("Groups", [*notices, search, table, *links])


async def group_page(visit: Visit) -> View:
    """Return the page of one group."""
    group = visit.required("name")
    check_group(group)
    client = visit.cluster.client

    async def state(address: str) -> _GroupState:
        return (
            (await groups_at(client, address)).get(group),
            await progress_at(client, address, group),
            await consumers_at(client, address, group),
        )

    answers, notices = await each_master(visit.cluster, state)
    config = next((config for config, _, _ in answers if config is not None), None)
    progress = dict(sorted(pair for _, table, _ in answers for pair in table.items()))
    members = sorted({each for _, _, clients in answers for each in clients}, key=lambda each: each.client_id)
    if config is None and not progress and not members and not notices:
        raise NotFoundError(f"No broker knows the group {group}.")
    facts = Facts(
        "Group",
        [
            ("Behind", sum(each.behind for each in progress.values())),
            ("Members online", len(members)),
            ("May consume", None if config is None else "yes" if config.consume_enable else "no"),
            ("Retries of a message", None if config is None else config.retry_max_times),
        ],
    )
    shown, links = page_of(visit, list(progress.items()), "/group", {"name": group})
    lag = Table(
        "Lag by queue",
        [
            Heading("Topic"),
            Heading("Broker"),
            Heading("Queue", True),
            Heading("Offset", True),
            Heading("End", True),
            Heading("Behind", True),
            Heading("Last consumed was stored"),
        ],
        [
            [
                link_of_topic(queue.topic),
                queue.broker_name,
                queue.queue_id,
                each.consumed,
                each.end,
                each.behind,
                moment_text(each.last_consumed_at),
            ]
            for queue, each in shown
        ],
        empty="The group has no offsets.",
        note="Messages that the group does not select by its tags are counted, too.",
    )
    clients = Table(
        "Members",
        [Heading("Client"), Heading("Address"), Heading("Language"), Heading("Version", True)],
        [[each.client_id, each.address, each.language, str(each.version)] for each in members[:MAX_ROWS]],
        empty="No member is online.",
    )
    elements: list[Element] = [*notices, *await _problems(visit, group), facts, lag, *links, clients]
    elements.append(Links("Of this group", [Link("Dead letters", "/dead-letters", {"group": group})]))
    topics = sorted({queue.topic for queue in progress if not queue.topic.startswith((RETRY_PREFIX, DLQ_PREFIX))})
    if not visit.read_only:
        elements.append(_reset_form(group, topics))
    return View(f"Group {group}", elements, above=[GROUPS])


async def _problems(visit: Visit, group: str) -> list[Element]:
    """Return the problems of a group that brokers of rocketd have found. Those of Apache do not look for any."""
    header = GroupProblemsRequestHeader(consumer_group=group)

    async def problems(name: str, address: str) -> list[Element]:
        try:
            answer = await visit.cluster.client.ask(address, RequestCode.GET_GROUP_PROBLEMS, header)
            found = GroupProblems.decode(check_response(address, answer).body).problems
        except RocketMQError:
            return []
        return [Notice("warning", f"{name}: {problem.text}") for problem in found[:MAX_ROWS]]

    answers = await all_of(
        problems(broker.broker_name, broker.broker_addrs[MASTER])
        for broker in await visit.cluster.admin.brokers()
        if MASTER in broker.broker_addrs
    )
    return [notice for answer in answers for notice in answer][:MAX_ROWS]


def _reset_form(group: str, topics: list[str]) -> Form:
    chosen = (
        Input("topic", "Topic", "choice", choices=[(topic, topic) for topic in topics])
        if topics
        else Input("topic", "Topic", required=True)
    )
    return Form(
        "Reset the offsets",
        "/group/reset",
        "Preview",
        [
            chosen,
            Input(
                "to",
                "To",
                "choice",
                choices=[
                    ("latest", "the end: skip all messages"),
                    ("earliest", "the beginning: consume all messages again"),
                    ("time", "a time"),
                ],
            ),
            Input("moment", "Time", help="In UTC, like 2026-01-31T09:30."),
        ],
        {"group": group},
    )


def _target(visit: Visit) -> datetime | str:
    """Return the target of a reset. Raises ConsoleError."""
    to = visit.one_of("to", "latest", "earliest", "time")
    if to != "time":
        return to
    moment = visit.moment("moment")
    if moment is None:
        raise ConsoleError("Give the time.")
    return moment


async def reset_preview(visit: Visit) -> View:
    """Return what a reset would change, and the form that does it."""
    group, topic = visit.required("group"), visit.required("topic")
    target = _target(visit)
    admin = visit.cluster.admin
    after = await admin.reset_offsets(group, topic, target, dry_run=True)  # type: ignore[arg-type]
    before = await admin.group_progress(group, topic)
    rows: list[list[Cell]] = []
    for queue, offset in after.items():
        now = before[queue].consumed if queue in before else None
        rows.append([queue.broker_name, queue.queue_id, now, offset, None if now is None else offset - now])
    table = Table(
        f"Offsets of {group} in {topic}",
        [
            Heading("Broker"),
            Heading("Queue", True),
            Heading("Offset now", True),
            Heading("Offset after", True),
            Heading("Difference", True),
        ],
        rows[:MAX_ROWS],
        note="A negative difference is the number of messages that are consumed again, a positive one that of skipped ones.",
    )
    hidden = {"group": group, "topic": topic, "to": visit.text("to"), "moment": visit.text("moment")}
    form = Form("Change these offsets", "/group/reset", "Reset", hidden=hidden, change=True, danger=True)
    members: list[Element] = []
    try:
        online = len(await admin.consumers(group))
    except RocketMQError:
        online = 0
    if group not in await admin.groups():
        members.append(Notice("warning", f"No broker knows the group {group}. Check its name."))
    if online:
        members.append(Notice("warning", f"{online} members are online. The brokers tell them the new offsets."))
    return View("Preview of a reset", [*members, table, form], above=[GROUPS, link_of_group(group)])


async def reset(visit: Visit) -> Redirect:
    """Reset the offsets of a group."""
    group, topic = visit.required("group"), visit.required("topic")
    await visit.cluster.admin.reset_offsets(group, topic, _target(visit))  # type: ignore[arg-type]
    return Redirect("/group", {"name": group}, "reset")
