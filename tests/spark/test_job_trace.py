"""`rocketd spark trace`: records as clients write them, in the trace topic of a store."""

import pytest

from rocketd.client.trace.records import (
    AccessChannel,
    MessageType,
    TraceBean,
    TraceContext,
    TraceType,
    decode_records,
    encode_context,
)
from rocketd.common.names import TRACE_TOPIC
from rocketd.spark.jobs.running.frames import message_frame
from rocketd.spark.jobs.trace.records import READ_COLUMNS, records
from tests.spark.running import run_job
from tests.support.stores import message, write_store

MINUTE = 60_000
START = 1_700_000_040_000
"""The beginning of a minute."""


def text(kind, beans, at, **context):
    made = TraceContext(trace_type=kind, beans=tuple(beans), timestamp=at, **context)
    return encode_context(made).trans_data


def published(number, at, cost, **bean):
    one = TraceBean(**{"msg_id": f"M{number}", "topic": "orders", "body_length": 10, **bean})
    return text(TraceType.PUB, [one], at, group="producers", cost_time=cost)


def consumed(numbers, at, cost, group="readers", *, request="R", retry_times=0, code=0, channel=AccessChannel.LOCAL):
    beans = [TraceBean(msg_id=f"M{number}", retry_times=retry_times) for number in numbers]
    before = text(TraceType.SUB_BEFORE, beans, at, group=group, request_id=f"{request}{numbers[0]}")
    after = text(
        TraceType.SUB_AFTER,
        beans,
        at + cost,
        group=group,
        request_id=f"{request}{numbers[0]}",
        cost_time=cost,
        success=not code,
        context_code=code,
        access_channel=channel,
    )
    return before + after


@pytest.fixture
def store(tmp_path):
    """100 messages, sent in one minute with costs of 1 to 100 ms, consumed in the next, except 5 of them."""
    bodies = [
        "".join(published(number, START, number) for number in range(first, first + 25)) for first in (1, 26, 51, 76)
    ]
    # Each is consumed 50 ms after it was stored, and takes twice its number.
    bodies += [consumed([number], START + MINUTE + number, 2 * number) for number in range(1, 96)]
    bodies += [
        # A first attempt that failed, and one whose clock is behind.
        consumed([7], START + 10 * MINUTE, 1, request="again", retry_times=1, code=4),
        published(200, START + 10 * MINUTE, 5) + consumed([200], START + 10 * MINUTE, 3),
        # Waiting on purpose: a delayed one and a half message. A committed one is not.
        published(300, START, 1, message_type=MessageType.DELAY) + published(301, START, 1, message_type=1),
        published(302, START, 1, message_type=1)
        + text(
            TraceType.END_TRANSACTION,
            [TraceBean(msg_id="M302", topic="orders", transaction_state="COMMIT_MESSAGE")],
            START,
            group="producers",
        ),
        text(TraceType.PUB, [TraceBean(msg_id="M400", topic="bills")], START, group="producers", success=False),
        # Two records of the cloud, which have no end mark, and a malformed record.
        consumed([8, 9], START + 11 * MINUTE, 4, "cloud", request="C", channel=AccessChannel.CLOUD),
        "Pub\x01noon\x01\x02",
    ]
    # Its last byte is not UTF-8.
    encoded = [body.encode() for body in bodies[:-1]] + [bodies[-1].encode() + b"\xff"]
    write_store(tmp_path, [message(body, TRACE_TOPIC, born_ms=START) for body in encoded])
    return tmp_path


def test_trace_records_equal_the_clients(spark, store):
    options = {"store": str(store), "subscribe": TRACE_TOPIC}
    messages = message_frame(spark, options, READ_COLUMNS)
    found = [row for row in records(messages).collect() if row["good"]]
    wanted = [one for row in messages.collect() for one in decode(bytes(row["body"]).decode("utf-8", "replace"))]

    def order(row):
        return tuple(map(str, row))

    got = [
        (
            r["type"],
            r["time"] or 0,
            r["group"] or "",
            r["topic"] or "",
            r["msg_id"],
            r["request_id"] or "",
            r["cost"] or 0,
        )
        for r in found
    ]
    assert sorted(got, key=order) == sorted(wanted, key=order)


def decode(body):
    if body.startswith("Pub\x01noon"):
        return
    for one in decode_records(body):
        bean = one.beans[0]
        yield str(one.trace_type), one.timestamp, one.group, bean.topic, bean.msg_id, one.request_id, one.cost_time


def test_trace_reports_percentiles_failures_and_unconsumed(spark, store):
    report = run_job(spark, "trace", "--store", store, "--by-window", "--ids", "3")
    facts = report.facts
    assert facts["records"] == {"EndTransaction": 1, "Pub": 105, "SubAfter": 99, "SubBefore": 99}
    rows = {(row["measure"], row["topic"], row["group"]): row for row in facts["latency_ms"]}
    send = rows["send", "orders", "producers"]
    assert send["messages"] == 104
    assert send["p99"] == pytest.approx(99, rel=0.03)
    deliver = rows["store to consume", "orders", "readers"]
    assert (deliver["messages"], deliver["skewed"]) == (96, 1)
    # Stored at its number, consumed a minute and its number later.
    assert deliver["p50"] == pytest.approx(MINUTE, rel=0.011)
    consume = rows["consume", "orders", "readers"]
    assert consume["messages"] == 97
    assert consume["p95"] == pytest.approx(182, rel=0.04)
    assert rows["consume", "orders", "cloud"]["messages"] == 2
    assert {(row["what"], row["topic"], row["group"], row["how"], row["messages"]) for row in facts["failures"]} == {
        ("send", "bills", "producers", "failed", 1),
        ("consume", "orders", "readers", "4", 1),
    }
    (lost,) = facts["never_consumed"]
    # 96 to 100, and the committed one, which is the oldest.
    assert (lost["topic"], lost["messages"], lost["ids"]) == ("orders", 6, ["M302", "M96", "M97"])
    windows = [row for row in facts["windows"] if row["measure"] == "send" and row["topic"] == "orders"]
    assert [row["messages"] for row in windows] == [103, 1]
    assert report.status == 1
    assert report.problems[0].startswith("1 trace records are too short")


def test_trace_job_without_records_reports_zero(spark, tmp_path):
    write_store(tmp_path, [message(b"", TRACE_TOPIC)])
    report = run_job(spark, "trace", "--store", tmp_path)
    assert (report.status, report.facts["records"], report.facts["latency_ms"]) == (0, {}, [])


def test_trace_windows_are_reported_once_when_they_close(spark, store, tmp_path):
    words = ("--store", store, "--follow", "--once", "--state", tmp_path / "state", "--delay", "0s")
    first = run_job(spark, "trace", *words).facts
    rows = {(row["measure"], row["group"]): row["messages"] for row in first["latency_ms"]}
    # The newest record is in the last window, which is still open.
    assert rows == {("send", "producers"): 104, ("store to consume", "readers"): 96, ("consume", "readers"): 97}
    assert (first["late"], first["unreadable"]) == ({}, 1)
    assert first["watermark"].timestamp() * 1000 == START + 11 * MINUTE
    # One comes too late, and one that closes windows.
    late = published(500, START, 1) + published(501, START + 20 * MINUTE, 1)
    write_store(store, [message(late.encode(), TRACE_TOPIC)], start_ms=START)
    second = run_job(spark, "trace", *words).facts
    assert second["late"] == {"Pub": 1}
    rows = {(row["measure"], row["group"]): row["messages"] for row in second["latency_ms"]}
    assert rows["send", "producers"] == 104
    assert rows["consume", "cloud"] == 2
    batch = run_job(spark, "trace", "--store", store).facts
    assert second["failures"] == batch["failures"]
    assert [(row["topic"], row["messages"]) for row in second["never_consumed"]] == [("orders", 6)]
