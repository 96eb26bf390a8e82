"""``rocketd spark sql``: a file of ordinary Spark SQL over topics, as streams.

Every topic that the text names is a view of the same name, with the columns of messages. What a SELECT yields is shown;
``INSERT INTO topic.`NAME` SELECT …`` sends it, each row once, and ``INSERT INTO archive.`DIR` SELECT …`` writes it to an
archive. All other statements, CREATE TEMPORARY VIEW first of all, are Spark's.
"""

import argparse
import json
import os
import re
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocketd.spark.columns import COLUMNS, DEFAULT_COLUMNS, ddl
from rocketd.spark.errors import OptionError, SparkError
from rocketd.spark.jobs.arguments import add_source_arguments
from rocketd.spark.jobs.job import Job as BaseJob
from rocketd.spark.jobs.job import JobContext
from rocketd.spark.jobs.report import Report
from rocketd.spark.jobs.sql_text import Statement, names, statements
from rocketd.spark.jobs.targets import add_cluster_arguments, cluster_options
from rocketd.spark.jobs.unwrap import unwrapped
from rocketd.spark.options import ReadOptions
from rocketd.spark.planning.queues import NO_TOPIC
from rocketd.spark.source import open_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_MODES = {"console": ("append", "complete"), "topic": ("append", "update"), "archive": ("append",)}
"""Output modes in the order in which they are tried: the first that Spark takes for the query."""

_WRONG_MODE = "STREAMING_OUTPUT_MODE"
_ALL_COLUMNS = re.compile(r"\bcount\s*\(\s*\*\s*\)|\*|\|>", re.IGNORECASE)
"""A star, or the beginning of a pipe, which takes all columns along; and what counts rows, which is none of both."""


class Job(BaseJob):
    """Run a file of SQL."""

    description = (
        "Runs until Ctrl-C, or with --once until what is there now is done. With --checkpoint a later run goes on where "
        "this one ended; without, it starts again from --from. A view has only the columns that the text names, or all of "
        "them where it says *."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Source, file, how it runs, target cluster."""
        parser.add_argument("file", metavar="FILE", help="the statements, parted by semicolons")
        add_source_arguments(parser)
        group = parser.add_argument_group("streams")
        group.add_argument("--once", action="store_true", help="end when what is there now is done")
        group.add_argument("--checkpoint", metavar="DIR", help="keep how far each statement is; needed by INSERT")
        group.add_argument("--interval", metavar="DURATION", default="1s", help="time between batches (default: 1s)")
        group.add_argument(
            "--watermark", metavar="DURATION", help="how late messages may come: closes windows over store_time"
        )
        add_cluster_arguments(parser.add_argument_group("target of INSERT INTO topic"))

    def run(self, context: JobContext, args: argparse.Namespace) -> Report:
        """Register the topics, start each statement, wait."""
        text = _read(args.file)
        todo = list(statements(text))
        if not any(one.sink for one in todo):
            raise OptionError(f"{args.file} has no SELECT and no INSERT: nothing would run")
        if not args.checkpoint and any(one.sink in ("topic", "archive") for one in todo):
            raise OptionError("--checkpoint must name a directory: INSERT writes each row once only with one")
        options = context.source_options(args)
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
            # This is how it is meant to end. Whatever call into Java was cut short, no other follows but to stop.
            context.cancel()
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
    """The topics that the text names, of those that the source has. Raises OptionError when there are none."""
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
    """The columns that the text may need: those it names, and all where it says ``*`` for more than counting."""
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
    """None for a query over no stream, which has ended already."""
    shown: int = 0
    batches: int = 0
    read: int = 0
    last_batch: int = -1

    def look(self) -> None:
        """Count the batches that have ended since the last look: Spark keeps some of the last only."""
        for progress in self.query.recentProgress if self.query is not None else ():
            if progress.batchId > self.last_batch and progress.numInputRows:
                self.last_batch = progress.batchId
                self.batches += 1
                self.read += progress.numInputRows


class _Running:
    """The statements that have been started."""

    def __init__(self, spark: "SparkSession", args: argparse.Namespace, options: Mapping[str, str]) -> None:
        self._spark = spark
        self._args = args
        self._options = options
        self._started: list[_Started] = []
        self._folders: set[str] = set()

    def start(self, statement: Statement) -> None:
        """Run a statement that yields no rows; start one that does. Raises SparkError that names its line."""
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
        """A checkpoint of its own for each statement, found again when the file is edited elsewhere."""
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
        """Return when all streams have ended. Raises SparkError when one of them fails."""
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
        """Whether it has ended, after a while; a failure of another one is raised here, too."""
        ended = bool(query.awaitTermination(1))
        for one in self._started:
            failure = one.query.exception() if one.query is not None else None
            if failure is not None:
                raise SparkError(f"the statement of line {one.statement.line}: {unwrapped(failure)}")
            one.look()
        return ended

    def rows(self) -> list[dict[str, Any]]:
        """A line of the report for each statement."""
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
    """Prints the rows of a batch: a table, or an object a line."""

    def __init__(self, as_json: bool, one: _Started) -> None:
        self._as_json = as_json
        self._one = one

    def __call__(self, frame: "DataFrame", batch: int) -> None:
        from rocketd.spark.jobs.report import Report

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


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _plain_cell(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool)) or value is None else _plain(value)


def _spark_interval(text: str) -> str:
    from rocketd.spark.options.kinds import DURATION

    try:
        return f"{int(DURATION.read(text) * 1000)} milliseconds"
    except ValueError:
        raise OptionError(f"--interval is {text!r}; accepted is {DURATION.accepted}") from None
