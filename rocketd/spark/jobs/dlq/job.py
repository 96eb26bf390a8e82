"""``rocketd spark dlq``: dead letters of consumer groups by group, topic and cause, and sending them again.

It does at once the work for which users of mqadmin call queryMsgByKey and resendMessage one by one. Messages go back
through the effectively-once sink: a killed and restarted run sends nothing twice and omits nothing.
"""

import json
import os
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rocketd.common.message_properties import DEAD_LETTER_EXCEPTION
from rocketd.common.names import group_fault, topic_fault
from rocketd.spark.errors import OptionError
from rocketd.spark.jobs.dlq.rows import GROUP_COLUMNS, READ_COLUMNS, all_topics, facts, redriven, topics_of
from rocketd.spark.jobs.dlq.state import RedriveState, filter_name
from rocketd.spark.jobs.running.arguments import source_options, source_section
from rocketd.spark.jobs.running.command import job
from rocketd.spark.jobs.running.context import JobContext
from rocketd.spark.jobs.running.frames import message_frame
from rocketd.spark.jobs.running.options import Alternatives, Arguments, Section, flag, option
from rocketd.spark.jobs.running.report import Report
from rocketd.spark.jobs.running.targets import Target, cluster_options, target_cluster_options
from rocketd.spark.options import ReadOptions
from rocketd.spark.ranges import QueueRange, offsets_to_json
from rocketd.spark.source import open_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SAMPLES = 3
"""The number of ids shown for a group of messages."""

_PLANNED = ("subscribe", "subscribePattern", "assign", "startingOffsets", "startingTimestamp", "endingOffsets")
_PLANNED_TOO = ("endingTimestamp", "timestampStrategy")
_ALL = (all_topics(retried=False), all_topics(retried=True))


@job(
    "dlq",
    source_section(),
    Section(
        "dead letters",
        [
            option("--group", multiple=True, metavar="NAME", help="consumer group; repeatable"),
            flag("--retried", help="also read messages waiting for a retry (%RETRY%)"),
            option(
                "--cause",
                default=DEAD_LETTER_EXCEPTION,
                metavar="NAME",
                help="property to group by, such as TAGS (default: DEAD_LETTER_EXCEPTION, which rocketd's client sets)",
            ),
            option("--tag", multiple=True, metavar="TAG", help="tag of the messages to select; repeatable"),
            option("--key", multiple=True, metavar="KEY", help="key of the messages to select; repeatable"),
            option("--sql", metavar="CONDITION", help="condition on the messages to select, in Spark's SQL"),
        ],
    ),
    Section(
        "redriving",
        [
            flag("--redrive", help="send the messages again"),
            flag(
                "--to-original-topic",
                help="send each to its original topic, for all groups (default: only to the group of the dead letter)",
            ),
            option("--to-topic", metavar="NAME", help="topic for all messages"),
            *target_cluster_options(),
            option("--state", metavar="DIR", help="directory of the messages sent back; needed for --redrive"),
        ],
        [Alternatives(("--to-topic", "--to-original-topic"))],
    ),
)
def dlq(context: JobContext, args: Arguments) -> Report:
    """Group dead letters by cause, and send them again.

    Without --topic, the dead letters of all groups are read, or those of each --group. --retried adds the messages
    waiting for a retry. --sql is a condition over the columns of messages, for example: properties['region'] =
    'eu' AND reconsume_times > 3. With --redrive, each selected message is sent once, as by "rocketd dlq redrive": only
    its group gets it unless --to-original-topic is given. It has the id of the original in the property ORIGIN_MESSAGE_ID.
    --state keeps the messages sent back, so that a second run
    sends only new ones. The exit status is 1 if messages cannot be sent back, because their topic is unknown.
    """
    began = time.monotonic()
    options = dead_letter_options(args, source_options(args))
    _check(args)
    ranges = _planned(options)
    found: dict[str, Any] = {"messages": 0, "groups": []}
    problems: list[str] = []
    if args.redrive:
        found["redriven"] = 0
    if ranges:
        spark = context.spark()
        context.progress.begin("group them")
        frame = _selected(message_frame(spark, fixed(options, ranges), GROUP_COLUMNS), args)
        rows = _groups(facts(frame, args.cause))
        found["messages"] = sum(row["messages"] for row in rows)
        found["groups"] = rows
        if args.redrive:
            sent, lost = _redrive(context, args, options, ranges)
            found["redriven"] = sent
            if lost:
                problems.append(
                    f"{lost} messages do not say which topic they came from, and were left; --to-topic sends them to one"
                )
    context.progress.end()
    found["seconds"] = round(time.monotonic() - began, 3)
    return Report(found, problems)


def _redrive(
    context: JobContext, args: Arguments, options: Mapping[str, str], ranges: list[QueueRange]
) -> tuple[int, int]:
    """Send the messages that have not gone back yet. Return how many were sent, and how many cannot be."""
    state_dir = os.path.abspath(args.state)
    target_options = {
        **cluster_options(args, options),
        "delivery": "effectively-once",
        "stagingDir": os.path.join(state_dir, "staging"),
        "sinkId": "dlq",
    }
    state = RedriveState(state_dir)
    name = filter_name(
        tags=sorted(args.tag), keys=sorted(args.key), sql=args.sql, topic=args.to_topic, to_group=_to_group(args)
    )
    step = state.begin(name, ranges)
    if not step.ranges:
        return 0, 0
    context.progress.begin("send them")
    spark = context.spark()
    frame = _selected(message_frame(spark, fixed(options, step.ranges), READ_COLUMNS), args)
    to_send = redriven(frame, args.to_topic or "", to_group=_to_group(args))
    selected, going = frame.count(), to_send.count()
    if going:
        Target("topics", {**target_options, "jobId": step.job_id}).write(to_send)
    state.finish(step)
    return going, selected - going


def _to_group(args: Arguments) -> bool:
    return not (args.to_topic or args.to_original_topic)


def dead_letter_options(args: Arguments, given: Mapping[str, str]) -> dict[str, str]:
    """Return read options for the requested topics. Raises OptionError."""
    options = dict(given)
    if args.group:
        if "subscribe" in options or "subscribePattern" in options:
            raise OptionError("--group and --topic contradict each other: give one of them")
        for name in args.group:
            if (fault := group_fault(name)) is not None:
                raise OptionError(f"--group {name!r}: {fault}")
        options["subscribe"] = ",".join(topic for name in args.group for topic in topics_of(name, retried=args.retried))
    elif "subscribe" not in options and "subscribePattern" not in options:
        options["subscribePattern"] = all_topics(retried=args.retried)
    return options


def _check(args: Arguments) -> None:
    if args.redrive:
        if not args.state:
            raise OptionError("--state must name a directory for --redrive, new or of an earlier redriving")
        if args.to_topic and (fault := topic_fault(args.to_topic)) is not None:
            raise OptionError(f"--to-topic {args.to_topic!r}: {fault}")
        return
    for name in ("to_topic", "to_original_topic", "to_namesrv", "to_credentials", "rate", "state"):
        if getattr(args, name):
            raise OptionError(f"--{name.replace('_', '-')} goes with --redrive, and nothing is sent here")


def _planned(options: Mapping[str, str]) -> list[QueueRange]:
    """Return the present ranges; empty if the group, or all groups, have no dead letters yet."""
    source = open_source(ReadOptions.parse(options))
    try:
        if "subscribe" in options:
            topics = [topic for topic in options["subscribe"].split(",") if source.catalog.queues(topic)]
            if not topics:
                return []
            source = open_source(ReadOptions.parse({**options, "subscribe": ",".join(topics)}))
        elif options.get("subscribePattern") in _ALL:
            topics = source.catalog.topics()
            if topics and not any(re.fullmatch(options["subscribePattern"], topic) for topic in topics):
                return []
        return [part for part in source.plan() if part.count]
    finally:
        source.close()


def fixed(options: Mapping[str, str], ranges: list[QueueRange] | tuple[QueueRange, ...]) -> dict[str, str]:
    """Return read options for exactly these ranges."""
    queues: dict[str, dict[str, list[int]]] = {}
    for part in ranges:
        queues.setdefault(part.queue.topic, {}).setdefault(part.queue.broker, []).append(part.queue.queue_id)
    kept = {name: value for name, value in options.items() if name not in (*_PLANNED, *_PLANNED_TOO)}
    return {
        **kept,
        "assign": json.dumps(queues),
        "startingOffsets": json.dumps(offsets_to_json({part.queue: part.start for part in ranges})),
        "endingOffsets": json.dumps(offsets_to_json({part.queue: part.end for part in ranges})),
    }


def _selected(frame: "DataFrame", args: Arguments) -> "DataFrame":
    """Return the messages accepted by the filter."""
    from pyspark.sql import functions as f

    if args.tag:
        frame = frame.where(f.col("tags").isin(args.tag))
    if args.key:
        words = f.split(f.coalesce(f.col("keys"), f.lit("")), " ")
        frame = frame.where(f.arrays_overlap(words, f.array(*map(f.lit, args.key))))
    return frame.where(f.expr(args.sql)) if args.sql else frame


def _groups(rows: "DataFrame") -> list[dict[str, Any]]:
    """Return counts, times and some ids for each group of messages, the largest first."""
    from pyspark.sql import functions as f

    found = (
        rows.groupBy("kind", "group", "origin", "cause")
        .agg(
            f.count(f.lit(1)).alias("messages"),
            f.min("store_time").alias("first"),
            f.max("store_time").alias("last"),
            f.max("reconsume_times").alias("reconsumed"),
            f.max_by("id", "store_time", SAMPLES).alias("ids"),
        )
        .orderBy(f.desc("messages"), "kind", "group", "origin", "cause")
        .collect()
    )
    return [
        {
            "kind": row["kind"],
            "group": row["group"],
            "topic": row["origin"],
            "cause": row["cause"],
            "messages": row["messages"],
            "first": row["first"],
            "last": row["last"],
            "reconsumed": row["reconsumed"],
            "ids": row["ids"],
        }
        for row in found
    ]
