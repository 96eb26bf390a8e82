"""Dead letters of a group, read and sent again by the three faces of the client, with the servers of rocketd.testing."""

import asyncio
import json
import subprocess
import zlib
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import pytest_twisted
from msgspec.structs import replace
from twisted.internet.threads import deferToThread

from rocketd import client
from rocketd.client import DeadLetter, Message, RedriveResult, Reject, aio, sync
from rocketd.client.errors import IllegalGroupError, NoRouteError, RequestTimeoutError, UsageError
from rocketd.client.sync import Admin, Consumer, Producer
from rocketd.testing import Cluster
from tests.support.cli_processes import COMMAND, DEADLINE

GROUP = "CG"


class OrderError(Exception):
    """An error of an application."""


@pytest.fixture(scope="module")
def cluster():
    with Cluster(topics=["T"]) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(cluster):
    with Admin(**cluster.client_options()) as admin:
        yield admin


def fail(message):
    error = {b"missing": KeyError("A17"), b"rejected": Reject("too old"), b"wrong": OrderError("no such\norder")}
    raise error[message.body[:8].strip()]


def kill(cluster, group, *bodies, topic="T", **options):
    """Make dead letters of messages with these bodies."""
    consumer = dict(topics=topic, handler=fail, max_reconsume_times=0, **options)
    with (
        Consumer(group, **consumer, **cluster.client_options()),
        Producer("PG", **cluster.client_options()) as producer,
    ):
        for body in bodies:
            producer.send(Message(topic, body, tags="fruit", keys=["A17", "B18"], properties={"colour": "red"}))
            cluster.settle()
        cluster.advance(seconds=10)


@pytest.fixture(scope="module")
def three(cluster):
    kill(cluster, GROUP, b"missing", b"rejected", b"wrong")


def bodies(letters):
    return [letter.message.body for letter in letters]


def handled(cluster, group, topic="T"):
    """Return the messages that a group gets now."""
    got = []
    with Consumer(group, topics=topic, handler=got.append, **cluster.client_options()):
        cluster.settle()
        cluster.advance(seconds=10)
    return got


# ------------------------------------------------------------ reading


def test_dead_letters_have_reason_and_origin(cluster, admin, three):
    wrong = list(admin.dead_letters(GROUP))[-1]
    assert isinstance(wrong, DeadLetter)
    assert wrong.exception == f"{__name__}.OrderError"
    assert (wrong.reason, wrong.attempts, wrong.topic) == ("no such", 1, "T")
    assert wrong.consumer.startswith("127.0.0.1@")
    original = next(each for each in cluster.messages("T") if each.body == b"wrong")
    assert (wrong.msg_id, wrong.original_id) == (original.msg_id, original.offset_msg_id)
    assert (wrong.message.tags, wrong.message.keys) == ("fruit", ["A17", "B18"])
    assert wrong.id == cluster.messages(f"%DLQ%{GROUP}")[-1].offset_msg_id
    assert wrong.died_at >= original.stored_at


@pytest.mark.parametrize(
    ("exception", "expected"),
    [
        (KeyError, [b"missing"]),
        ("KeyError", [b"missing"]),
        (OrderError, [b"wrong"]),
        ("OrderError", [b"wrong"]),
        (f"{__name__}.OrderError", [b"wrong"]),
        ("Error", []),
    ],
)
def test_dead_letters_of_exception_are_those_of_its_class(admin, three, exception, expected):
    assert bodies(admin.dead_letters(GROUP, exception=exception)) == expected


def test_dead_letters_between_two_times_and_by_id(admin, three):
    first, second, third = admin.dead_letters(GROUP)
    assert bodies(admin.dead_letters(GROUP, since=second.died_at, until=third.died_at)) == [b"rejected"]
    assert bodies(admin.dead_letters(GROUP, since=third.died_at + timedelta(seconds=1))) == []
    assert bodies(admin.dead_letters(GROUP, ids=[first.msg_id, third.id])) == [b"missing", b"wrong"]


def test_dead_letters_of_more_than_one_pull_are_all_read_up_to_the_first_end(cluster, admin):
    kill(cluster, "Many", *(b"wrong  %4d" % n for n in range(70)))
    letters = admin.dead_letters("Many")
    read = [next(letters)]
    kill(cluster, "Many", b"rejected")
    read += letters
    assert len({letter.id for letter in read}) == len(read) == 70


def test_dead_letters_without_reason_have_attempts_of_broker(cluster, admin):
    with Producer("PG", **cluster.client_options()) as producer:
        producer.send(Message("%DLQ%Foreign", b"x"))
    cluster.settle()
    (letter,) = admin.dead_letters("Foreign")
    assert (letter.exception, letter.reason, letter.consumer, letter.attempts) == (None, None, None, 0)
    assert admin.redrive("Foreign") == RedriveResult(0, unknown_topic=1)


def test_dead_letters_of_group_without_any_are_none(admin):
    assert list(admin.dead_letters("Healthy")) == []
    assert admin.redrive("Healthy") == RedriveResult(0)


def test_dead_letters_with_wrong_arguments_are_refused_at_once(admin):
    with pytest.raises(IllegalGroupError):
        admin.dead_letters("no group")
    for wrong in ({"exception": 5}, {"exception": ""}, {"since": "now"}, {"ids": "A17"}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            admin.dead_letters(GROUP, **wrong)
    with pytest.raises(UsageError, match="to='all'"):
        admin.redrive(GROUP, to="all")


def test_dead_letters_topic_for_writing_only_is_explained(cluster, admin, three):
    topics = cluster.broker.topics
    config = topics.select(f"%DLQ%{GROUP}")
    topics.update(replace(config, perm=2))
    try:
        cluster.advance(minutes=1)
        with pytest.raises(NoRouteError, match="updateTopicPerm"):
            list(admin.dead_letters(GROUP))
    finally:
        topics.update(config)
        cluster.advance(minutes=1)


# ------------------------------------------------------------ sending again


def test_redrive_sends_to_the_group_alone_and_only_once(cluster, admin):
    kill(cluster, "Once", b"missing", b"wrong")
    assert admin.redrive("Once") == RedriveResult(2)
    cluster.settle()
    assert admin.redrive("Once") == RedriveResult(0, sent_before=2)
    letters = {letter.message.body: letter for letter in admin.dead_letters("Once")}
    before = len(cluster.messages("T"))
    got = {message.body: message for message in handled(cluster, "Once")}
    assert len(cluster.messages("T")) == before
    assert set(got) == {b"missing", b"wrong"}
    message, letter = got[b"wrong"], letters[b"wrong"]
    assert (message.topic, message.msg_id, message.tags, message.keys) == ("T", letter.msg_id, "fruit", ["A17", "B18"])
    assert (message.reconsume_times, message.born_timestamp) == (0, letter.message.born_timestamp)
    assert message.properties["colour"] == "red"
    assert "DEAD_LETTER_REASON" not in message.properties
    assert handled(cluster, "Once") == []


def test_redriven_message_that_dies_again_can_be_redriven_again(cluster, admin):
    kill(cluster, "Again", b"wrong")
    assert admin.redrive("Again") == RedriveResult(1)
    kill(cluster, "Again")
    assert [letter.attempts for letter in admin.dead_letters("Again")] == [1, 1]
    assert admin.redrive("Again") == RedriveResult(1, sent_before=1)
    assert [message.body for message in handled(cluster, "Again")] == [b"wrong"]


def test_redrive_to_topic_reaches_all_groups(cluster, admin):
    cluster.create_topic("Shared")
    kill(cluster, "Shared1", b"wrong", topic="Shared")
    assert [message.body for message in handled(cluster, "Shared2", "Shared")] == []
    assert admin.redrive("Shared1", to="topic") == RedriveResult(1)
    cluster.settle()
    assert admin.redrive("Shared1", to="topic") == RedriveResult(0, sent_before=1)
    original, again = sorted(cluster.messages("Shared"), key=lambda message: message.store_timestamp)
    assert (again.msg_id, again.keys, again.tags) == (original.msg_id, original.keys, original.tags)
    assert {"RETRY_TOPIC", "ORIGIN_MESSAGE_ID"}.isdisjoint(again.properties)
    for group in ("Shared1", "Shared2"):
        assert [message.body for message in handled(cluster, group, "Shared")] == [b"wrong"]


def test_redrive_after_lost_answer_sends_no_message_twice(cluster, admin):
    kill(cluster, "Lost", b"missing", b"wrong")
    with ThreadPoolExecutor() as pool, cluster.drop("send", times=1, what="answer") as drop:
        redriving = pool.submit(admin.redrive, "Lost")
        while not redriving.done():
            cluster.advance(seconds=1)
        with pytest.raises(RequestTimeoutError):
            redriving.result()
    assert drop.dropped == 1
    assert admin.redrive("Lost") == RedriveResult(1, sent_before=1)
    assert sorted(message.body for message in handled(cluster, "Lost")) == [b"missing", b"wrong"]


def test_redrive_of_selected_letters_leaves_the_others(cluster, admin):
    kill(cluster, "Some", b"missing", b"wrong")
    assert admin.redrive("Some", exception=KeyError) == RedriveResult(1)
    assert [message.body for message in handled(cluster, "Some")] == [b"missing"]


def test_redrive_keeps_compressed_body_as_it_is(cluster, admin):
    kill(cluster, "Big", b"wrong".ljust(10_000))
    (letter,) = admin.dead_letters("Big")
    assert zlib.decompress(letter.record.body) == letter.message.body
    assert admin.redrive("Big") == RedriveResult(1)
    assert [message.body for message in handled(cluster, "Big")] == [letter.message.body]


def test_letter_with_unreadable_body_is_listed_and_redriven(cluster, admin):
    kill(cluster, "Torn", b"wrong".ljust(10_000))
    (letter,) = admin.dead_letters("Torn")
    letter.record.body = letter.record.body[:-1]
    reader = admin._engine.dead_letters("Torn", None)
    torn = reader.unpacked(reader._letter(letter.message.queue, letter.record))
    assert "cannot be unpacked" in torn.unreadable
    assert (torn.message.body, torn.message.sys_flag) == (letter.record.body, letter.record.sys_flag)


def test_redrive_to_deleted_topic_sends_nothing(cluster, admin):
    cluster.create_topic("Gone")
    kill(cluster, "Left", b"wrong", topic="Gone")
    admin.delete_topic("Gone")
    assert admin.redrive("Left", to="topic") == RedriveResult(0, unknown_topic=1)
    assert admin.redrive("Left") == RedriveResult(1)


def test_namespace_has_dead_letters_of_its_own(cluster):
    options = cluster.client_options(namespace="red")
    with (
        Consumer("NG", topics="N", handler=fail, max_reconsume_times=0, **options),
        Producer("PG", **options) as producer,
        Admin(**options) as admin,
    ):
        admin.create_topic("N")
        producer.send(Message("N", b"wrong"))
        cluster.advance(seconds=40)
        (letter,) = admin.dead_letters("NG")
        assert (letter.topic, letter.message.queue.topic, letter.group) == ("N", "%DLQ%NG", "NG")
        assert admin.redrive("NG") == RedriveResult(1)
        cluster.advance(seconds=10)
        assert len(list(admin.dead_letters("NG"))) == 2


# ------------------------------------------------------------ the other faces


def test_asyncio_reads_and_redrives(cluster, three):
    async def main():
        async with aio.Admin(**cluster.client_options()) as admin:
            found = [letter.message.body async for letter in admin.dead_letters(GROUP)]
            return found, await admin.redrive(GROUP, exception="No such")

    assert asyncio.run(main()) == ([b"missing", b"rejected", b"wrong"], RedriveResult(0))


@pytest_twisted.ensureDeferred
async def test_twisted_reads_and_redrives(cluster, three):
    async with client.Admin(**cluster.client_options()) as admin:
        found = [letter.message.body async for letter in admin.dead_letters(GROUP)]
        assert found == [b"missing", b"rejected", b"wrong"]
        assert await admin.redrive(GROUP, exception="No such") == RedriveResult(0)
        await deferToThread(cluster.settle)


# ------------------------------------------------------------ the command line


class CommandLine:
    """Runs ``rocketd dlq`` as a process, with a cluster of its own that listens on a port."""

    def __init__(self, cluster):
        self.namesrv = cluster.listen()
        kill(cluster, GROUP, b"missing", b"wrong")

    def __call__(self, *arguments):
        """Return the exit status, the lines on standard output, and the text on standard error."""
        words = [*COMMAND, "dlq", *arguments, "--namesrv", self.namesrv]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE, check=False)
        return ended.returncode, ended.stdout.splitlines(), ended.stderr


@pytest.fixture(scope="module")
def dlq():
    with Cluster(topics=["T"]) as cluster:
        command = CommandLine(cluster)
        command.cluster = cluster
        yield command


def test_dlq_list_prints_fields_of_selected_letters(dlq):
    status, lines, err = dlq("list", GROUP, "--exception", "OrderError", "--since", "2000-01-01")
    assert (status, err) == (0, "")
    header, row = (line.split("\t") for line in lines)
    found = dict(zip(header, row, strict=True))
    assert found["exception"] == f"{__name__}.OrderError"
    assert (found["topic"], found["attempts"], found["reason"], found["keys"]) == ("T", "1", "no such", "A17 B18")
    status, (line,), _ = dlq("list", GROUP, "--json", "--limit", "1")
    letter = json.loads(line)
    assert (status, letter["exception"], letter["message"]["body"]) == (0, "KeyError", "missing")


def test_dlq_show_prints_one_letter_or_fails(dlq):
    letter = json.loads(dlq("list", GROUP, "--json", "--limit", "1")[1][0])
    status, lines, _ = dlq("show", GROUP, letter["message"]["id"])
    assert status == 0
    assert {f"id: {letter['id']}", "exception: KeyError", "topic: T", "    missing"} <= set(lines)
    assert dlq("show", GROUP, "nothing") == (
        1,
        [],
        f"rocketd dlq show: group {GROUP} has no dead letter with the id nothing\n",
    )


def test_dlq_redrive_sends_nothing_without_yes_and_each_letter_once(dlq):
    status, lines, err = dlq("redrive", GROUP)
    assert (status, [line.split("\t")[0] for line in lines]) == (0, ["outcome", "to be sent", "to be sent"])
    assert err == f"rocketd dlq redrive: 2 would be sent to group {GROUP}; with --yes they are sent\n"
    assert dlq.cluster.messages(f"%RETRY%{GROUP}") == []
    status, (line,), err = dlq("redrive", GROUP, "--yes", "--exception", "KeyError", "--json")
    assert (status, json.loads(line)["outcome"], err) == (0, "sent", f"rocketd dlq redrive: 1 sent to group {GROUP}\n")
    dlq.cluster.settle()
    status, lines, _ = dlq("redrive", GROUP, "--yes")
    assert (status, [line.split("\t")[0] for line in lines]) == (0, ["outcome", "sent before", "sent"])
    assert [message.body for message in dlq.cluster.messages(f"%RETRY%{GROUP}")] == [b"missing", b"wrong"]


def test_dlq_with_bad_time_is_refused(dlq):
    status, lines, err = dlq("list", GROUP, "--since", "latest")
    assert (status, lines) == (2, [])
    assert "--since 'latest': accepted is a time" in err


def test_same_names_in_all_faces():
    for face in (client, aio, sync):
        assert face.DeadLetter is DeadLetter
        assert face.RedriveResult is RedriveResult
