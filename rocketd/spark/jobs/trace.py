"""``rocketd spark trace``: latencies, failures and lost messages out of the trace records that clients have sent.

Answers to mqadmin queryMsgTraceById, for all messages at once. Percentiles come from a sketch that adds up, with a relative
error of 1 %.
"""

import argparse
import datetime
import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rocketd.common.names import TRACE_TOPIC
from rocketd.spark.columns import ddl
from rocketd.spark.errors import OptionError
from rocketd.spark.jobs.arguments import add_source_arguments
from rocketd.spark.jobs.frames import frozen_options, message_frame
from rocketd.spark.jobs.job import Job as BaseJob
from rocketd.spark.jobs.job import JobContext
from rocketd.spark.jobs.report import Report
from rocketd.spark.jobs.sketch import ERROR, Sketch
from rocketd.spark.jobs.trace_follow import Follower, Lengths, summed
from rocketd.spark.jobs.trace_measures import (
    failed,
    failures,
    in_buckets,
    measured,
    never_consumed,
    row_counts,
    unconsumed,
)
from rocketd.spark.jobs.trace_records import READ_COLUMNS, records
from rocketd.spark.options.kinds import DURATION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class Job(BaseJob):
    """Say what message traces say."""

    description = (
        "Times are those of the clients that sent the records; a message that seems to have been consumed before it was "
        "stored counts as skewed, and as consumed at once. A topic is unknown (-) where the record of the send is not among "
        "those that were read. Messages count as never consumed when nobody has had them --grace after they were sent; "
        "delayed ones are left out. With --follow, a window is measured when the newest record is --delay behind its end; "
        "later records are counted as late. The exit status is 1 when records cannot be read."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Source, windows, lists."""
        add_source_arguments(parser)
        group = parser.add_argument_group("trace")
        group.add_argument(
            "--window", default="1m", metavar="DURATION", help="length of a window (default: %(default)s)"
        )
        group.add_argument("--by-window", action="store_true", help="a line for each window of time, too")
        group.add_argument(
            "--grace", default="1m", metavar="DURATION", help="time that consumers are given (default: %(default)s)"
        )
        group.add_argument("--follow", action="store_true", help="go on as records come, until Ctrl-C")
        group.add_argument("--once", action="store_true", help="with --follow: end when all is read that is there now")
        group.add_argument(
            "--state", metavar="DIR", help="with --follow: keeps how far it is; a later run goes on there"
        )
        group.add_argument(
            "--delay",
            default="1m",
            metavar="DURATION",
            help="with --follow: how late records may be (default: %(default)s)",
        )
        group.add_argument(
            "--keep",
            default="1h",
            metavar="DURATION",
            help="with --follow: how much later a message may be consumed to be measured (default: %(default)s)",
        )
        group.add_argument(
            "--interval",
            default="10s",
            metavar="DURATION",
            help="with --follow: time between steps (default: %(default)s)",
        )
        group.add_argument(
            "--ids", type=int, default=10, metavar="N", help="ids to show of messages (default: %(default)s)"
        )

    def run(self, context: JobContext, args: argparse.Namespace) -> Report:
        """Read the records, and measure."""
        began = time.monotonic()
        window = duration_ms("--window", args.window)
        grace = duration_ms("--grace", args.grace, least=0)
        if args.ids < 1:
            raise OptionError(f"--ids {args.ids}: accepted are numbers from 1 on")
        given = context.source_options(args)
        if not {"subscribe", "subscribePattern"} & given.keys():
            given["subscribe"] = TRACE_TOPIC
        if args.follow:
            delay, keep = duration_ms("--delay", args.delay, 0), duration_ms("--keep", args.keep, 0)
            return self._follow(context, args, given, Lengths(window, delay, grace, keep))
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
            report = self._report(rows, window, grace, args)
        finally:
            rows.unpersist()
            context.progress.end()
        return Report({**report.facts, "seconds": round(time.monotonic() - began, 3)}, report.problems)

    def _follow(self, context: JobContext, args: argparse.Namespace, given: dict[str, str], lengths: Lengths) -> Report:
        """Measure windows as they close, until there is an end; the results of all steps of the state."""
        if not args.state:
            raise OptionError("--state must name a directory for --follow, new or of an earlier run")
        state = os.path.abspath(args.state)
        interval = duration_ms("--interval", args.interval)

        def tell(result: dict[str, Any]) -> None:
            for row in latency_rows(result["buckets"], by_window=True):
                context.progress.note(window_line(row))
            context.progress.advance(sum(result["records"].values()))

        follower = Follower(state, lengths, args.ids, tell)
        spark = context.spark()
        if not any(name.startswith("starting") for name in given):
            given["startingOffsets"] = "earliest"
        frame = spark.readStream.format("rocketd").options(**given).schema(ddl(READ_COLUMNS)).load()
        writer = frame.writeStream.foreachBatch(follower).option(
            "checkpointLocation", os.path.join(state, "checkpoint")
        )
        when = (
            writer.trigger(availableNow=True)
            if args.once
            else writer.trigger(processingTime=f"{interval} milliseconds")
        )
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

    def _report(self, rows: "DataFrame", window: int, grace: int, args: argparse.Namespace) -> Report:
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
    """One line about one measure, topic and group in one window."""
    names = f"{row['topic'] or '-'} {row['group'] or '-'}"
    numbers = " ".join(f"{name} {row[name]:g} ms" for name in PERCENTILES)
    return f"{row['window']:%Y-%m-%d %H:%M:%S} {row['measure']} {names}: {row['messages']} messages, {numbers}"


def unreadable(count: int) -> list[str]:
    """What is to be said of records that are none."""
    return (
        [f"{count} trace records are too short, or have texts where numbers should be, and count nowhere"]
        if count
        else []
    )


def duration_ms(name: str, text: str, least: int = 1) -> int:
    """A duration in ms. Raises OptionError."""
    try:
        value = round(DURATION.read(text) * 1000)
    except ValueError:
        raise OptionError(f"{name} is {text!r}; accepted is {DURATION.accepted}") from None
    if value < least:
        raise OptionError(f"{name} is {text!r}; accepted are {least} ms and more")
    return value


def latency_rows(buckets: Iterable[Any], *, by_window: bool) -> list[dict[str, Any]]:
    """Percentiles of each measure, topic and group, and of each window if so wanted, out of counts by bucket."""
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
