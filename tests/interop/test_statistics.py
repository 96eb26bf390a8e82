"""Raw answers about statistics and progress are Apache's, member for member, after the same requests to both brokers."""

import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from rocketd.remoting.fastjson import dialect as fastjson
from tests.interop.mqadmin_sides import CLUSTER, GROUP, TOPIC
from tests.support import wire

if TYPE_CHECKING:
    from tests.interop.mqadmin_sides import Both, Side

SEND_MESSAGE_V2, SEND_BATCH, PULL, SEND_BACK, UPDATE_OFFSET = 310, 320, 11, 36, 15
RUNTIME_INFO, TOPIC_STATS, CONSUME_STATS, WHO_CONSUMES, TIME_SPAN, LEAST_OFFSETS, VIEW_STATS, ALL_CONSUME_STATS = (
    28, 202, 208, 300, 303, 308, 315, 317,
)  # fmt: skip
STATS, READERS, OTHERS = "Stats", "stats-readers", "stats-others"
LAGGING, SLOW = "Lagging", "slow-consumers"
CONSUMER_LAG = 30002
DELAYED = "SCHEDULE_TOPIC_XXXX"
LIMIT_SECONDS = 60.0
SAMPLED_SECONDS = 12.0
"""Brokers take samples 10 s apart."""


def ask(side: "Side", code: int, body: bytes = b"", **fields: str) -> tuple[int, str | None, Any]:
    """Code, remark and body of an answer, the body with one name for both brokers' addresses."""
    answer = wire.call(side.broker, code, fields, body)
    body = answer.body.replace(side.broker.encode(), b"BROKER")
    return answer.code, answer.remark, fastjson.loads(body) if body else None


def success(side: "Side", code: int, body: bytes = b"", **fields: str) -> wire.Answer:
    answer = wire.call(side.broker, code, fields, body)
    assert answer.code == wire.SUCCESS, (side.kind, answer)
    return answer


def send(side: "Side", code: int, queue_id: int, properties: str, body: bytes, topic: str = STATS) -> int:
    """Send; return the offset in the log of the first stored message."""
    answer = success(
        side, code, body, a="P", b=topic, c="TBW102", d="2", e=str(queue_id), f="0", g=str(int(time.time() * 1000)),
        h="0", i=properties, j="0", k="false", l="0", m=str(code == SEND_BATCH).lower(),
    )  # fmt: skip
    return int(answer.ext_fields["msgId"].split(",")[0][-16:], 16)


def in_batch(body: bytes) -> bytes:
    return struct.pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + struct.pack(">h", 0)


def work(side: "Side") -> None:
    """Everything that is counted, once or more often."""
    offset = send(side, SEND_MESSAGE_V2, 0, "TAGS\x01A", b"first")
    for number in range(4):
        send(side, SEND_MESSAGE_V2, 0, "TAGS\x01B", b"more" * number)
    send(side, SEND_MESSAGE_V2, 0, "DELAY\x0118", b"late")
    send(side, SEND_MESSAGE_V2, 0, "DELAY\x011", b"soon")
    send(side, SEND_BATCH, 1, "", in_batch(b"one") + in_batch(b"two") + in_batch(b"three"))
    for queue_id, consumed, group in ((0, 2, READERS), (1, 3, READERS), (0, 4, OTHERS)):
        success(
            side, UPDATE_OFFSET, consumerGroup=group, topic=STATS, queueId=str(queue_id), commitOffset=str(consumed)
        )
    deadline = time.monotonic() + LIMIT_SECONDS
    while wire.call(side.broker, 30, {"topic": STATS, "queueId": "0"}).ext_fields["offset"] != "6":
        assert time.monotonic() < deadline, "the delayed message does not come"
        time.sleep(0.2)
    for start in ("0", "3"):
        success(
            side, PULL, consumerGroup=READERS, topic=STATS, queueId="0", queueOffset=start, maxMsgNums="32", sysFlag="4",
            commitOffset="0", suspendTimeoutMillis="0", subscription="*", subVersion="0", expressionType="TAG",
        )  # fmt: skip
    success(side, SEND_BACK, offset=str(offset), group=READERS, delayLevel="18", originTopic=STATS)


def await_rest(side: "Side") -> None:
    """Return when the last minute has no delayed message of other tests any more."""
    deadline = time.monotonic() + 120.0
    while True:
        code, _, body = ask(side, VIEW_STATS, statsName="TOPIC_PUT_NUMS", statsKey=DELAYED)
        if code != wire.SUCCESS or body["statsMinute"]["sum"] == 0:
            return
        assert time.monotonic() < deadline, body
        time.sleep(1.0)


@pytest.fixture(scope="module")
def counted(both: "Both") -> "Both":
    both.same("updateTopic", "-c", CLUSTER, "-t", STATS, "-r", "2", "-w", "2")
    for group in (READERS, OTHERS):
        both.same("updateSubGroup", "-c", CLUSTER, "-g", group)
    both.each(await_rest)
    both.each(work)
    both.await_dispatch()
    return both


def same(both: "Both", code: int, change: Callable[[Any], Any] = lambda body: body, **fields: str) -> Any:
    """The answer's code, remark and changed body, which both brokers give."""
    theirs, ours = both.each(lambda side: ask(side, code, **fields))
    theirs, ours = ((answer[0], answer[1], change(answer[2])) for answer in (theirs, ours))
    assert ours == theirs
    return theirs


def timeless(body: Any) -> Any:
    """Hide times and rates, which always differ; 0 and negative numbers stay."""
    if isinstance(body, dict):
        return {
            key: "RATE" if key == "consumeTps" else "SPAN" if key == "delayTime" and value > 0 else timeless(value)
            for key, value in body.items()
        }
    if isinstance(body, list):
        return [timeless(value) for value in body]
    if isinstance(body, int) and body > 1_000_000_000_000:
        return "TIME"
    if isinstance(body, str) and body.startswith("20") and "#" in body:
        return "TIME"
    return body


def test_progress_of_a_group(counted: "Both") -> None:
    code, _, body = same(counted, CONSUME_STATS, timeless, consumerGroup=READERS)
    assert (code, len(body["offsetTable"])) == (0, 2)
    same(counted, CONSUME_STATS, timeless, consumerGroup=READERS, topic=STATS)
    same(counted, CONSUME_STATS, timeless, consumerGroup=GROUP)
    assert same(counted, CONSUME_STATS, timeless, consumerGroup="nobody")[2]["offsetTable"] == {}
    same(counted, CONSUME_STATS, timeless, consumerGroup="nobody", topic=TOPIC)
    same(counted, CONSUME_STATS, timeless, consumerGroup=READERS, topic="Nowhere")


def test_progress_of_all_groups(counted: "Both") -> None:
    def by_group(body: Any) -> Any:
        """The order is that of a hash map."""
        groups = {group: stats for each in body["consumeStatsList"] for group, stats in each.items()}
        return timeless({**body, "consumeStatsList": {name: sorted(stats, key=repr) for name, stats in groups.items()}})

    # The group that consumes all the time commits at unknown moments.
    def settled(body: Any) -> Any:
        changed = by_group(body)
        return {name: stats for name, stats in changed["consumeStatsList"].items() if name in (READERS, OTHERS)}

    _, _, body = same(counted, ALL_CONSUME_STATS, settled, isOrder="false")
    assert len(body[READERS]) == 1
    same(counted, ALL_CONSUME_STATS, by_group, isOrder="true")


def test_store_times_of_progress(counted: "Both") -> None:
    _, _, body = same(counted, TIME_SPAN, timeless, topic=STATS, group=READERS)
    assert [span["delayTime"] for span in body["consumeTimeSpanSet"]] == ["SPAN", 0]
    code, _, _ = same(counted, TIME_SPAN, timeless, topic="Nowhere", group=READERS)
    assert code == 17


def test_least_offsets(counted: "Both") -> None:
    _, _, body = same(counted, LEAST_OFFSETS, topic=STATS, compareGroup=READERS)
    assert body == {"correctionOffsets": {0: 2, 1: 3}}
    same(counted, LEAST_OFFSETS, topic=STATS, compareGroup="nobody")
    same(counted, LEAST_OFFSETS, topic="Nowhere", compareGroup=READERS)


def test_queues_and_groups_of_a_topic(counted: "Both") -> None:
    same(counted, TOPIC_STATS, timeless, topic=STATS)
    same(counted, TOPIC_STATS, timeless, topic="Nowhere")
    _, _, body = same(counted, WHO_CONSUMES, lambda body: sorted(body["groupList"]), topic=STATS)
    assert body == sorted((READERS, OTHERS))
    same(counted, WHO_CONSUMES, topic="Nowhere")


COUNTED = [
    ("TOPIC_PUT_NUMS", STATS),
    ("TOPIC_PUT_SIZE", STATS),
    ("GROUP_GET_NUMS", f"{STATS}@{READERS}"),
    ("GROUP_GET_SIZE", f"{STATS}@{READERS}"),
    ("SNDBCK_PUT_NUMS", f"{STATS}@{READERS}"),
    ("TOPIC_PUT_NUMS", DELAYED),
    ("TOPIC_PUT_SIZE", DELAYED),
    ("QUEUE_PUT_NUMS", f"{DELAYED}@17"),
    ("QUEUE_PUT_SIZE", f"{DELAYED}@0"),
    ("QUEUE_GET_NUMS", f"{DELAYED}@0@SCHEDULE_CONSUMER"),
    ("QUEUE_GET_SIZE", f"{DELAYED}@0@SCHEDULE_CONSUMER"),
    ("GROUP_GET_NUMS", f"{DELAYED}@SCHEDULE_CONSUMER"),
    ("GROUP_GET_SIZE", f"{DELAYED}@SCHEDULE_CONSUMER"),
]


@pytest.fixture(scope="module")
def minutes(counted: "Both") -> tuple[dict[tuple[str, str], Any], dict[tuple[str, str], Any]]:
    """The counts of each broker in a sample taken after all the work, which on a slow machine is late."""
    limit: dict[str, dict[tuple[str, str], Any]] = {side.kind: {} for side in (counted.apache, counted.rocketd)}

    def read(side: "Side") -> dict[tuple[str, str], Any]:
        for name, key in COUNTED:
            code, _, body = ask(side, VIEW_STATS, statsName=name, statsKey=key)
            if code == wire.SUCCESS:
                minute = body["statsMinute"]
                limit[side.kind][name, key] = max(
                    limit[side.kind].get((name, key), (0, 0.0)), (minute["sum"], minute["avgpt"])
                )
        return limit[side.kind]

    began = time.monotonic()
    while True:
        theirs, ours = counted.each(read)
        took = time.monotonic() - began
        if took > LIMIT_SECONDS or (took > SAMPLED_SECONDS and theirs == ours):
            return theirs, ours
        time.sleep(1.0)


@pytest.mark.parametrize(("name", "key"), COUNTED)
def test_statistics_equal_apaches(minutes: tuple[dict[tuple[str, str], Any], ...], name: str, key: str) -> None:
    theirs, ours = minutes
    assert ours.get((name, key)) == theirs.get((name, key))
    assert theirs[name, key][0] > 0


@pytest.mark.usefixtures("minutes")
def test_latency_has_a_key_for_each_queue(counted: "Both") -> None:
    for key, code in ((f"0@{STATS}@{READERS}", 0), (f"{STATS}@{READERS}", 1), (f"1@{STATS}@{READERS}", 1)):
        theirs, ours = counted.each(
            lambda side, key=key: ask(side, VIEW_STATS, statsName="GROUP_GET_LATENCY", statsKey=key)
        )
        assert (ours[0], ours[1]) == (theirs[0], theirs[1])
        assert theirs[0] == code


@pytest.mark.parametrize(
    "name", ["COMMERCIAL_SEND_TIMES", "GROUP_GET_FALL_SIZE", "GROUP_GET_FROM_DISK_NUMS", "NONSENSE"]
)
def test_missing_statistics_are_refused(both: "Both", name: str) -> None:
    code, remark, _ = same(both, VIEW_STATS, statsName=name, statsKey=TOPIC)
    assert (code, remark) == (1, f"The stats <{name}> <{TOPIC}> not exist")


def test_runtime_information_has_all_keys(both: "Both") -> None:
    def names(side: "Side") -> set[str]:
        table = ask(side, RUNTIME_INFO)[2]["table"]
        return {name for name in table if "/" not in name}

    theirs, ours = both.each(names)
    assert theirs - ours == set()


def test_lag_of_a_java_consumer_by_its_tags(both: "Both") -> None:
    """Apache's broker has no such figure; all actions are done to both so that they stay alike."""
    both.same("updateTopic", "-c", CLUSTER, "-t", LAGGING, "-r", "1", "-w", "1")
    both.same("updateSubGroup", "-c", CLUSTER, "-g", SLOW)
    both.ask("consume", group=SLOW, topic=LAGGING, expression="TagA")
    both.each(lambda side: send_tags(side, "TagA", "TagB", "TagA"))
    both.await_dispatch()
    both.ask("consumed", group=SLOW, count=2)
    lag = await_lag(both, lambda lag: lag["online"] and lag["queues"] and lag["totalMessages"] == 0)
    assert lag["filters"][LAGGING] == {"current": True, "expressionType": "TAG", "subString": "TagA"}
    both.ask("stop", group=SLOW)
    both.each(lambda side: send_tags(side, "TagB", "TagA", "TagB", "TagA"))
    lag = await_lag(both, lambda lag: not lag["online"] and lag["totalMessages"] > 1)
    assert lag["totalMessages"] == 2
    assert 0 < lag["maxDelayMillis"] < 1000 * LIMIT_SECONDS
    assert not lag["filters"][LAGGING]["current"]
    _, _, progress = ask(both.rocketd, CONSUME_STATS, consumerGroup=SLOW, topic=LAGGING)
    (queue,) = progress["offsetTable"].values()
    assert queue["brokerOffset"] - queue["consumerOffset"] == 4


def send_tags(side: "Side", *tags: str) -> None:
    for tag in tags:
        send(side, SEND_MESSAGE_V2, 0, f"TAGS\x01{tag}", b"x", topic=LAGGING)


def await_lag(both: "Both", condition: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        code, remark, lag = ask(both.rocketd, CONSUMER_LAG, consumerGroup=SLOW)
        assert code == wire.SUCCESS, remark
        if condition(lag):
            return lag
        assert time.monotonic() < deadline, lag
        time.sleep(0.2)


@pytest.mark.usefixtures("minutes")
def test_deleting_takes_the_statistics_along(counted: "Both") -> None:
    counted.same("updateBrokerConfig", "-c", CLUSTER, "-k", "autoDeleteUnusedStats", "-v", "true")
    counted.same("deleteSubGroup", "-c", CLUSTER, "-g", READERS)
    same(counted, VIEW_STATS, statsName="GROUP_GET_NUMS", statsKey=f"{STATS}@{READERS}")
    counted.same("deleteTopic", "-c", CLUSTER, "-t", STATS)
    code, _, _ = same(counted, VIEW_STATS, statsName="TOPIC_PUT_NUMS", statsKey=STATS)
    assert code == 1
