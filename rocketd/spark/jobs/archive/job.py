"""``rocketd spark archive``: write messages of topics to Parquet files, each offset once, even if the job is killed."""

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rocketd.spark.archive.archive import Archive, clear_staging
from rocketd.spark.archive.broker_facts import broker_facts, live_facts
from rocketd.spark.archive.filling import Archived, RangeTask, Totals, archive_ranges, fill
from rocketd.spark.archive.format.durable import Lock
from rocketd.spark.archive.format.layout import job_lock_path, random_part, staging_dir
from rocketd.spark.archive.format.manifest import ArchiveFile
from rocketd.spark.archive.format.settings import DEFAULT_COLUMNS
from rocketd.spark.archive.parquet import DEFAULT_MAX_FILE_BYTES
from rocketd.spark.archive.planning import Remaining, remaining
from rocketd.spark.archive.reader import check_file
from rocketd.spark.errors import ArchiveError, ClusterError, DataLossError, OptionError
from rocketd.spark.jobs.archive.arguments import size_of
from rocketd.spark.jobs.running.arguments import source_options, source_section
from rocketd.spark.jobs.running.command import job
from rocketd.spark.jobs.running.context import JobContext
from rocketd.spark.jobs.running.options import Arguments, Section, flag, number, option
from rocketd.spark.jobs.running.report import Report
from rocketd.spark.jobs.running.tasks import need_files_everywhere, run_tasks
from rocketd.spark.options import ReadOptions
from rocketd.spark.options.positions import Earliest
from rocketd.spark.planning.losses import loss_text
from rocketd.spark.planning.queues import chosen_queues
from rocketd.spark.ranges import QueueRange, joined
from rocketd.spark.source import Source, cluster_options, open_source
from rocketd.spark.store.log_directories import log_directories
from rocketd.spark.wire.cluster import ClusterClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WRITER = "job-"
_SELECTING = ("subExpression", "sql92", "keys", "maxRows")
_ALL_TOPICS = ".*"
_LONGEST_INTERVAL = 86400.0


@job(
    "archive",
    source_section(),
    Section(
        "archive",
        [
            option("--to", "archive", metavar="DIR", required=True, help="directory of the archive"),
            option(
                "--columns",
                metavar="NAMES",
                help="columns of a new archive, besides those for a restore; all means all columns "
                f"(default: {','.join(name for name in DEFAULT_COLUMNS if name != 'raw')})",
            ),
            option(
                "--max-file-bytes",
                metavar="SIZE",
                default=str(DEFAULT_MAX_FILE_BYTES),
                help="size at which a new file is begun (default: 512m)",
            ),
            flag("--system-topics", help="without --topic: also archive system topics, for example those of delays"),
            flag("--allow-loss", help="record lost messages as gaps, and continue"),
            flag("--check", help="check each file by reading it before its commit"),
            flag("--check-all", help="at the end, check every file of the archive by reading it"),
            flag("--follow", help="archive new messages until interrupted; wait for unreachable brokers"),
            option(
                "--interval",
                metavar="SECONDS",
                type=number,
                default="10",
                help="with --follow: seconds between two reads (default: 10)",
            ),
        ],
    ),
)
def archive(context: JobContext, args: Arguments) -> Report:
    """Write topics to Parquet files, each message exactly once.

    Run it again to add later messages: ranges in the archive are not read again. After a killed run, the archive
    has complete commits only. Messages lost by the source are an error with their ranges. With --allow-loss, the
    archive records them as a gap.
    """
    given = source_options(args)
    for name in _SELECTING:
        if any(key.lower() == name.lower() for key in given):
            raise OptionError(
                f"option {name} leaves messages out: an archive takes all of them; filter when reading it"
            )
    if not any(name in given for name in ("subscribe", "subscribePattern", "assign")):
        given["subscribePattern"] = _ALL_TOPICS
        if args.system_topics:
            given = _with_system_topics(given)
    given.setdefault("failOnDataLoss", str(not args.allow_loss).lower())
    source = open_source(ReadOptions.parse(given))
    max_file_bytes = size_of("--max-file-bytes", args.max_file_bytes)
    if not 0 < args.interval <= _LONGEST_INTERVAL:
        raise OptionError(f"--interval is {args.interval:g}; give seconds, more than 0 and at most a day")
    root = os.path.abspath(args.archive)
    # A missing source or topic must not leave an empty archive behind.
    chosen_queues(source.catalog, source.options)
    archive = Archive.open_or_create(root, Archive.wanted_settings(root, args.columns))
    with Lock(job_lock_path(root), f"the archive {root}"):
        # Any job that staged files here has ended, because it held the lock.
        for name in _staged_by_jobs(root):
            clear_staging(root, name)
        run = _Run(context, source, archive, args, max_file_bytes)
        try:
            return run.all()
        finally:
            clear_staging(root, run.writer)
            source.close()


def _with_system_topics(given: dict[str, str]) -> dict[str, str]:
    source = open_source(ReadOptions.parse(given))
    try:
        topics = source.catalog.topics()
    finally:
        source.close()
    if not topics:
        return given  # the later search for matches reports this
    return {
        **{name: value for name, value in given.items() if name != "subscribePattern"},
        "subscribe": ",".join(topics),
    }


def _staged_by_jobs(root: str) -> list[str]:
    directory = staging_dir(root)
    return [name for name in os.listdir(directory) if name.startswith(_WRITER)] if os.path.isdir(directory) else []


class _Run:
    """One run of the job."""

    def __init__(
        self, context: JobContext, source: Source, archive: Archive, args: Arguments, max_file_bytes: int
    ) -> None:
        self.writer = _WRITER + random_part()
        self._context = context
        self._source = source
        self._archive = archive
        self._args = args
        self._max_file_bytes = max_file_bytes
        self._tasks = 0
        self._seconds = 0.0
        self._waiting = False

    def all(self) -> Report:
        """Archive the present messages, and with --follow new ones until an interrupt."""
        try:
            self._once()
            while self._args.follow:
                time.sleep(self._args.interval)
                self._look_again()
        except KeyboardInterrupt:
            if not self._args.follow:
                raise
            self._context.cancel()
            # The interrupt may have come after a commit was written, and before it was counted here.
            self._archive = Archive.open(self._archive.root)
        problems = self._check_all() if self._args.check_all else []
        return self._report(problems)

    def _look_again(self) -> None:
        """Archive new messages. Unreachable servers are waited for."""
        try:
            self._once(again=True)
        except (ClusterError, OptionError) as error:
            # The options were valid before: now a queue named by them is unreachable.
            if isinstance(error, ClusterError) and not error.retriable:
                raise
            if not self._waiting:
                self._context.progress.note(f"waiting: {error}")
            self._waiting = True
        else:
            if self._waiting:
                self._context.progress.note("going on")
            self._waiting = False

    def _once(self, *, again: bool = False) -> None:
        args, source, archive = self._args, self._source, self._archive
        from_earliest = isinstance(source.options.starting, Earliest)
        left = remaining(archive, source.catalog, source.options, from_earliest=from_earliest, again=again)
        if left.gaps and not args.allow_loss:
            raise DataLossError(f"{loss_text(left.gaps)}; run with --allow-loss to record this as gaps and go on")
        if not left.ranges and not left.gaps:
            return
        tasks = self._tasks_of(left)
        self._tasks += len(tasks)
        facts = broker_facts(source.catalog, left.queues, source.options.store, source.options.commit_log)
        if not source.is_store:
            cluster = ClusterClient(cluster_options(source.options))
            for broker, said in facts.items():
                said |= live_facts(cluster, broker)
        progress = self._context.progress
        progress.begin("archive", sum(part.count for part in left.ranges))
        began = time.monotonic()
        try:
            fill(archive, self.writer, left.gaps, tasks, self._results, facts)
        finally:
            self._seconds += time.monotonic() - began
            progress.end()

    def _tasks_of(self, left: Remaining) -> list[RangeTask]:
        if not left.ranges:
            return []
        args, source = self._args, self._source
        spark = self._spark()
        groups = source.tasks(left.ranges, cores=spark.sparkContext.defaultParallelism)
        return [
            RangeTask(
                source,
                self._archive.root,
                self.writer,
                self._archive.settings.names,
                parts,
                self._max_file_bytes,
                args.allow_loss,
                args.check,
            )
            for parts in groups
        ]

    def _spark(self) -> "SparkSession":
        spark = self._context.spark()
        options = self._source.options
        paths = [options.store, *log_directories(options.store, options.commit_log)] if options.store else []
        need_files_everywhere(spark, [self._archive.root, *paths])
        return spark

    def _results(self, tasks: list[RangeTask]) -> Iterator[list[Archived]]:
        if not tasks:
            return iter(())
        return run_tasks(
            self._context.spark(),
            tasks,
            archive_ranges,
            self._context.progress,
            weigh=lambda results: sum(one.part.count for one in results),
            description="archive",
        )

    def _check_all(self) -> list[str]:
        files = self._archive.files
        progress = self._context.progress
        progress.begin("check", len(files), "files")
        found = run_tasks(
            self._context.spark(), files, _Check(self._archive.root), progress, description="check archive"
        )
        problems = sorted(problem for problem in found if problem)
        progress.end()
        return problems

    def _report(self, problems: list[str]) -> Report:
        totals = Totals.of(self._archive, self.writer)
        facts: dict[str, Any] = {
            "archive": self._archive.root,
            "messages": totals.messages,
            "bytes": totals.raw_bytes,
            "file_bytes": totals.file_bytes,
            "files": totals.files,
            "tasks": self._tasks,
            "seconds": round(self._seconds, 3),
            "ranges": [_row(one) for one in joined(totals.ranges)],
            "gaps": [_row(one) for one in joined(totals.gaps)],
            "archived": {
                "messages": sum(file.rows for file in self._archive.files),
                "files": len(self._archive.files),
                "commits": len(self._archive.commits),
                "gaps": sum(gap.count for gap in self._archive.gaps),
            },
        }
        if self._args.check_all:
            facts["checked_files"] = len(self._archive.files)
        return Report(facts, problems)


class _Check:
    """Checks a file of an archive in a task. Returns the problem, or an empty text."""

    def __init__(self, root: str) -> None:
        self._root = root

    def __call__(self, file: ArchiveFile) -> str:
        try:
            check_file(self._root, file)
        except ArchiveError as error:
            return str(error)
        return ""


def _row(one: QueueRange) -> dict[str, Any]:
    queue = one.queue
    place = {"topic": queue.topic, "broker": queue.broker, "queue_id": queue.queue_id}
    return {**place, "start": one.start, "end": one.end}
