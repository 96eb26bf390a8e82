"""``rocketd spark restore``: make a store's directory from an archive, with every record at its old offset.

A record states its offset in the commit log, and ids of messages and transactions refer to it. So each record returns
to its offset. Gaps are covered by records that both brokers walk over, and queues do not contain. So an archive with
some of a broker's topics can be restored too, and needs no more space than the old log.
"""

import os
import time
from functools import partial
from typing import Any

from rocketd.common.command_line.option_types import whole_number
from rocketd.spark.archive.archive import Archive
from rocketd.spark.archive.format.durable import Lock, make_dirs
from rocketd.spark.archive.reader import check_is_messages
from rocketd.spark.archive.restore.checking import QueueRestored, check_queue, queue_tasks
from rocketd.spark.archive.restore.log_files import LogFileMade, write_log_file
from rocketd.spark.archive.restore.restore_work import RestorePlan, RestoreWork, log_tasks, plan_restore, was_ended
from rocketd.spark.archive.restore.restored_config import write_checkpoint, write_config
from rocketd.spark.archive.selection import Selection
from rocketd.spark.jobs.archive.arguments import selection_of, selection_section, size_of
from rocketd.spark.jobs.rebuild.job import Rebuilding
from rocketd.spark.jobs.running.command import job
from rocketd.spark.jobs.running.context import JobContext
from rocketd.spark.jobs.running.options import Arguments, Section, flag, option
from rocketd.spark.jobs.running.report import Report
from rocketd.spark.jobs.running.tasks import need_files_everywhere, run_tasks
from rocketd.spark.jobs.stopped_store.arguments import dispatch_options, rules_of, shape_of
from rocketd.spark.jobs.stopped_store.dispatched import DispatchRules
from rocketd.store.base.layout import CONSUME_QUEUE_UNIT, commit_log_dir


@job(
    "restore",
    selection_section(),
    Section(
        "store",
        [
            option("--to", "target", metavar="DIR", required=True, help="directory of the new store"),
            option(
                "--commit-log-file-size",
                metavar="SIZE",
                help="mappedFileSizeCommitLog of the broker (default: as in the archive, else 1g)",
            ),
            option(
                "--queue-file-size",
                type=whole_number(CONSUME_QUEUE_UNIT),
                metavar="BYTES",
                help="mappedFileSizeConsumeQueue of the broker (default: as above)",
            ),
            flag("--no-index", help="do not build the index"),
            *dispatch_options("as above"),
        ],
    ),
)
def restore(context: JobContext, args: Arguments) -> Report:
    """Restore a store's files from an archive, byte for byte.

    The target must be empty, or have an interrupted restore, which is then continued. All files are compared with
    the archive before they are put in place. Queues and index are built from the restored log. The broker must
    have the same settings of file sizes as the restored store.
    """
    archive = Archive.open(os.path.abspath(args.archive))
    check_is_messages(archive)
    selection = selection_of(args, archive)
    size = size_of("--commit-log-file-size", args.commit_log_file_size) if args.commit_log_file_size else None
    rules = rules_of(args)
    # Before anything is written: the selection may be empty.
    plan_restore(archive, len(archive.commits), selection, size)
    target = os.path.abspath(args.target)
    make_dirs(target)
    begun = {
        "commits": len(archive.commits),
        "asked": {
            "--archive": archive.root,
            "selection": selection.to_json(),
            "--commit-log-file-size": size,
            "--queue-file-size": args.queue_file_size,
            "--no-index": args.no_index,
            "--index-slots": args.index_slots,
            "--index-entries": args.index_entries,
            "--delay-levels": args.delay_levels,
            "--no-light-queues": args.no_light_queues,
        },
    }
    with Lock(os.path.join(target, ".rocketd-restore.lock"), f"the restore into {target}"):
        try:
            if was_ended(target, begun):
                return Report({"store": target})
            work = RestoreWork(target, begun)
            if work.is_moving:
                work.put_in_place()
                return Report({"store": target})
            plan = plan_restore(archive, work.commits, selection, size)
            restoring = _Restoring(context, archive, selection, work, plan)
            return restoring.run(args, rules)
        finally:
            os.unlink(os.path.join(target, ".rocketd-restore.lock"))


class _Restoring:
    """One restore."""

    def __init__(
        self, context: JobContext, archive: Archive, selection: Selection, work: RestoreWork, plan: RestorePlan
    ) -> None:
        self._context = context
        self._archive = archive
        self._selection = selection
        self._work = work
        self._plan = plan

    def run(self, args: Arguments, rules: DispatchRules) -> Report:
        """Make the log, compare it, make queues and index, and put everything in place."""
        work, plan = self._work, self._plan
        need_files_everywhere(self._context.spark(), [self._archive.root, work.work])
        began = time.monotonic()
        made = self._log()
        queues = self._check()
        write_config(work.store, plan.config, queues)
        rebuilt = work.queues or self._queues(args, rules)
        write_checkpoint(work.store, max(one.last_time for one in made), indexed=not args.no_index)
        work.put_in_place()
        return Report(self._facts(made, queues, rebuilt, time.monotonic() - began), rebuilt["problems"])

    def _log(self) -> list[LogFileMade]:
        work, context = self._work, self._context
        made = work.log_files()
        tasks = log_tasks(self._plan, self._archive.root, self._selection, work)
        left = [task for task in tasks if task.begin not in made]
        context.progress.begin("log", len(left), "files")
        for one in run_tasks(context.spark(), left, write_log_file, context.progress, description="restore log"):
            work.note_log_file(one)
            made[one.begin] = one
        context.progress.end()
        return [made[begin] for begin in sorted(made)]

    def _check(self) -> list[QueueRestored]:
        context = self._context
        plan, directory = self._plan, commit_log_dir(self._work.store)
        tasks = queue_tasks(plan.files, plan.log_file_size, self._archive.root, self._selection, directory)
        context.progress.begin("compare", len(tasks), "queues")
        found = list(
            run_tasks(context.spark(), tasks, check_queue, context.progress, description="compare with archive")
        )
        context.progress.end()
        return sorted((one for one in found if one.messages), key=lambda one: one.queue)

    def _queues(self, args: Arguments, rules: DispatchRules) -> dict[str, Any]:
        from rocketd.store.index.layout import DEFAULT_ENTRIES, DEFAULT_SLOTS
        from rocketd.store.offline.stopped_store import StoppedStore

        config = self._plan.config
        rebuilding = Rebuilding(StoppedStore(self._work.store), rules, self._work.made, self._context.progress)
        rebuilding.choose_sizes(args.queue_file_size or config.get("queueFileSize"))
        known = config.get("indexSlots", DEFAULT_SLOTS), config.get("indexEntries", DEFAULT_ENTRIES)
        rebuilding.shape = shape_of(args, known) or rebuilding.shape
        each = partial(run_tasks, self._context.spark(), description="restore queues")
        # Its resume data goes away with the working directory.
        report = rebuilding.run(each, index=not args.no_index, deleted_topics=True)
        return self._work.note_queues(report.facts["entries"], report.facts["index_entries"], report.problems)

    def _facts(
        self, made: list[LogFileMade], queues: list[QueueRestored], rebuilt: dict[str, Any], seconds: float
    ) -> dict[str, Any]:
        return {
            "store": self._work.target,
            "archive": self._archive.root,
            "broker": self._plan.broker,
            "messages": sum(one.records for one in made),
            "bytes": sum(one.bytes for one in made),
            "log_files": len(made),
            "log_file_size": self._plan.log_file_size,
            "filled_bytes": sum(one.filled for one in made),
            "entries": rebuilt["entries"],
            "index_entries": rebuilt["indexEntries"],
            "seconds": round(seconds, 3),
            "queues": [
                {
                    "topic": one.queue.topic,
                    "queue_id": one.queue.queue_id,
                    "first": one.first,
                    "last": one.last,
                    "messages": one.messages,
                    "sha256": one.sha256,
                }
                for one in queues
            ],
        }
