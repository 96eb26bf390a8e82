"""``rocketd spark sql``: run a file of ordinary Spark SQL over topics, as streams.

Every topic named in the text is a view of the same name, with the columns of messages. The rows of a SELECT are shown.
``INSERT INTO topic.`NAME` SELECT …`` sends the rows, each once, and ``INSERT INTO archive.`DIR` SELECT …`` writes them
to an archive. All other statements, such as CREATE TEMPORARY VIEW, go to Spark unchanged.
"""

import contextlib
import json
import os
import re
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from rocketd.spark.columns import COLUMNS, DEFAULT_COLUMNS, ddl
from rocketd.spark.errors import OptionError, SparkError
from rocketd.spark.jobs.running.arguments import source_options, source_section
from rocketd.spark.jobs.running.command import job
from rocketd.spark.jobs.running.context import JobContext
from rocketd.spark.jobs.running.options import Arguments, Section, flag, option
from rocketd.spark.jobs.running.report import Report
from rocketd.spark.jobs.running.targets import cluster_options, target_cluster_options
from rocketd.spark.jobs.sql.text import Statement, names, statements
from rocketd.spark.options import ReadOptions
from rocketd.spark.planning.queues import NO_TOPIC
from rocketd.spark.sessions.unwrap import unwrapped
from rocketd.spark.source import open_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_MODES = {"console": ("append", "complete"), "topic": ("append", "update"), "archive": ("append",)}
"""Output modes in order of preference: the first one that Spark accepts for the query is used."""

_WRONG_MODE = "STREAMING_OUTPUT_MODE"
_ALL_COLUMNS = re.compile(r"\bcount\s*\(\s*\*\s*\)|\*|\|>", re.IGNORECASE)
"""Matches a star, a pipe operator (which keeps all columns), or a call that counts rows (which needs no columns)."""


@job(
    "sql",
    source_section(),
    Section(
        "streams",
        [
            flag("--once", help="stop after the messages existing at the start"),
            option("--checkpoint", metavar="DIR", help="directory of each statement's progress; needed by INSERT"),
            option("--interval", metavar="DURATION", default="1s", help="time between batches (default: 1s)"),
            option(
                "--watermark", metavar="DURATION", help="maximum delay of messages; it closes windows over store_time"
            ),
        ],
    ),
    Section("target of INSERT INTO topic", target_cluster_options()),
    arguments=[click.Argument(["file"], metavar="FILE")],
)
def sql(context: JobContext, args: Arguments) -> Report:
    """Run a file of Spark SQL over topics, once or continuously.

    FILE has the statements, separated by semicolons.

    The job runs until Ctrl-C, or with --once until the end of the messages existing at the start. With --checkpoint,
    a later run continues at the end of this one. Without it, a run starts from --from. A view has the columns named
    in the text, or all columns for *.
    """
    text = _read(args.file)
    todo = list(statements(text))
    if not any(one.sink for one in todo):
        raise OptionError(f"{args.file} has no SELECT and no INSERT: nothing would run")
    if not args.checkpoint and any(one.sink in ("topic", "archive") for one in todo):
        raise OptionError("--checkpoint must name a directory: INSERT writes each row once only with one")
    options = source_options(args)
    queries = "\n".join(one.query for one in todo)
    topics = _topics(options, queries)
    spark = context.spark()
    for topic in topics:
        _register(spark, topic, options, _columns(queries), args.watermark)
    began = time.monotonic()
    running = _Running(spark, args, options)
    try:
        for statement in todo:
            running.start(statement)
        running.wait()
    except KeyboardInterrupt:
        if args.once:
            raise
        # This is the normal end. A call into Java may have been cut short, but the only calls left are those that stop
        # Spark.
        context.cancel()
        running.look()
    except BaseException:
        context.cancel()
        raise
    return Report({"topics": topics, "statements": running.rows(), "seconds": round(time.monotonic() - began, 3)})


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError:
        raise OptionError(f"{path} is not text in UTF-8") from None
    except OSError as error:
        raise OptionError(f"{path} cannot be read: {error.strerror}") from None


def _topics(options: Mapping[str, str], text: str) -> list[str]:
    """Return the topics of the source that the text names. Raises OptionError if there are none."""
    asked = dict(options)
    if not any(name in asked for name in ("subscribe", "subscribePattern", "assign")):
        asked["subscribePattern"] = ".*"
    source = open_source(ReadOptions.parse(asked, stream=True))
    try:
        known = source.catalog.topics()
    finally:
        source.close()
    if not known:
        raise OptionError(NO_TOPIC)
    if "subscribe" in options:
        known = [topic for topic in known if topic in options["subscribe"].split(",")]
    if "subscribePattern" in options:
        known = [topic for topic in known if re.fullmatch(options["subscribePattern"], topic)]
    used = names(text)
    topics = [topic for topic in known if topic.lower() in used]
    for one in topics:
        if alike := [topic for topic in topics if topic.lower() == one.lower() and topic != one]:
            raise OptionError(
                f"topics {one} and {alike[0]} differ in letter case only, which SQL does not see: name the one with --topic"
            )
    if not topics:
        some = ", ".join(known[:10]) + (", …" if len(known) > 10 else "")
        raise OptionError(f"the statements name no topic that is there; there are {some or 'none of those asked for'}")
    return topics


def _columns(text: str) -> tuple[str, ...]:
    """Return the columns that the text may need: those it names, or all if it has ``*`` outside a count."""
    if any(match.group() in ("*", "|>") for match in _ALL_COLUMNS.finditer(text)):
        return DEFAULT_COLUMNS
    used = names(text)
    return tuple(name for name in COLUMNS if name in used) or ("queue_offset",)


def _register(
    spark: "SparkSession", topic: str, options: Mapping[str, str], columns: Sequence[str], watermark: str | None
) -> None:
    given = {name: value for name, value in options.items() if name not in ("subscribe", "subscribePattern")}
    given.setdefault("startingOffsets", "earliest")
    if any(name.startswith("startingTimestamp") for name in options):
        del given["startingOffsets"]
    columns = [name for name in COLUMNS if name in columns or (watermark and name == "store_time")]
    frame = spark.readStream.format("rocketd").options(**given).option("subscribe", topic).schema(ddl(columns)).load()
    if watermark:
        frame = frame.withWatermark("store_time", watermark)
    frame.createOrReplaceTempView("`" + topic.replace("`", "``") + "`")


@dataclass(slots=True)
class _Started:
    statement: Statement
    query: "StreamingQuery | None"
    """None for a query without streams, which has already ended."""
    shown: int = 0
    batches: int = 0
    read: int = 0
    last_batch: int = -1

    def look(self) -> None:
        """Count the batches that ended since the last call, because Spark keeps only the last ones."""
        for progress in self.query.recentProgress if self.query is not None else ():
            if progress.batchId > self.last_batch and progress.numInputRows:
                self.last_batch = progress.batchId
                self.batches += 1
                self.read += progress.numInputRows


class _Running:
    """The statements started so far."""

    def __init__(self, spark: "SparkSession", args: Arguments, options: Mapping[str, str]) -> None:
        self._spark = spark
        self._args = args
        self._options = options
        self._started: list[_Started] = []
        self._folders: set[str] = set()

    def start(self, statement: Statement) -> None:
        """Run a statement without rows, or start one with rows. Raises SparkError with the line of the statement."""
        try:
            frame = self._spark.sql(statement.query)
            if not statement.sink:
                return
            one = _Started(statement, None)
            self._started.append(one)
            if frame.isStreaming:
                one.query = self._stream(frame, statement, one)
            else:
                self._batch(frame, statement, one)
        except SparkError:
            raise
        except Exception as error:
            raise SparkError(f"the statement of line {statement.line}: {unwrapped(error)}") from error

    def _stream(self, frame: "DataFrame", statement: Statement, one: _Started) -> "StreamingQuery":
        modes = _MODES[statement.sink]
        folder = self._folder(statement) if self._args.checkpoint else ""
        for mode in modes:
            writer = frame.writeStream.outputMode(mode).queryName(f"line-{statement.line}")
            if self._args.once:
                writer = writer.trigger(availableNow=True)
            else:
                writer = writer.trigger(processingTime=_spark_interval(self._args.interval))
            if folder:
                writer = writer.option("checkpointLocation", folder)
            if statement.sink == "console":
                writer = writer.foreachBatch(_Show(self._args.json, one))
            else:
                writer = writer.format("rocketd").options(**self._target(statement))
            try:
                return writer.start()
            except Exception as error:
                if mode == modes[-1] or _WRONG_MODE not in str(error):
                    raise
        raise AssertionError("the last mode starts or raises")

    def _batch(self, frame: "DataFrame", statement: Statement, one: _Started) -> None:
        if statement.sink == "console":
            _Show(self._args.json, one)(frame, 0)
        else:
            raise SparkError(
                f"line {statement.line}: INSERT takes its rows from a topic, and this statement reads none"
            )

    def _target(self, statement: Statement) -> dict[str, str]:
        if statement.sink == "archive":
            return {"archive": os.path.abspath(statement.target)}
        options = cluster_options(self._args, self._options)
        return {**options, "topic": statement.target, "delivery": "effectively-once"}

    def _folder(self, statement: Statement) -> str:
        """Return a checkpoint folder for the statement. It stays the same if other parts of the file change."""
        what = f"{statement.sink} {statement.target}" if statement.target else f"console {statement.query}"
        plain = re.sub(r"[^A-Za-z0-9]+", "-", statement.target).strip("-")[-40:]
        base = f"{statement.sink}-{plain}-{zlib.crc32(what.encode()):08x}"
        name, number = base, 1
        while name in self._folders:
            number += 1
            name = f"{base}-{number}"
        self._folders.add(name)
        return os.path.join(os.path.abspath(self._args.checkpoint), name)

    def wait(self) -> None:
        """Wait until all streams have ended. Raises SparkError if one of them fails."""
        for one in self._started:
            if one.query is None:
                continue
            try:
                while not self._ended(one.query):
                    pass
            except SparkError:
                raise
            except Exception as error:
                raise SparkError(f"the statement of line {one.statement.line}: {unwrapped(error)}") from error

    def _ended(self, query: "StreamingQuery") -> bool:
        """Wait a second, and tell whether the query has ended. The failure of any other query is raised too."""
        ended = bool(query.awaitTermination(1))
        for one in self._started:
            failure = one.query.exception() if one.query is not None else None
            if failure is not None:
                raise SparkError(f"the statement of line {one.statement.line}: {unwrapped(failure)}")
            one.look()
        return ended

    def look(self) -> None:
        """Count the batches that ended since the last second. Never raises, because the job is ending."""
        for one in self._started:
            with contextlib.suppress(Exception):
                one.look()

    def rows(self) -> list[dict[str, Any]]:
        """Return a row of the report for each statement."""
        return [
            {
                "line": one.statement.line,
                "sink": one.statement.sink,
                "target": one.statement.target or None,
                "batches": one.batches,
                "rows_read": one.read,
                "rows_shown": one.shown if one.statement.sink == "console" else None,
            }
            for one in self._started
        ]


class _Show:
    """Prints the rows of a batch: as a table, or as one JSON object a line."""

    def __init__(self, as_json: bool, one: _Started) -> None:
        self._as_json = as_json
        self._one = one

    def __call__(self, frame: "DataFrame", batch: int) -> None:
        from rocketd.spark.jobs.running.report import Report

        rows = frame.toArrow().to_pylist()
        self._one.shown += len(rows)
        if not rows:
            return
        if self._as_json:
            for row in rows:
                print(json.dumps(row, default=_plain, ensure_ascii=False), flush=True)
        else:
            shown = [{name: _plain_cell(value) for name, value in row.items()} for row in rows]
            print(Report({f"line {self._one.statement.line}, batch {batch}": shown}).as_text(), flush=True)


def _plain(value: object) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _plain_cell(value: object) -> Any:
    return value if isinstance(value, (str, int, float, bool)) or value is None else _plain(value)


def _spark_interval(text: str) -> str:
    from rocketd.spark.options.kinds import DURATION

    try:
        return f"{int(DURATION.read(text) * 1000)} milliseconds"
    except ValueError:
        raise OptionError(f"--interval is {text!r}; accepted is {DURATION.accepted}") from None
