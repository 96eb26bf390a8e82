"""The console at a real cluster, asked by HTTP."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from http.client import HTTPConnection

import pytest

from rocketd.client import Credentials, MessageQueue
from rocketd.client.messages import received
from rocketd.client.messages.received import unpack
from rocketd.client.sync import Admin, Consumer, Message, Producer
from rocketd.common.settings.declaration import ConfigError
from rocketd.common.sysflag import COMPRESSED
from rocketd.console.gate import MAX_BODY_BYTES
from rocketd.console.pages.brokers import shown_settings
from rocketd.console.sessions import FAILURES
from rocketd.console.settings import ConsoleSettings
from rocketd.console.web import CHANGES, PAGES
from rocketd.remoting.wire.codes import RequestCode
from rocketd.testing import Cluster
from tests.support.console import TIMEOUT_SECONDS, console_at

ACCOUNTS = """\
accounts:
- {accessKey: adminKey, secretKey: adminSecret1, admin: true}
- {accessKey: readerKey, secretKey: readerSecret, topicPerms: [Orders=SUB]}
- {accessKey: listKey, secretKey: listSecret1, topicPerms: [Orders=SUB], groupPerms: [TOOLS_CONSUMER=SUB]}
- {accessKey: whiteKey, secretKey: whiteSecret1, admin: true, whiteRemoteAddress: 127.0.0.1}
"""


HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

OF_BROKERS = (
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_TOPIC_STATS_INFO,
)
"""Requests that the pages below send to brokers, and not to name servers."""
EVIL = "<script>alert('1')</script>\u202e\x07"


class WarehouseError(Exception):
    """The cause of the dead letters."""


@pytest.fixture(scope="module")
def cluster():
    """A cluster with messages whose texts are hostile, and two dead letters."""
    with Cluster(topics=["Orders", "Parcels", "Boxes", "Old"]) as cluster:
        options = cluster.client_options()

        def fail(message):
            raise WarehouseError(EVIL)

        with (
            Producer("shop", **options) as producer,
            Consumer("warehouse", topics="Parcels", handler=fail, max_reconsume_times=0, **options),
        ):
            queue = MessageQueue("Orders", "broker-a", 2)
            for body, tag in ((b'{"pears": [1, 2]}', None), (EVIL.encode(), "<i>"), (b"\xff\x00\x10", None)):
                producer.send(Message("Orders", body, tag, ["<b>key"], {"<u>name": EVIL.strip("\x07")}), queue=queue)
            for body in (b"first", b"second"):
                producer.send(Message("Parcels", body))
            cluster.settle()
        yield cluster


@pytest.fixture(scope="module")
def browsers(cluster):
    with console_at(cluster) as browsers:
        yield browsers


BEHIND_PROXY = {"console_login": "accounts", "console_url": "https://ops.example.org/mq"}


@pytest.fixture(scope="module")
def guarded_cluster(tmp_path_factory):
    """A cluster with accounts."""
    home = tmp_path_factory.mktemp("home")
    (home / "conf").mkdir()
    (home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    (home / "conf" / "plain_acl.yml").chmod(0o600)
    with Cluster(
        topics=["Orders"], broker={"aclEnable": True, "aclStrict": True, "rocketmqHome": str(home)}
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def guarded(guarded_cluster):
    """Browsers for a console whose cluster has accounts, behind a proxy with TLS."""
    with console_at(guarded_cluster, **BEHIND_PROXY) as browsers:
        yield browsers


class Marks(HTMLParser):
    """Collects the faults of a page that a browser would pass over in silence."""

    void = frozenset(("meta", "link", "input"))

    def __init__(self, html):
        super().__init__()
        self.open, self.faults, self.ids, self.labels = [], [], set(), set()
        self.feed(html)
        self.close()
        self.faults += [f"{name} is not closed" for name in self.open]
        self.faults += [f"label for {name}" for name in self.labels - self.ids]

    def handle_starttag(self, tag, attrs):
        table = dict(attrs)
        if table.get("id") in self.ids:
            self.faults.append(f"two elements {table['id']}")
        self.ids.update([table["id"]] if "id" in table else [])
        self.labels.update(table[name] for name in ("for", "aria-labelledby", "aria-describedby") if name in table)
        if tag in ("script", "style") or any(name.startswith("on") or name == "style" for name in table):
            self.faults.append(f"{tag} with a script or style")
        if tag == "th" and "scope" not in table:
            self.faults.append("th without scope")
        if tag == "form" and table["method"] == "post" and "token" not in table.get("class", ""):
            self.open.append("token")
        if tag == "input" and table.get("name") == "token" and "token" in self.open:
            self.open.remove("token")
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"unexpected end of {tag}")


def assert_sound(answer):
    assert Marks(answer.html).faults == [], answer.html
    for name, value in HEADERS.items():
        assert answer.headers[name] == value


# ------------------------------------------------------------ without accounts


def test_overview_shows_brokers_and_totals(browsers):
    answer = browsers().get("/")
    assert answer.status == 200
    assert_sound(answer)
    assert "Topics of applications 4 Consumer groups 1 " in answer.text
    assert re.search(r"broker-a DefaultCluster 0 master \S+ V4_9_7", answer.text)
    assert answer.headers["refresh"] is None
    assert browsers().get("/", refresh="on").headers["refresh"] == "10"


def test_topics_are_listed_and_found(browsers):
    answer = browsers().get("/topics")
    assert_sound(answer)
    assert '<a href="/topic?name=Orders">Orders</a>' in answer.html
    assert "TBW102" not in answer.text
    assert "TBW102" in browsers().get("/topics", system="yes").text
    assert "Orders" in browsers().get("/topics", find="oRD").text
    assert "No topic has such a name." in browsers().get("/topics", find="<b>").text


def test_topic_page_shows_queues_and_route(browsers):
    answer = browsers().get("/topic", name="Orders")
    assert answer.status == 200
    assert_sound(answer)
    assert "Queues 4" in answer.text
    assert "broker-a 4 4 read and write 0: " in answer.text


@pytest.mark.parametrize(
    ("path", "query", "status", "text"),
    [
        ("/topic", {"name": "Nope"}, 404, "Nope"),
        ("/topic", {}, 400, "The parameter name is missing."),
        ("/topic", {"name": "<script>alert(1)</script>"}, 400, "<script>alert(1)</script>"),
        ("/topics", {"page": "x"}, 400, "page=x: accepted is a whole number"),
        ("/nope", {}, 404, "This page does not exist."),
    ],
)
def test_fault_is_a_plain_page(browsers, path, query, status, text):
    answer = browsers().get(path, **query)
    assert answer.status == status
    assert_sound(answer)
    assert text in answer.text.replace("\\", "")


# ------------------------------------------------------------ messages


def test_newest_messages_are_shown_without_a_group(browsers, cluster):
    answer = browsers().get("/messages", topic="Orders")
    assert_sound(answer)
    assert '{"pears": [1, 2]}' in answer.text
    assert "(3 binary bytes)" in answer.text
    assert "<i> <b>key" in answer.text
    assert answer.html.count('href="/message?') == 3
    assert browsers().get("/messages", topic="Old").text.count("No such message.") == 1


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"by": "key", "value": "<b>key"}, 3),
        ({"by": "key", "value": "other"}, 0),
        ({"by": "time", "begin": "1970-01-01T00:00"}, 3),
        ({"by": "time", "begin": "2500-01-01"}, 0),
        ({"by": "time", "begin": "1970-01-01T00:00", "until": "1970-01-02"}, 0),
        ({"by": "id", "value": "nothing"}, 0),
    ],
)
def test_messages_are_found_by_key_time_and_id(browsers, query, count):
    answer = browsers().get("/messages", topic="Orders", **query)
    assert answer.status == 200
    assert_sound(answer)
    assert answer.html.count('href="/message?') == count


@pytest.mark.parametrize(
    "query",
    [
        {"topic": "Orders", "by": "id"},
        {"topic": "Orders", "by": "time"},
        {"topic": "Orders", "by": "time", "begin": "yesterday"},
        {"topic": "Orders", "by": "time", "begin": "9999-12-31T23:59:59-14:00"},
        {"topic": "Orders", "by": "time", "begin": "0001-01-01T00:00+14:00"},
        {"topic": "Orders", "by": "hash"},
        {"topic": "x" * 1000},
    ],
)
def test_search_without_what_it_needs_is_refused(browsers, query):
    answer = browsers().get("/messages", **query)
    assert answer.status == 400
    assert_sound(answer)


def message_of(cluster, number):
    return cluster.messages("Orders")[number]


def test_message_page_shows_body_properties_and_consumers(browsers, cluster):
    message = message_of(cluster, 0)
    for number in (message.msg_id, message.offset_msg_id):
        answer = browsers().get("/message", topic="Orders", id=number)
        assert answer.status == 200
        assert_sound(answer)
        assert 'Body as json { "pears": [ 1, 2 ] }' in answer.text
        assert "<u>name <script>alert" in answer.text
    assert "7b 22 70 65" in browsers().get("/message", topic="Orders", id=message.msg_id, **{"as": "hex"}).text
    assert '{"pears": [1, 2]}' in browsers().get("/message", topic="Orders", id=message.msg_id, **{"as": "text"}).text
    assert browsers().get("/message", topic="Orders", id="nothing").status == 404


def test_hostile_texts_are_escaped_and_made_visible(browsers, cluster):
    for shape in ("text", "json", "hex"):
        answer = browsers().get("/message", topic="Orders", id=message_of(cluster, 1).msg_id, **{"as": shape})
        assert_sound(answer)
        assert "<script" not in answer.html
        assert "\u202e" not in answer.html
        assert "\\u202e" in answer.text


def test_compressed_bodies_stay_so_in_lists(browsers, cluster):
    with Producer("shop", compress_over=10, **cluster.client_options()) as producer:
        sent = producer.send(Message("Packed", b"pears " * 1000, keys=["K"]))
    cluster.settle()
    for query in ({}, {"by": "key", "value": "K"}, {"by": "time", "begin": "2000-01-01"}):
        assert re.search(r"K \(\d+ compressed bytes\)", browsers().get("/messages", topic="Packed", **query).text)
    assert "pears pears" in browsers().get("/message", topic="Packed", id=sent.msg_id).text


def test_many_properties_are_cut(browsers, cluster):
    with Producer("shop", **cluster.client_options()) as producer:
        sent = producer.send(Message("Wide", b"x", properties={f"p{number}": "v" for number in range(300)}))
    cluster.settle()
    answer = browsers().get("/message", topic="Wide", id=sent.msg_id)
    assert_sound(answer)
    assert re.search(r"100 of 30\d properties are shown", answer.text)


def test_groups_that_are_past_a_message_are_told(browsers, cluster):
    message = cluster.messages("Parcels")[0]
    answer = browsers().get("/message", topic="Parcels", id=message.msg_id)
    assert "warehouse is past it 1" in answer.text


# ------------------------------------------------------------ groups


def test_groups_are_listed_with_lag_and_members(browsers, cluster):
    assert "warehouse yes 16 1" in browsers().get("/groups", find="WARE").text
    assert "TOOLS_CONSUMER" not in browsers().get("/groups").text
    answer = browsers().get("/group", name="warehouse")
    assert_sound(answer)
    assert re.search(r"Parcels broker-a \d 1 1 0 ", answer.text)
    assert "No member is online." in answer.text
    with Consumer("warehouse", topics="Parcels", handler=print, **cluster.client_options()):
        cluster.settle()
        assert re.search(r"\S+ 127\.0\.0\.1:\d+ \S+ 407 ", browsers().get("/group", name="warehouse").text)
    assert browsers().get("/group", name="nobody").status == 404


def test_problems_of_a_group_are_shown(browsers, cluster):
    options = cluster.client_options()
    with (
        Consumer("twins", topics="Old", handler=print, **options),
        Consumer("twins", topics={"Old": "fruit"}, handler=print, **cluster.client_options(instance_name="other")),
    ):
        cluster.advance(minutes=3)
        answer = browsers().get("/group", name="twins")
    assert_sound(answer)
    assert re.search("broker-a: .*subscri", answer.text)


def lag_of(browser):
    return re.findall(r"Parcels broker-a \d \d+ \d+ \d+ ", browser.get("/group", name="warehouse").text)


def test_reset_of_offsets_is_previewed_then_done(browsers):
    browser = browsers()
    for to, moment, consumed in (("earliest", "", 0), ("latest", "", 1), ("time", "1970-01-01T00:00", 0)):
        fields = {"group": "warehouse", "topic": "Parcels", "to": to, "moment": moment}
        before = lag_of(browser)
        answer = browser.get("/group/reset", **fields)
        assert answer.status == 200
        assert_sound(answer)
        assert lag_of(browser) == before
        answer = browser.post("/group/reset", **fields)
        assert answer.location == "/group?name=warehouse&done=reset"
        shown = browser.get(answer.location).text
        assert "The offsets are reset." in shown
        assert re.search(rf"Parcels broker-a \d {consumed} 1 ", shown)
    assert (
        "No broker knows the group other."
        in browser.get("/group/reset", group="other", topic="Parcels", to="latest").text
    )
    assert browser.get("/group/reset", group="warehouse", topic="Parcels", to="time").status == 400
    assert browser.post("/group/reset", group="warehouse", topic="Nope", to="latest").status == 404


# ------------------------------------------------------------ changes of topics


def test_topic_is_created_changed_and_deleted(browsers, cluster):
    browser = browsers()
    assert_sound(browser.get("/topic/new"))
    fields = {"name": "Made", "queues": "2", "permission": "4"}
    assert browser.post("/topic/save", **fields).location == "/topic?name=Made&done=created"
    assert "broker-a 2 2 read 0: " in browser.get("/topic", name="Made", done="created").text
    answer = browser.post("/topic/save", **fields)
    assert answer.status == 400
    assert "exists already" in answer.text
    browser.post("/topic/save", name="Made", queues="3", permission="6", was="old")
    cluster.settle()
    assert "broker-a 3 3 read and write 0: " in browser.get("/topic", name="Made").text
    answer = browser.get("/topic/delete", name="Made")
    assert_sound(answer)
    assert "Messages 0" in answer.text
    assert browser.post("/topic/delete", name="Made").location == "/topics?done=deleted"
    assert browser.get("/topic", name="Made").status == 404
    assert browser.post("/topic/delete", name="Made").status == 404
    assert browser.post("/topic/save", name="Made", queues="3", was="old").status == 404


def test_changes_are_shown_the_newest_first(browsers, cluster):
    browser = browsers()
    browser.get("/topic/new")
    assert browser.post("/topic/save", name="Noted", queues="2").status == 303
    with Admin(**cluster.client_options()) as admin:
        admin.put_kv("SPACE", "<b>", EVIL)
    answer = browser.get("/audit")
    assert answer.status == 200
    assert_sound(answer)
    newer, older = answer.text.index("set key-value entry SPACE/<b>"), answer.text.index("set topic Noted")
    assert newer < older
    assert "alert" in answer.text
    drop = cluster.drop(RequestCode.GET_ADMIN_CHANGES, what="connection")
    answer = browser.get("/audit")
    drop.end()
    assert answer.status == 502
    assert_sound(answer)


def test_change_of_a_topic_leaves_what_was_not_changed(browsers, cluster):
    browser = browsers()
    browser.get("/topic/new")
    browser.post("/topic/save", name="Kept", queues="2", permission="6")
    with Admin(**cluster.client_options()) as admin:
        admin.wipe_write_permission("broker-a")
        cluster.settle()
        answer = browser.get("/topic", name="Kept")
        assert_sound(answer)
        assert "broker-a 2 2 read 0: " in answer.text
        assert '<option value="" selected' in answer.html or '<option value="">' in answer.html
        assert browser.post("/topic/save", name="Kept", queues="3", permission="", was="old").status == 303
        admin.add_write_permission("broker-a")
    cluster.settle()
    assert "broker-a 3 3 read and write 0: " in browser.get("/topic", name="Kept").text
    browser.post("/topic/save", name="Kept", queues="", permission="4", was="old")
    cluster.settle()
    assert "broker-a 3 3 read 0: " in browser.get("/topic", name="Kept").text
    assert browser.post("/topic/save", name="Kept", queues="", permission="", was="old").status == 400
    browser.post("/topic/delete", name="Kept")


def test_topic_with_many_queues_has_pages_and_bounded_reads(browsers, cluster):
    browser = browsers()
    browser.get("/topic/new")
    browser.post("/topic/save", name="Broad", queues="130")
    answer = browser.get("/topic", name="Broad")
    assert_sound(answer)
    assert len(re.findall(r"broker-a \d+ 0 0 0 ", answer.text)) == 100
    assert "Next page" in answer.text
    assert "Previous page" in browser.get("/topic", name="Broad", page="2").text
    assert "there may be more" in browser.get("/messages", topic="Broad").text
    browser.post("/topic/delete", name="Broad")


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "", "queues": "1"},
        {"name": "a b", "queues": "1"},
        {"name": "TBW102", "queues": "1"},
        {"name": "New", "queues": "0"},
        {"name": "New", "queues": "99999"},
        {"name": "New", "queues": "1", "permission": "7"},
        {"name": "New", "queues": "1", "cluster": "elsewhere"},
    ],
)
def test_unsuitable_topic_is_not_created(browsers, fields):
    browser = browsers()
    browser.get("/topic/new")
    answer = browser.post("/topic/save", **fields)
    assert answer.status == 400
    assert_sound(answer)
    assert "New" not in browser.get("/topics").text


def test_test_message_is_sent(browsers, cluster):
    browser = browsers()
    browser.get("/topic", name="Old")
    answer = browser.post(
        "/topic/send", name="Old", body="pears\r\nplums", tag="fruit", keys="A17 B", properties="a = b=c"
    )
    assert answer.status == 303, answer.text
    answer = browser.get(answer.location)
    assert "The message is sent." in answer.text
    assert "Tag fruit" in answer.text
    (message,) = cluster.messages("Old")
    assert (message.body, message.keys, message.properties["a"]) == (b"pears\nplums", ["A17", "B"], "b=c")
    for fields in ({"properties": "nothing"}, {"properties": "KEYS=x"}, {"properties": "a=b\n" * 60}, {"name": "Nope"}):
        assert browser.post("/topic/send", **{"name": "Old", "body": "x", **fields}).status in (400, 404)
    assert len(cluster.messages("Old")) == 1


# ------------------------------------------------------------ dead letters


def test_dead_letters_are_shown_by_cause(browsers):
    assert 'href="/dead-letters?group=warehouse"' in browsers().get("/dead-letters").html
    answer = browsers().get("/dead-letters", group="warehouse")
    assert_sound(answer)
    assert re.search(r"test_console_pages\.WarehouseError 2 ", answer.text)
    assert answer.html.count('href="/dead-letter?') == 2
    chosen = re.search(r'href="/dead-letters\?(group=warehouse&amp;exception=[^"]*)"', answer.html)[1].replace(
        "&amp;", "&"
    )
    assert browsers().get(f"/dead-letters?{chosen}").html.count('href="/dead-letter?') == 2
    none = browsers().get("/dead-letters", group="warehouse", exception="OtherError")
    assert "no dead letters of this cause" in none.text
    number = re.search(r'href="/dead-letter\?group=warehouse&amp;id=(\w+)"', answer.html)[1]
    answer = browsers().get("/dead-letter", group="warehouse", id=number)
    assert_sound(answer)
    assert "WarehouseError" in answer.text
    assert "<script" not in answer.html
    assert browsers().get("/dead-letter", group="warehouse", id="nothing").status == 404


def test_dead_letters_are_sent_again_once(browsers, cluster):
    browser = browsers()
    answer = browser.get("/dead-letters/redrive", group="warehouse", to="topic")
    assert_sound(answer)
    assert "Will be sent 2" in answer.text
    before = len(cluster.messages("Parcels"))
    answer = browser.post("/dead-letters/redrive", group="warehouse", to="topic")
    assert answer.status == 200, answer.text
    assert_sound(answer)
    assert "2 letters are sent." in answer.text
    assert len(cluster.messages("Parcels")) == before + 2
    assert "Sent before 2" in browser.post("/dead-letters/redrive", group="warehouse", to="topic").text


def test_bodies_of_dead_letters_stay_compressed_except_on_the_page_of_one(browsers, cluster, monkeypatch):
    unpacked = []

    def counted(body, sys_flag):
        if sys_flag & COMPRESSED:
            unpacked.append(body)
        return unpack(body, sys_flag)

    def fail(message):
        raise WarehouseError

    options = cluster.client_options()
    with (
        Producer("shop", compress_over=10, **options) as producer,
        Consumer("packers", topics="Boxes", handler=fail, max_reconsume_times=0, **options),
    ):
        for _ in range(3):
            producer.send(Message("Boxes", b"pears " * 1000))
        cluster.settle()
    monkeypatch.setattr(received, "unpack", counted)
    browser = browsers()
    numbers = re.findall(
        r'href="/dead-letter\?group=packers&amp;id=(\w+)"', browser.get("/dead-letters", group="packers").html
    )
    assert len(numbers) == 3
    assert "Will be sent 3" in browser.get("/dead-letters/redrive", group="packers", to="topic").text
    assert (
        "1 letters are sent." in browser.post("/dead-letters/redrive", group="packers", id=numbers[0], to="topic").text
    )
    assert unpacked == []
    assert "pears pears" in browser.get("/dead-letter", group="packers", id=numbers[1]).text
    assert len(unpacked) == 1
    monkeypatch.undo()
    assert [message.body for message in cluster.messages("Boxes")] == [b"pears " * 1000] * 4


# ------------------------------------------------------------ brokers


def test_broker_page_shows_members_state_and_settings(browsers):
    answer = browsers().get("/broker", name="broker-a")
    assert answer.status == 200
    assert_sound(answer)
    assert "brokerVersionDesc V4_9_7" in answer.text
    assert "flushDiskType ASYNC_FLUSH" in answer.text
    assert browsers().get("/broker", name="broker-b").status == 404
    assert browsers().get("/broker", name="broker-a", id="7").status == 404


def test_values_of_passwords_are_hidden():
    text = "b=1\na=x=y\ntls.server.keyPassword=pears\nsecretKey=plums\naccessToken=\nno setting\n"
    assert shown_settings(text) == [
        ("a", "x=y"),
        ("accessToken", ""),
        ("b", "1"),
        ("secretKey", "(hidden)"),
        ("tls.server.keyPassword", "(hidden)"),
    ]


# ------------------------------------------------------------ read-only, and rights


@pytest.mark.parametrize("path", sorted(CHANGES))
def test_change_is_refused_if_read_only(cluster, path, read_only):
    browser = read_only()
    browser.get("/login")
    answer = browser.post(path, name="Orders", group="warehouse", topic="Parcels", queues="1", body="x")
    assert answer.status == 403
    assert "consoleReadOnly" in answer.text


@pytest.mark.parametrize("path", sorted(CHANGES))
def test_change_without_token_or_by_link_is_refused(browsers, path):
    browser = browsers()
    browser.get("/topic/new")
    assert browser.post(path, token="0" * 64, name="Orders").status == 403
    assert browser.get(path, name="Orders").status in (200, 404, 400)


@pytest.mark.parametrize(
    "path", ["/topic?name=Orders", "/group?name=warehouse", "/topics", "/dead-letters?group=warehouse"]
)
def test_pages_of_read_only_console_have_no_form_of_a_change(read_only, path):
    answer = read_only().get(path)
    assert answer.status == 200
    assert_sound(answer)
    assert 'method="post"' not in answer.html


@pytest.fixture(scope="module")
def read_only(cluster):
    with console_at(cluster, console_read_only=True) as browsers:
        yield browsers


# ------------------------------------------------------------ the rest


def test_health_and_style_need_no_session(guarded):
    assert guarded().get("/healthz").html == "ok\n"
    assert "prefers-color-scheme: dark" in guarded().get("/static/console.css").html


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:1", 200),
        ("127.0.0.1", 200),
        ("[::1]:8180", 200),
        ("192.0.2.7", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("", 421),
        ("[", 421),
    ],
)
def test_foreign_host_name_is_refused(browsers, host, status):
    assert browsers().get("/healthz", {"Host": host}).status == status


def test_host_of_console_url_is_accepted(guarded):
    assert guarded().get("/healthz", {"Host": "ops.example.org"}).status == 200
    assert guarded().get("/healthz", {"Host": "other.example.org"}).status == 421


@pytest.mark.parametrize("length", [str(MAX_BODY_BYTES + 1), "chunked"])
def test_long_or_endless_body_closes_the_connection(browsers, length):
    connection = HTTPConnection("127.0.0.1", browsers().port, timeout=TIMEOUT_SECONDS)
    connection.putrequest("POST", "/login")
    connection.putheader(*(("Transfer-Encoding", length) if length == "chunked" else ("Content-Length", length)))
    connection.endheaders()
    with pytest.raises(ConnectionError):
        connection.getresponse()
    connection.close()


# ------------------------------------------------------------ accounts


def signed_in(browsers, key="adminKey", secret="adminSecret1"):
    browser = browsers()
    assert browser.get("/mq/").location == "/mq/login"
    assert_sound(browser.get("/mq/login"))
    answer = browser.post("/mq/login", access_key=key, secret_key=secret)
    assert (answer.status, answer.location) == (303, "/mq/"), answer.text
    return browser


def test_sign_in_leads_to_the_pages_and_out_again(guarded):
    browser = signed_in(guarded)
    answer = browser.get("/mq/")
    assert_sound(answer)
    assert "adminKey Sign out" in answer.text
    # A proxy may take the base path away.
    assert browser.get("/topics").status == 200
    former = browser.cookie
    assert browser.post("/mq/logout").location == "/mq/login"
    browser.cookie = former
    assert browser.get("/mq/").status == 303


def test_second_sign_in_of_a_browser_ends_its_first_session(guarded):
    browser = signed_in(guarded)
    first = browser.cookie
    browser.get("/login")
    assert browser.post("/login", access_key="adminKey", secret_key="adminSecret1").status == 303
    assert browser.get("/").status == 200
    browser.cookie = first
    assert browser.get("/").status == 303


def test_brokers_decide_about_rights_of_an_account(guarded):
    browser = signed_in(guarded, "readerKey", "readerSecret")
    answer = browser.post("/topic/save", name="Forbidden", queues="1")
    assert answer.status == 403
    assert_sound(answer)
    assert "Forbidden" not in browser.get("/topics").text
    assert browser.get("/audit").status == 403


def test_account_with_the_group_of_tools_reads_messages_of_its_topics(guarded, guarded_cluster):
    options = guarded_cluster.client_options()
    options["cluster"] = replace(options["cluster"], credentials=Credentials("adminKey", "adminSecret1"))
    with Producer("shop", **options) as producer:
        producer.send(Message("Orders", b"pears"))
    guarded_cluster.settle()
    browser = signed_in(guarded, "listKey", "listSecret1")
    answer = browser.get("/messages", topic="Orders")
    assert answer.status == 200, answer.text
    link = re.search(r'href="/mq(/message\?[^"]*)"', answer.html)[1].replace("&amp;", "&")
    answer = browser.get(link)
    assert answer.status == 200, answer.text
    assert "pears" in answer.text
    assert signed_in(guarded, "readerKey", "readerSecret").get("/messages", topic="Orders").status == 403


@pytest.mark.parametrize("path", [*PAGES, *CHANGES])
def test_pages_lead_to_sign_in_without_a_session(guarded, path):
    browser = guarded()
    assert browser.get(path).location == "/mq/login" or path not in PAGES
    browser.get("/login")
    assert browser.post(path).location == "/mq/login" or path not in CHANGES


def test_cookie_is_new_after_sign_in_and_hidden_from_scripts(guarded):
    browser = guarded()
    browser.get("/login")
    before = browser.cookie
    answer = browser.post("/login", access_key="adminKey", secret_key="adminSecret1")
    assert browser.cookie != before
    assert {part.strip().lower() for part in answer.headers["set-cookie"].split(";")[1:]} == {
        "httponly",
        "secure",
        "samesite=strict",
        "path=/mq",
    }
    browser.cookie = before
    assert browser.get("/").status == 303


@pytest.fixture
def besieged(guarded_cluster):
    """Browsers for a console that counts only the failed sign-ins of one test."""
    with console_at(guarded_cluster, **BEHIND_PROXY) as browsers:
        yield browsers


def test_wrong_secrets_are_refused_and_then_slowed_down(besieged):
    browser = besieged()
    browser.get("/login")
    for key, secret in (("adminKey", "wrong-secret"), ("<b>nobody", "adminSecret1"), ("", ""), ("a" * 300, "b")):
        answer = browser.post("/login", access_key=key, secret_key=secret)
        assert answer.status == 403
        assert_sound(answer)
        assert "adminSecret1" not in answer.html
    for _ in range(FAILURES - 1):
        browser.post("/login", access_key="adminKey", secret_key="wrong-secret")
    good = {"access_key": "adminKey", "secret_key": "adminSecret1"}
    assert browser.post("/login", **good).status == 429
    assert browser.post("/login", {"X-Forwarded-For": "203.0.113.7, nonsense"}, **good).status == 429
    assert browser.post("/login", access_key="readerKey", secret_key="readerSecret").status == 303
    browser.get("/login")
    assert browser.post("/login", {"X-Forwarded-For": "nonsense, 203.0.113.7"}, **good).status == 303


def test_address_in_a_header_counts_only_behind_a_proxy(guarded_cluster):
    with console_at(guarded_cluster, console_login="accounts") as browsers:
        browser = browsers()
        browser.get("/login")
        for number in range(FAILURES):
            forged = {"X-Forwarded-For": f"203.0.113.{number}"}
            assert browser.post("/login", forged, access_key="adminKey", secret_key="").status == 403
        assert browser.post("/login", access_key="adminKey", secret_key="adminSecret1").status == 429


def test_sign_out_without_its_token_is_refused(guarded):
    browser = signed_in(guarded)
    assert browser.post("/logout", token="0" * 64).status == 403
    assert browser.get("/").status == 200


@pytest.mark.parametrize("token", ["", "0" * 64, "é"])
def test_form_without_its_token_is_refused(guarded, token):
    browser = guarded()
    browser.get("/login")
    answer = browser.post("/login", token=token, access_key="adminKey", secret_key="adminSecret1")
    assert answer.status == 403
    assert "comes from another site" in answer.text


def test_form_of_another_browser_or_site_is_refused(guarded):
    browser, other = guarded(), guarded()
    browser.get("/login")
    other.get("/login")
    fields = {"access_key": "adminKey", "secret_key": "adminSecret1"}
    assert browser.post("/login", token=other.token, **fields).status == 403
    assert browser.post("/login", {"Sec-Fetch-Site": "cross-site"}, **fields).status == 403


def test_sign_in_to_brokers_that_accept_every_account_is_refused(cluster):
    with console_at(cluster, console_login="accounts") as browsers:
        browser = browsers()
        browser.get("/login")
        answer = browser.post("/login", access_key="adminKey", secret_key="adminSecret1")
    assert answer.status == 403
    assert "accepts any account" in answer.text


@pytest.mark.parametrize("secret", ["whiteSecret1", "any-other-secret"])
def test_sign_in_as_an_account_that_needs_no_signature_is_refused(guarded, secret):
    browser = guarded()
    browser.get("/login")
    answer = browser.post("/login", access_key="whiteKey", secret_key=secret)
    assert answer.status == 403
    assert "accepts this access key with any secret" in answer.text
    assert browser.get("/").location == "/mq/login"


# ------------------------------------------------------------ a cluster in trouble


def test_broker_that_is_down_is_told_and_other_pages_fail_plainly():
    with Cluster(topics=["Orders"]) as cluster, console_at(cluster) as browsers:
        browser = browsers()
        drop = cluster.drop(*OF_BROKERS, what="connection")
        answer = browser.get("/")
        assert answer.status == 200
        assert_sound(answer)
        assert "The state of broker-a:0 at 127.0.0.1:10911 is unknown" in answer.text
        answer = browser.get("/topic", name="Orders")
        assert answer.status == 502
        assert_sound(answer)
        drop.end()
        cluster.kill()
        assert "No broker is registered" in browser.get("/").text
        assert browser.get("/topic", name="Orders").status in (404, 502)


def test_page_ends_when_the_cluster_takes_too_long(cluster):
    with console_at(cluster, console_timeout_millis=300) as browsers:
        drop = cluster.drop("route", 106)
        answer = browsers().get("/")
        drop.end()
        assert answer.status == 504
        assert_sound(answer)
        assert "consoleTimeoutMillis" in answer.text


# ------------------------------------------------------------ settings


@pytest.mark.parametrize(
    "options",
    [
        {"consoleHost": "0.0.0.0"},
        {"consoleHost": "ops.example.org"},
        {"consoleUrl": "https://ops.example.org"},
        {"consoleUrl": "ops.example.org", "consoleLogin": "open"},
        {"consoleUrl": "https://ops.example.org/../x", "consoleLogin": "open"},
        {"consoleClusterCa": "ca.pem"},
    ],
)
def test_settings_that_would_let_others_in_are_refused(options):
    with pytest.raises(ConfigError):
        ConsoleSettings.load(None, options.items())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"consoleHost": "localhost"},
        {"consoleHost": "0.0.0.0", "consoleLogin": "open"},
        {"consoleUrl": "https://ops.example.org/rocketmq", "consoleLogin": "accounts"},
    ],
)
def test_settings_with_a_login_or_a_plain_word_are_accepted(options):
    ConsoleSettings.load(None, options.items())
