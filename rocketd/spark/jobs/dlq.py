"""``rocketd spark dlq``: what consumer groups have given up, by group, topic and cause; and back with it.

Answers to what mqadmin's users do with queryMsgByKey and resendMessage one by one. Redriving goes through the
effectively-once sink: a run that is killed and started again sends nothing twice and leaves nothing out.
"""

import argparse
import json
import os
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rocketd.common.names import group_fault, topic_fault
from rocketd.spark.errors import OptionError
from rocketd.spark.jobs.arguments import add_source_arguments
from rocketd.spark.jobs.dlq_rows import GROUP_COLUMNS, READ_COLUMNS, all_topics, facts, redriven, topics_of
from rocketd.spark.jobs.dlq_state import RedriveState, filter_name
from rocketd.spark.jobs.frames import message_frame
from rocketd.spark.jobs.job import Job as BaseJob
from rocketd.spark.jobs.job import JobContext
from rocketd.spark.jobs.report import Report
from rocketd.spark.jobs.targets import Target, add_cluster_arguments, cluster_options
from rocketd.spark.options import ReadOptions
from rocketd.spark.ranges import QueueRange, offsets_to_json
from rocketd.spark.source import open_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SAMPLES = 3
"""Ids that are shown of a group of messages."""

_PLANNED = ("subscribe", "subscribePattern", "assign", "startingOffsets", "startingTimestamp", "endingOffsets")
_PLANNED_TOO = ("endingTimestamp", "timestampStrategy")
_ALL = (all_topics(retried=False), all_topics(retried=True))


class Job(BaseJob):
    """Group dead letters, and redrive them."""

    description = (
        "Without --topic, the dead letters of all groups are looked at, or those of each --group; --retried adds what they "
        "are to try again. --sql is a condition over the columns of messages, as: properties['region'] = 'eu' AND "
        "reconsume_times > 3. With --redrive, each message that is selected goes back to its topic once, with the id of the "
        "original in property ORIGIN_MESSAGE_ID; --state remembers what has gone back, so that a repetition sends only "
        "what is new. The exit status is 1 when messages cannot go back, as nobody knows where they came from."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Source, filter, redriving."""
        add_source_arguments(parser)
        group = parser.add_argument_group("dead letters")
        group.add_argument("--group", action="append", default=[], metavar="NAME", help="consumer group; repeatable")
        group.add_argument("--retried", action="store_true", help="also what groups are to try again (%%RETRY%%)")
        group.add_argument(
            "--cause", default="TAGS", metavar="NAME", help="property to group by (default: %(default)s)"
        )
        group.add_argument("--tag", action="append", default=[], metavar="TAG", help="only with this tag; repeatable")
        group.add_argument("--key", action="append", default=[], metavar="KEY", help="only with this key; repeatable")
        group.add_argument("--sql", metavar="CONDITION", help="only where this holds, in Spark's SQL")
        back = parser.add_argument_group("redriving")
        back.add_argument("--redrive", action="store_true", help="send the messages again")
        where = back.add_mutually_exclusive_group()
        where.add_argument("--to-topic", metavar="NAME", help="to this topic (default: that which each one came from)")
        where.add_argument("--to-group", action="store_true", help="only to the group that gave them up")
        add_cluster_arguments(back)
        back.add_argument("--state", metavar="DIR", help="remembers what has gone back; needed for --redrive")

    def run(self, context: JobContext, args: argparse.Namespace) -> Report:
        """Count, and send."""
        began = time.monotonic()
        options = dead_letter_options(args, context.source_options(args))
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
                sent, lost = self._redrive(context, args, options, ranges)
                found["redriven"] = sent
                if lost:
                    problems.append(
                        f"{lost} messages do not say which topic they came from, and were left; --to-topic sends them to one"
                    )
        context.progress.end()
        found["seconds"] = round(time.monotonic() - began, 3)
        return Report(found, problems)

    def _redrive(
        self, context: JobContext, args: argparse.Namespace, options: Mapping[str, str], ranges: list[QueueRange]
    ) -> tuple[int, int]:
        """Send what has not gone back yet; how many went, and how many cannot."""
        state_dir = os.path.abspath(args.state)
        target_options = {
            **cluster_options(args, options),
            "delivery": "effectively-once",
            "stagingDir": os.path.join(state_dir, "staging"),
            "sinkId": "dlq",
        }
        state = RedriveState(state_dir)
        name = filter_name(
            tags=sorted(args.tag), keys=sorted(args.key), sql=args.sql, topic=args.to_topic, to_group=args.to_group
        )
        step = state.begin(name, ranges)
        if not step.ranges:
            return 0, 0
        context.progress.begin("send them")
        spark = context.spark()
        frame = _selected(message_frame(spark, fixed(options, step.ranges), READ_COLUMNS), args)
        to_send = redriven(frame, args.to_topic or "", to_group=args.to_group)
        selected, going = frame.count(), to_send.count()
        if going:
            Target("topics", {**target_options, "jobId": step.job_id}).write(to_send)
        state.finish(step)
        return going, selected - going


def dead_letter_options(args: argparse.Namespace, given: Mapping[str, str]) -> dict[str, str]:
    """Read options for the topics that are meant. Raises OptionError."""
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


def _check(args: argparse.Namespace) -> None:
    if args.redrive:
        if not args.state:
            raise OptionError("--state must name a directory for --redrive, new or of an earlier redriving")
        if args.to_topic and (fault := topic_fault(args.to_topic)) is not None:
            raise OptionError(f"--to-topic {args.to_topic!r}: {fault}")
        return
    for name in ("to_topic", "to_group", "to_namesrv", "to_credentials", "rate", "state"):
        if getattr(args, name):
            raise OptionError(f"--{name.replace('_', '-')} goes with --redrive, and nothing is sent here")


def _planned(options: Mapping[str, str]) -> list[QueueRange]:
    """What is there now; nothing where a group, or all of them, have no dead letters yet."""
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
    """Read options for just these ranges."""
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


def _selected(frame: "DataFrame", args: argparse.Namespace) -> "DataFrame":
    """The messages that the filter takes."""
    from pyspark.sql import functions as f

    if args.tag:
        frame = frame.where(f.col("tags").isin(args.tag))
    if args.key:
        words = f.split(f.coalesce(f.col("keys"), f.lit("")), " ")
        frame = frame.where(f.arrays_overlap(words, f.array(*map(f.lit, args.key))))
    return frame.where(f.expr(args.sql)) if args.sql else frame


def _groups(rows: "DataFrame") -> list[dict[str, Any]]:
    """Counts, times and some ids of each group of messages, the greatest first."""
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
