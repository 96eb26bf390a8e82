"""``rocketd spark anonymise``: copy topics or archives with fields hashed or dropped."""

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.accumulators import AccumulatorParam

from rocketd.spark.columns import ddl
from rocketd.spark.errors import OptionError
from rocketd.spark.jobs.anonymise.fields import Action, Anonymiser, Rule, rule
from rocketd.spark.jobs.running.arguments import check_archive_arguments, source_options, source_section
from rocketd.spark.jobs.running.command import job
from rocketd.spark.jobs.running.context import JobContext
from rocketd.spark.jobs.running.frames import archive_frame, message_frame, source_queues
from rocketd.spark.jobs.running.map_batches import map_batches
from rocketd.spark.jobs.running.options import Arguments, Section, option
from rocketd.spark.jobs.running.report import Report
from rocketd.spark.jobs.running.targets import Target, target_section

COLUMNS = (
    "topic", "broker", "queue_id", "queue_offset", "flag", "born_time", "born_host", "store_time", "uniq_key", "tags",
    "keys", "properties", "body",
)  # fmt: skip
"""The columns written: everything in a message, without columns that repeat its bytes."""


@job(
    "anonymise",
    source_section(archive=True),
    Section(
        "fields",
        [
            option("--hash", multiple=True, metavar="FIELD", help="field to replace with a token; repeatable"),
            option("--drop", multiple=True, metavar="FIELD", help="field to leave out; repeatable"),
            option("--secret", metavar="FILE", required=True, help="file with the secret key of the tokens"),
        ],
    ),
    target_section(),
)
def anonymise(context: JobContext, args: Arguments) -> Report:
    """Copy messages with fields hashed or left out.

    Fields: keys, tags, uniq_key, born_host, body, properties.NAME, and for JSON bodies body.NAME (or
    body.NAME.NAME). The same value and secret give the same token, so that joins still work. The input is never
    changed.
    """
    rules = [rule(field, Action.HASH) for field in args.hash] + [rule(field, Action.DROP) for field in args.drop]
    if not rules:
        raise OptionError("no field is named: --hash or --drop says which shall change")
    if args.to_topic and any(one.column == "body" and not one.path and one.action is Action.DROP for one in rules):
        raise OptionError(
            "--drop body leaves messages without a body, which brokers refuse: with --to-topic use --hash body, or drop "
            "fields of it (--drop body.NAME), or write with --to-archive"
        )
    secret = _secret(args.secret)
    Anonymiser(rules, secret)  # refuses a weak secret here, not in a task
    began = time.monotonic()
    if args.archive:
        check_archive_arguments(args)
    options = source_options(args)
    target = Target.of("anonymise", args, options)
    if not args.archive:
        source_queues(options)  # reports a missing topic before Spark starts
    spark = context.spark()
    frame = (
        archive_frame(spark, args.archive, args.topic, COLUMNS)
        if args.archive
        else message_frame(spark, options, COLUMNS)
    )
    touched = spark.sparkContext.accumulator(Counter[str](), _Counts())
    context.progress.begin("anonymise")
    changed = map_batches(frame, _Change(rules, secret, touched), ddl(COLUMNS))
    target.write(changed)
    context.progress.end()
    counts = touched.value
    facts: dict[str, Any] = {
        "target": target.description,
        "messages": counts.pop("", 0),
        "touched": {one.field: counts.get(one.field, 0) for one in rules},
        "seconds": round(time.monotonic() - began, 3),
    }
    return Report(facts)


class _Counts(AccumulatorParam[Counter[str]]):
    """Adds up counts by field; the empty name counts messages. A task that Spark runs twice counts twice."""

    def zero(self, value: Counter[str]) -> Counter[str]:
        return Counter()

    def addInPlace(self, value1: Counter[str], value2: Counter[str]) -> Counter[str]:  # noqa: N802 - Spark's name
        value1.update(value2)
        return value1


class _Change:
    """Applies the rules to batches, in a task."""

    def __init__(self, rules: Sequence[Rule], secret: bytes, touched: Any) -> None:
        self._rules = rules
        self._secret = secret
        self._touched = touched

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        anonymiser = Anonymiser(self._rules, self._secret)
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            yield anonymiser.apply(batch)
        self._touched += Counter({**anonymiser.touched, "": rows})


def _secret(path: str) -> bytes:
    try:
        with open(os.path.expanduser(path), "rb") as file:
            return file.read().strip()
    except OSError as error:
        raise OptionError(f"--secret {path} cannot be read: {error.strerror}") from None
