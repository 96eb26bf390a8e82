"""The pages of messages: a search by id, key and time, and one message with its body, properties and consumers."""

from typing import cast

from rocketd.client.errors import RocketMQError
from rocketd.client.messages.message import ReceivedMessage
from rocketd.client.queries.messages import all_by_unique_key
from rocketd.common.sysflag import COMPRESSED
from rocketd.console.errors import NotFoundError
from rocketd.console.pages.bodies import Shape, preview, shape_of, shown
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
    Table,
    Verbatim,
    View,
)
from rocketd.console.pages.links import link_of_message, link_of_topic
from rocketd.console.pages.reading import between, by_key, newest
from rocketd.console.pages.visit import MAX_ROWS, Visit, time_text

MAX_MESSAGES = 50
"""Messages that a search returns."""
MAX_GROUPS = 20
"""Groups that are asked whether they have consumed a message."""
_WAYS = ("newest", "id", "key", "time")


async def message_search(visit: Visit) -> View:
    """Return the search, with the messages found if a topic is given."""
    topic, by = visit.text("topic"), visit.one_of("by", *_WAYS)
    value, begin, until = visit.text("value"), visit.moment("begin"), visit.moment("until")
    form = Form(
        "Find messages",
        "/messages",
        "Find",
        [
            Input("topic", "Topic", value=topic, required=True),
            Input(
                "by",
                "By",
                "choice",
                by,
                choices=[
                    ("newest", "the newest ones"),
                    ("id", "message id"),
                    ("key", "key"),
                    ("time", "time of storing"),
                ],
            ),
            Input("value", "Id or key", value=value),
            Input("begin", "Stored from", value=visit.text("begin"), help="In UTC, like 2026-01-31T09:30."),
            Input("until", "Stored before", value=visit.text("until")),
        ],
    )
    if not topic:
        return View("Messages", [form])
    cluster, more = visit.cluster, False
    if by == "newest":
        answer = await newest(cluster, topic, MAX_MESSAGES)
        found, more = answer.messages, answer.more
    elif by == "time":
        if begin is None:
            return View("Messages", [Notice("error", "Give the time from which on."), form], status=400)
        answer = await between(cluster, topic, begin, until, MAX_MESSAGES)
        found, more = answer.messages, answer.more
    elif not value:
        return View("Messages", [Notice("error", "Give the id or the key."), form], status=400)
    elif by == "key":
        answer = await by_key(cluster, topic, value, begin, until, MAX_MESSAGES)
        found, more = answer.messages, answer.more
    else:
        one = await cluster.admin.view_message(topic, value)
        found = [] if one is None else [one]
    note = f"At most {MAX_MESSAGES} messages are shown; there may be more." if more else ""
    return View("Messages", [form, message_table(f"Messages of {topic}", found, note)])


def message_table(caption: str, messages: list[ReceivedMessage[bytes]], note: str = "") -> Table:
    """Return a table of messages."""
    headings = [
        Heading("Id"),
        Heading("Stored"),
        Heading("Broker"),
        Heading("Queue", True),
        Heading("Offset", True),
        Heading("Tag"),
        Heading("Keys"),
        Heading("Body"),
    ]
    return Table(caption, headings, [_row(message) for message in messages], "No such message.", note)


def _row(message: ReceivedMessage[bytes]) -> list[Cell]:
    queue = message.queue
    return [
        link_of_message(queue.topic, message.msg_id, message.offset_msg_id),
        time_text(message.store_timestamp),
        queue.broker_name,
        queue.queue_id,
        message.queue_offset,
        message.tags,
        " ".join(message.keys),
        preview(message.body, bool(message.sys_flag & COMPRESSED)),
    ]


async def message_page(visit: Visit) -> View:
    """Return the page of one message."""
    topic, wanted, place = visit.required("topic"), visit.required("id"), visit.text("place")
    message = await _at_place(visit, topic, wanted, place) if place else None
    if message is None:
        message = await visit.cluster.admin.view_message(topic, place or wanted)
    if message is None:
        raise NotFoundError(f"Topic {topic} has no message with the id {wanted}. It may have expired.")
    return View(
        f"Message {message.msg_id}",
        [
            *described(message, visit, {"topic": topic, "id": wanted, "place": place}),
            *await _consumed_by(visit, message),
        ],
        above=[Link("Messages", "/messages"), link_of_topic(topic)],
    )


async def _at_place(visit: Visit, topic: str, number: str, place: str) -> ReceivedMessage[bytes] | None:
    """Return the message at a place by its unique id; None if the index does not have it.

    Accounts that may read the topic may ask so. A question by place (request 33) can need an admin.
    """
    if number == place:
        return None  # it has no unique id
    found = await all_by_unique_key(visit.cluster.client, topic, number)
    return next((message for message in found if message.offset_msg_id == place), None)


def described(
    message: ReceivedMessage[bytes], visit: Visit, query: dict[str, str], path: str = "/message"
) -> list[Element]:
    """Return the facts, the body and the properties of a message. ``path`` and ``query`` lead to this page."""
    queue = message.queue
    facts = Facts(
        "Message",
        [
            ("Topic", message.topic),
            ("Broker and queue", f"{queue.broker_name} queue {queue.queue_id} offset {message.queue_offset}"),
            ("Id of its place", message.offset_msg_id),
            ("Tag", message.tags),
            ("Keys", " ".join(message.keys) or None),
            ("Born", f"{time_text(message.born_timestamp) or 'unknown'} at {message.born_host}"),
            ("Stored", f"{time_text(message.store_timestamp) or 'unknown'} at {message.store_host}"),
            ("Retries", message.reconsume_times),
            ("Bytes of the body", len(message.body)),
        ],
    )
    own = shape_of(message.body)
    shape = cast(Shape, visit.one_of("as", own, "text", "json", "hex"))
    shapes = Links(
        "Shapes of the body", [Link(f"as {each}", path, {**query, "as": each}) for each in ("text", "json", "hex")]
    )
    table = sorted(message.properties.items())
    note = f"{MAX_ROWS} of {len(table):,} properties are shown." if len(table) > MAX_ROWS else ""
    properties = Table("Properties", [Heading("Name"), Heading("Value")], table[:MAX_ROWS], note=note)
    return [facts, Verbatim(f"Body as {shape}", shown(message.body, shape)), shapes, properties]


async def _consumed_by(visit: Visit, message: ReceivedMessage[bytes]) -> list[Element]:
    """Return which groups are past a message. Each answers for itself, so one failure does not hide the others."""
    queue = message.queue
    admin = visit.cluster.admin
    rows: list[list[Cell]] = []
    try:
        groups = await admin.topic_groups(queue.topic)
    except RocketMQError as error:
        return [Notice("warning", f"The consumer groups are unknown: {error}")]
    for group in groups[:MAX_GROUPS]:
        try:
            progress = (await admin.group_progress(group, queue.topic)).get(queue)
        except RocketMQError as error:
            rows.append([Link(group, "/group", {"name": group}), f"unknown: {error}", None])
            continue
        if progress is None:
            state = "has no offset in this queue"
        else:
            state = "is past it" if progress.consumed > message.queue_offset else "has not reached it"
        rows.append([Link(group, "/group", {"name": group}), state, None if progress is None else progress.consumed])
    note = "A group that is past a message has consumed it, has given it back for a retry, or does not select its tag."
    headings = [Heading("Group"), Heading("State"), Heading("Offset of the group", True)]
    return [Table("Consumer groups", headings, rows, "No group consumes this topic.", note if rows else "")]
