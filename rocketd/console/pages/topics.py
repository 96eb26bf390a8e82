"""The pages of topics: the list, one topic with its queues, routes and groups, and changes of a topic."""

from rocketd.client.errors import check_response, check_topic
from rocketd.client.messages.message import Message
from rocketd.common.names import AUTO_CREATE_TOPIC, SYSTEM_TOPICS
from rocketd.common.permission import READ, WRITE
from rocketd.console.cluster import ConsoleCluster
from rocketd.console.errors import ConsoleError
from rocketd.console.pages.elements import (
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
from rocketd.console.pages.topic_names import TopicNames
from rocketd.console.pages.visit import MAX_ROWS, Visit, moment_text
from rocketd.protocol.cluster import MASTER
from rocketd.remoting.bodies.tables import TopicConfigSerializeWrapper, TopicFilterType
from rocketd.remoting.headers.client import CreateTopicRequestHeader
from rocketd.remoting.wire.codes import RequestCode

TOPICS = Link("Topics", "/topics")


MAX_QUEUES = 1024
"""Queues of a topic at one broker."""
MAX_PROPERTIES = 50
_QUEUES = "Queues at each broker"
_FEWER = "With fewer queues than before, consumers no longer get the messages of the others."
_LOOKS, _LOOK_SECONDS = 10, 0.2
_LONGEST_TEXT = 200_000
"""Characters of the body, and of the properties, of a test message."""


async def topic_list(visit: Visit) -> View:
    """Return the list of topics, or those with a text in their name."""
    wanted, with_system = visit.text("find"), visit.text("system") == "yes"
    names = await TopicNames.of(visit.cluster)
    found = [topic for topic in (names.all if with_system else names.own) if wanted.lower() in topic.lower()]
    query = {"find": wanted, "system": "yes" if with_system else ""}
    shown, links = page_of(visit, found, TOPICS.path, query)
    search = Form(
        "Find topics",
        TOPICS.path,
        "Find",
        [
            Input("find", "Part of the name", value=wanted),
            Input(
                "system",
                "Also topics of servers, retries and dead letters",
                "check",
                value="yes" if with_system else "",
            ),
        ],
    )
    table = Table(
        f"{len(found):,} topics",
        [Heading("Topic")],
        [[link_of_topic(topic)] for topic in shown],
        empty="No topic has such a name.",
    )
    new = [] if visit.read_only else [Links("Topics", [Link("Create a topic", "/topic/new")])]
    return View("Topics", [search, *new, table, *links])


async def topic_page(visit: Visit) -> View:
    """Return the page of one topic."""
    topic = visit.required("name")
    admin = visit.cluster.admin
    route = await admin.topic_route(topic)
    stats = await admin.topic_stats(topic)
    groups = await admin.topic_groups(topic)
    messages = sum(ends.max_offset - ends.min_offset for ends in stats.values())
    last = max((ends.last_stored_at for ends in stats.values() if ends.last_stored_at), default=None)
    facts = Facts(
        "Topic",
        [
            ("Messages", messages),
            ("Queues", len(stats)),
            ("Last message", moment_text(last)),
            ("Ordered topic configuration", route.order_topic_conf or None),
        ],
    )
    addresses = {broker.broker_name: broker for broker in route.broker_datas}
    routes = Table(
        "Route",
        [
            Heading("Broker"),
            Heading("Read queues", True),
            Heading("Write queues", True),
            Heading("Permission"),
            Heading("Addresses"),
        ],
        [
            [
                queue.broker_name,
                queue.read_queue_nums,
                queue.write_queue_nums,
                permission_text(queue.perm),
                ", ".join(
                    f"{number}: {address}"
                    for number, address in sorted(addresses[queue.broker_name].broker_addrs.items())
                )
                if queue.broker_name in addresses
                else None,
            ]
            for queue in route.queue_datas[:MAX_ROWS]
        ],
    )
    shown, links = page_of(visit, list(stats.items()), "/topic", {"name": topic})
    queues = Table(
        "Queues",
        [
            Heading("Broker"),
            Heading("Queue", True),
            Heading("First offset", True),
            Heading("End", True),
            Heading("Messages", True),
            Heading("Last message"),
        ],
        [
            [
                queue.broker_name,
                queue.queue_id,
                ends.min_offset,
                ends.max_offset,
                ends.max_offset - ends.min_offset,
                moment_text(ends.last_stored_at),
            ]
            for queue, ends in shown
        ],
    )
    consumers = Table(
        "Consumer groups",
        [Heading("Group")],
        [[link_of_group(group)] for group in groups[:MAX_ROWS]],
        empty="No group consumes this topic.",
    )
    related = [Link("Newest messages", "/messages", {"topic": topic})]
    elements: list[Element] = [facts, routes, queues, *links, consumers]
    if not visit.read_only:
        related.append(Link("Delete this topic", "/topic/delete", {"name": topic}))
        elements += [_change_form(topic), _send_form(topic)]
    return View(f"Topic {topic}", [Links("Of this topic", related), *elements], above=[TOPICS])


def _change_form(topic: str) -> Form:
    """Return the form to change a topic. Values left empty stay as they are, at each broker."""
    queues = Input("queues", _QUEUES, "number", help=f"Empty: leave them as they are. {_FEWER}")
    permission = Input("permission", "Permission", "choice", choices=[("", "leave as it is"), *_permissions()])
    return Form(
        "Change this topic", "/topic/save", "Change", [queues, permission], {"name": topic, "was": "old"}, change=True
    )


def _permissions() -> list[tuple[str, str]]:
    return [(str(each), permission_text(each)) for each in (READ | WRITE, READ, WRITE)]


def _send_form(topic: str) -> Form:
    return Form(
        "Send a test message",
        "/topic/send",
        "Send",
        [
            Input("body", "Body", "area", required=True),
            Input("tag", "Tag"),
            Input("keys", "Keys", help="Separated by blanks."),
            Input("properties", "Properties", "area", help="A line for each, like name=value."),
        ],
        {"name": topic},
        change=True,
    )


async def new_topic(visit: Visit) -> View:
    """Return the form that creates a topic."""
    clusters = sorted({broker.cluster for broker in await visit.cluster.admin.brokers()})
    where = [("", "all clusters"), *((name, name) for name in clusters)]
    inputs = [Input("name", "Name", required=True), Input("queues", _QUEUES, "number", "4", help=_FEWER, required=True)]
    inputs.append(Input("permission", "Permission", "choice", str(READ | WRITE), choices=_permissions()))
    if len(clusters) > 1:
        inputs.append(Input("cluster", "Cluster", "choice", choices=where))
    return View("Create a topic", [Form("Topic", "/topic/save", "Create", inputs, change=True)], above=[TOPICS])


async def save_topic(visit: Visit) -> Redirect:
    """Create or change a topic. A new one must not exist: its numbers of queues would be changed by mistake."""
    name, queues = visit.required("name"), visit.number("queues", 0, 1, MAX_QUEUES)
    permission = int(
        (visit.text("permission") and visit.one_of("permission", *(each for each, _ in _permissions()))) or 0
    )
    if visit.text("was") == "old":
        await _change(visit.cluster, name, queues, permission)
    else:
        await _create(visit.cluster, name, queues or 4, permission or READ | WRITE, visit.text("cluster") or None)
    return Redirect("/topic", {"name": name}, "created")


async def _create(cluster: ConsoleCluster, topic: str, queues: int, permission: int, where: str | None) -> None:
    """Create a topic at each master, or at those of one cluster, and wait until name servers know it."""
    check_topic(topic)
    if topic in SYSTEM_TOPICS or topic in await cluster.admin.topics():
        raise ConsoleError(f"The topic {topic} exists already. Change it on its page.")
    header = _header(topic, queues, permission)
    masters = [
        broker.broker_addrs[MASTER]
        for broker in await cluster.admin.brokers()
        if MASTER in broker.broker_addrs and where in (None, broker.cluster)
    ]
    if not masters:
        raise ConsoleError("No master is registered at the name servers.")
    for address in masters:
        check_response(address, await cluster.client.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header))
    for _ in range(_LOOKS):
        if topic in await cluster.admin.topics():
            return
        await cluster.pause(_LOOK_SECONDS)


async def _change(cluster: ConsoleCluster, topic: str, queues: int, permission: int) -> None:
    """Change a topic at its brokers. Zero leaves a value as each broker has it. The other settings stay."""
    if not (queues or permission):
        raise ConsoleError("Give the number of queues, the permission, or both.")
    for broker in (await cluster.admin.topic_route(topic)).queue_datas:
        address = cluster.client.master(broker.broker_name)
        answer = check_response(address, await cluster.client.ask(address, RequestCode.GET_ALL_TOPIC_CONFIG))
        # The route does not tell it: a drained broker is read-only there.
        known = TopicConfigSerializeWrapper.decode(answer.body).topic_config_table.get(topic)
        if known is None:
            continue
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=queues or known.read_queue_nums,
            write_queue_nums=queues or known.write_queue_nums,
            perm=permission or known.perm,
            topic_filter_type=known.topic_filter_type.value,
            topic_sys_flag=known.topic_sys_flag,
            order=known.order,
        )
        check_response(address, await cluster.client.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header))
    cluster.client.routes.forget(topic)


def _header(topic: str, queues: int, permission: int) -> CreateTopicRequestHeader:
    return CreateTopicRequestHeader(
        topic=topic,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=permission,
        topic_filter_type=TopicFilterType.SINGLE_TAG.value,
    )


async def delete_topic_preview(visit: Visit) -> View:
    """Return what the deletion of a topic would take away, and the form that does it."""
    topic = visit.required("name")
    admin = visit.cluster.admin
    stats = await admin.topic_stats(topic)
    groups = await admin.topic_groups(topic)
    facts = Facts(
        "This is deleted at all brokers",
        [
            ("Messages", sum(ends.max_offset - ends.min_offset for ends in stats.values())),
            ("Queues", len(stats)),
            ("Groups that consume it", ", ".join(groups[:MAX_ROWS]) or None),
        ],
    )
    warning = Notice("warning", "Nothing brings the messages back.")
    form = Form(f"Delete {topic}", "/topic/delete", "Delete", hidden={"name": topic}, change=True, danger=True)
    return View("Delete a topic", [facts, warning, form], above=[TOPICS, link_of_topic(topic)])


async def delete_topic(visit: Visit) -> Redirect:
    """Delete a topic with its messages."""
    topic = visit.required("name")
    await visit.cluster.admin.topic_route(topic)
    await visit.cluster.admin.delete_topic(topic)
    return Redirect("/topics", {}, "deleted")


async def send_message(visit: Visit) -> Redirect:
    """Send a test message, and lead to its page."""
    topic = visit.required("name")
    await visit.cluster.admin.topic_route(topic)  # otherwise a send would make a missing topic
    body = visit.text("body", longest=_LONGEST_TEXT).replace("\r\n", "\n")
    message = Message(topic, body.encode(), visit.text("tag") or None, visit.text("keys").split(), _properties(visit))
    result = await visit.cluster.send(message)
    return Redirect("/message", {"topic": topic, "id": result.msg_id, "place": result.offset_msg_id}, "sent")


def _properties(visit: Visit) -> dict[str, str]:
    lines = [line.strip() for line in visit.text("properties", longest=_LONGEST_TEXT).splitlines() if line.strip()]
    if len(lines) > MAX_PROPERTIES:
        raise ConsoleError(f"{len(lines)} properties: at most {MAX_PROPERTIES} are accepted.")
    pairs = [line.partition("=") for line in lines]
    for line, (name, separator, _) in zip(lines, pairs, strict=True):
        if not separator or not name.strip():
            raise ConsoleError(f"{line[:100]}: accepted is name=value.")
    return {name.strip(): value.strip() for name, _, value in pairs}


def permission_text(permission: int) -> str:
    """Return a permission in words."""
    words = [word for bit, word in ((READ, "read"), (WRITE, "write")) if permission & bit]
    return " and ".join(words) or "none"
