"""``rocketd spark trace``: latencies, failures and lost messages from the trace records of clients.

It does the work of mqadmin queryMsgTraceById for all messages at once. Percentiles come from a mergeable sketch, with a
relative error of 1 %.
"""

import datetime
import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rocketd.common.command_line.option_types import POSITIVE
from rocketd.common.names import TRACE_TOPIC
from rocketd.spark.columns import ddl
from rocketd.spark.errors import OptionError
from rocketd.spark.jobs.running.arguments import source_options, source_section
from rocketd.spark.jobs.running.command import job
from rocketd.spark.jobs.running.context import JobContext
from rocketd.spark.jobs.running.frames import frozen_options, message_frame
from rocketd.spark.jobs.running.options import Arguments, Section, flag, option
from rocketd.spark.jobs.running.report import Report
from rocketd.spark.jobs.trace.follow import Lengths, TraceFollower, summed
from rocketd.spark.jobs.trace.measures import (
    failed,
    failures,
    in_buckets,
    measured,
    never_consumed,
    row_counts,
    unconsumed,
)
from rocketd.spark.jobs.trace.records import READ_COLUMNS, records
from rocketd.spark.jobs.trace.sketch import ERROR, Sketch
from rocketd.spark.options.kinds import DURATION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@job(
    "trace",
    source_section(),
    Section(
        "trace",
        [
            option("--window", default="1m", metavar="DURATION", help="length of a window (default: 1m)"),
            flag("--by-window", help="also print a line for each window"),
            option(
                "--grace",
                default="1m",
                metavar="DURATION",
                help="time within which a message should be consumed (default: 1m)",
            ),
            flag("--follow", help="read new records until Ctrl-C"),
            flag("--once", help="with --follow: stop after the records existing at the start"),
            option(
                "--state", metavar="DIR", help="with --follow: directory of the progress; a later run continues there"
            ),
            option(
                "--delay",
                default="1m",
                metavar="DURATION",
                help="with --follow: maximum delay of records (default: 1m)",
            ),
            option(
                "--keep",
                default="1h",
                metavar="DURATION",
                help="with --follow: maximum time from send to consumption for a measurement (default: 1h)",
            ),
            option(
                "--interval",
                default="10s",
                metavar="DURATION",
                help="with --follow: time between steps (default: 10s)",
            ),
            option(
                "--ids", type=POSITIVE, default="10", metavar="N", help="number of message ids to print (default: 10)"
            ),
        ],
    ),
)
def trace(context: JobContext, args: Arguments) -> Report:
    """Report latencies and failures from the message traces.

    Times are those of the clients' clocks. A message with a consumption before its storage counts as skewed, and as
    consumed at once. A topic is unknown (-) if the record of its send was not read. A message counts as never
    consumed if no group got it within --grace after the send; delayed messages are left out. With --follow, a window
    is measured if the newest record is --delay after its end; later records are counted as late. The exit status is
    1 if records cannot be read.
    """
    began = time.monotonic()
    window = duration_ms("--window", args.window)
    grace = duration_ms("--grace", args.grace, least=0)
    given = source_options(args)
    if not {"subscribe", "subscribePattern"} & given.keys():
        given["subscribe"] = TRACE_TOPIC
    if args.follow:
        delay, keep = duration_ms("--delay", args.delay, 0), duration_ms("--keep", args.keep, 0)
        return _follow(context, args, given, Lengths(window, delay, grace, keep))
    for name in ("once", "state"):
        if getattr(args, name):
            raise OptionError(f"--{name} goes with --follow")
    options = frozen_options(given)
    if options is None:
        return Report({"records": {}, "unreadable": 0})
    spark = context.spark()
    context.progress.begin("read the records")
    rows = records(message_frame(spark, options, READ_COLUMNS)).cache()
    try:
        report = _report(rows, window, grace, args)
    finally:
        rows.unpersist()
        context.progress.end()
    return Report({**report.facts, "seconds": round(time.monotonic() - began, 3)}, report.problems)


def _follow(context: JobContext, args: Arguments, given: dict[str, str], lengths: Lengths) -> Report:
    """Measure windows as they close, until the stream ends. Return the results of all steps in the state directory."""
    if not args.state:
        raise OptionError("--state must name a directory for --follow, new or of an earlier run")
    state = os.path.abspath(args.state)
    interval = duration_ms("--interval", args.interval)

    def tell(result: dict[str, Any]) -> None:
        for row in latency_rows(result["buckets"], by_window=True):
            context.progress.note(window_line(row))
        context.progress.advance(sum(result["records"].values()))

    follower = TraceFollower(state, lengths, args.ids, tell)
    spark = context.spark()
    if not any(name.startswith("starting") for name in given):
        given["startingOffsets"] = "earliest"
    frame = spark.readStream.format("rocketd").options(**given).schema(ddl(READ_COLUMNS)).load()
    writer = frame.writeStream.foreachBatch(follower).option("checkpointLocation", os.path.join(state, "checkpoint"))
    when = writer.trigger(availableNow=True) if args.once else writer.trigger(processingTime=f"{interval} milliseconds")
    context.progress.begin("read the records", None, "records")
    query = when.start()
    try:
        while not query.awaitTermination(1):
            pass
    finally:
        query.stop()
        context.progress.end()
    total = summed(list(follower.results()), args.ids)
    buckets = total.pop("buckets")
    facts = {
        **total,
        "watermark": _time(total["watermark"]),
        "percentile_error": ERROR,
        "latency_ms": latency_rows(buckets, by_window=False),
    }
    if args.by_window:
        facts["windows"] = latency_rows(buckets, by_window=True)
    return Report(facts, unreadable(total["unreadable"]))


def _report(rows: "DataFrame", window: int, grace: int, args: Arguments) -> Report:
    counts = row_counts(rows)
    newest = counts.pop("newest")
    buckets = in_buckets(measured(rows), window).collect()
    unseen = unconsumed(rows).where(f"stored < {(newest or 0) - grace}")
    lost = never_consumed(unseen, args.ids).collect()
    wrong = failures(failed(rows)).orderBy("what", "topic", "group", "how").collect()
    facts: dict[str, Any] = {
        **counts,
        "percentile_error": ERROR,
        "latency_ms": latency_rows(buckets, by_window=False),
        "failures": [row.asDict() for row in wrong],
        "never_consumed": [row.asDict() for row in lost],
    }
    if args.by_window:
        facts["windows"] = latency_rows(buckets, by_window=True)
    return Report(facts, unreadable(counts["unreadable"]))


def window_line(row: dict[str, Any]) -> str:
    """Return one line about one measure, topic and group in one window."""
    names = f"{row['topic'] or '-'} {row['group'] or '-'}"
    numbers = " ".join(f"{name} {row[name]:g} ms" for name in PERCENTILES)
    return f"{row['window']:%Y-%m-%d %H:%M:%S} {row['measure']} {names}: {row['messages']} messages, {numbers}"


def unreadable(count: int) -> list[str]:
    """Return the problem to report for unreadable records."""
    return (
        [f"{count} trace records are too short, or have texts where numbers should be, and count nowhere"]
        if count
        else []
    )


def duration_ms(name: str, text: str, least: int = 1) -> int:
    """Parse a duration into ms. Raises OptionError."""
    try:
        value = round(DURATION.read(text) * 1000)
    except ValueError:
        raise OptionError(f"{name} is {text!r}; accepted is {DURATION.accepted}") from None
    if value < least:
        raise OptionError(f"{name} is {text!r}; accepted are {least} ms and more")
    return value


def latency_rows(buckets: Iterable[Any], *, by_window: bool) -> list[dict[str, Any]]:
    """Return percentiles for each measure, topic and group, and optionally each window, from counts by bucket."""
    sketches: dict[tuple[Any, ...], Sketch] = {}
    skewed: dict[tuple[Any, ...], int] = {}
    for row in buckets:
        window = row["window"] if by_window else None
        key = (row["measure"], row["topic"], row["group"], window)
        sketches.setdefault(key, Sketch()).add_bucket(row["bucket"], row["messages"])
        skewed[key] = skewed.get(key, 0) + row["skewed"]

    def order(key: tuple[Any, ...]) -> tuple[str, ...]:
        return tuple("" if part is None else f"{part:>20}" for part in key)

    return [
        {
            "measure": key[0],
            "topic": key[1],
            "group": key[2],
            **({"window": _time(key[3])} if by_window else {}),
            "messages": sketches[key].count,
            **{name: _rounded(sketches[key].quantile(part)) for name, part in PERCENTILES.items()},
            "skewed": skewed[key],
        }
        for key in sorted(sketches, key=order)
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _time(at_ms: int | None) -> datetime.datetime | None:
    return None if at_ms is None else datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
