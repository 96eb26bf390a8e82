"""`rocketd spark rebuild`: make queues and index of a stopped store again from its commit log.

The files are the same as those made by a broker that starts without its queues. There is one task for each file of the
log, then one for each queue and for each index file. Nothing is deleted: replaced files are kept.
"""

import contextlib
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace as changed
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from rocketd.common.command_line.option_types import whole_number
from rocketd.common.names import LMQ_PREFIX
from rocketd.spark.archive.format.durable import make_dirs, replace, sync_dir
from rocketd.spark.errors import OptionError, StoreFilesError
from rocketd.spark.jobs.rebuild.index import make_index_file, planned_files
from rocketd.spark.jobs.rebuild.parts import Part, make_part
from rocketd.spark.jobs.rebuild.queue import EntrySlice, QueueMade, QueueToMake, make_queue
from rocketd.spark.jobs.running.command import job
from rocketd.spark.jobs.running.context import JobContext
from rocketd.spark.jobs.running.options import Alternatives, Arguments, Section, flag, option
from rocketd.spark.jobs.running.progress import JobProgressBar
from rocketd.spark.jobs.running.report import Report
from rocketd.spark.jobs.running.tasks import need_files_everywhere, run_tasks
from rocketd.spark.jobs.stopped_store.arguments import StoreInUse, rules_of, shape_of, store_section
from rocketd.spark.jobs.stopped_store.dispatched import DispatchRules, QueueKey
from rocketd.spark.jobs.stopped_store.files import IndexSizes
from rocketd.spark.jobs.verify.job import Each
from rocketd.spark.jobs.verify.task_values import LogFileSpan, StoreFacts
from rocketd.store.base.layout import (
    CONSUME_QUEUE_UNIT,
    DEFAULT_CONSUME_QUEUE_FILE_SIZE,
    consume_queue_dir,
    consume_queue_ext_dir,
    index_dir,
)

if TYPE_CHECKING:
    from rocketd.store.offline.stopped_store import StoppedStore

WORK = "rocketd-rebuild"
"""Directory within the store's, in which an in-place rebuild makes its files."""

ASIDE = "rocketd-rebuild-old-"
"""Prefix of the name of the directory for replaced files."""

_PLAN = "plan.json"
_PARTS = "parts"
_SWAP = "swap.json"


@job(
    "rebuild",
    store_section(),
    Section(
        "rebuild",
        [
            option("--to", metavar="DIR", help="directory for the new files"),
            flag("--in-place", help="replace the files of the store"),
            flag("--no-index", help="do not build the index"),
            flag("--deleted-topics", help="also build queues of topics missing in config/topics.json"),
            option(
                "--queue-file-size",
                type=whole_number(CONSUME_QUEUE_UNIT),
                metavar="BYTES",
                help="mappedFileSizeConsumeQueue of the broker",
            ),
        ],
        [Alternatives(("--to", "--in-place"), required=True)],
    ),
)
def rebuild(context: JobContext, args: Arguments) -> Report:
    """Rebuild the queues and indexes from the commit log.

    With --to, the store is only read, and the new consumequeue and index are written to DIR. With --in-place they
    are written to the store, and its old ones are moved to a directory within it. After an interrupt, start it again
    with the same arguments to continue. Queues without unexpired messages keep their offsets. Damaged parts of the
    log are skipped and reported; the exit status is then 1.
    """
    with StoreInUse(args.store, args.commit_log, context.progress, writes=args.in_place) as store:
        if args.in_place and (aside := unfinished_swap(store.root)) is not None:
            # All files were made, and the swap had begun.
            swap(store.root, os.path.join(store.root, WORK), aside)
            return Report({"store": store.root, "target": store.root, "aside": aside})
        target = os.path.join(store.root, WORK) if args.in_place else os.path.abspath(args.to)
        rebuilding = Rebuilding(store, rules_of(args), target, context.progress)
        rebuilding.choose_sizes(args.queue_file_size)
        rebuilding.shape = shape_of(args, (rebuilding.shape.slots, rebuilding.shape.entries)) or rebuilding.shape
        spark = context.spark()
        make_dirs(target)
        need_files_everywhere(spark, [*store.log.directories, target])
        each = partial(run_tasks, spark, description="rocketd rebuild")
        report = rebuilding.run(each, index=not args.no_index, deleted_topics=args.deleted_topics)
        return rebuilding.swap_in(report) if args.in_place else rebuilding.finish(report)


class Rebuilding:
    """A rebuild of one store, into a directory that may hold the results of an earlier run."""

    def __init__(self, store: "StoppedStore", rules: DispatchRules, target: str, progress: JobProgressBar) -> None:
        from rocketd.spark.jobs.verify.closely import PartialExamination, used_files
        from rocketd.store.index.layout import DEFAULT_ENTRIES, DEFAULT_SLOTS
        from rocketd.store.offline.examine import configured_topics

        if not store.log.segments:
            raise StoreFilesError(
                f"{', '.join(store.log.directories)} has no file of the commit log, so nothing can be made from it"
            )
        self._store = store
        self._target = target
        self._progress = progress
        self._topics = configured_topics(store.root)
        self._old = store.queues()
        examination = PartialExamination(store)
        examination.index_files()
        shape = examination.index_shape
        self.shape: IndexSizes = IndexSizes(*(shape or (DEFAULT_SLOTS, DEFAULT_ENTRIES)))
        """Slots and entries of the index files to make."""
        self._file_size = next((queue.file_size for queue in self._old), DEFAULT_CONSUME_QUEUE_FILE_SIZE)
        self.facts = StoreFacts(
            store.root,
            store.log.directories,
            store.log.file_size,
            tuple(LogFileSpan(*segment) for segment in store.log.segments),
            used_files(store.log),
            store.abnormal,
            False,
            store.queue_root,
            {},
            (),
            None,
            0,
            changed(rules, deletions=store.deletions),
        )

    def choose_sizes(self, queue_file_size: int | None = None) -> None:
        """Set the size of queue files in bytes, if it differs from the existing files. Raises OptionError."""
        if queue_file_size is not None:
            if queue_file_size < CONSUME_QUEUE_UNIT:
                raise OptionError(
                    f"--queue-file-size {queue_file_size}: accepted are numbers from {CONSUME_QUEUE_UNIT} on"
                )
            self._file_size = -(-queue_file_size // CONSUME_QUEUE_UNIT) * CONSUME_QUEUE_UNIT

    def run(self, each: Each, *, index: bool = True, deleted_topics: bool = False) -> Report:
        """Make the files that do not exist yet. `each` calls a function for each item."""
        self._keep_plan(index=index, deleted_topics=deleted_topics)
        parts = self._parts(each, index)
        left_out = self._left_out(parts, deleted_topics)
        made = self._queues(each, parts, left_out)
        index_files = self._index_files(each, parts) if index else []
        return self._report(parts, made, left_out, index_files)

    def _keep_plan(self, **options: bool) -> None:
        """Record the inputs and options; refuse a directory with other content."""
        facts = self.facts
        plan = {
            "log": [[file.offset, file.size, os.stat(file.path).st_mtime_ns] for file in facts.files],
            "queue_file_size": self._file_size,
            "index": [self.shape.slots, self.shape.entries],
            "rules": [list(facts.rules.delays_ms), facts.rules.light_queues],
            "options": options,
        }
        path = os.path.join(self._target, _PLAN)
        make_dirs(self._target)
        try:
            with open(path, encoding="utf-8") as file:
                known = json.load(file)
        except FileNotFoundError:
            known = None
        if known is None:
            if os.listdir(self._target):
                raise OptionError(
                    f"{self._target} is not empty, and no rebuilding that could go on; name another directory"
                )
            replace(path, json.dumps(plan).encode())
        elif known != plan:
            raise OptionError(
                f"{self._target} has a rebuilding that was begun with other arguments, or of another state of the log; "
                "remove it, or give the same arguments"
            )
        make_dirs(os.path.join(self._target, _PARTS))

    def _parts(self, each: Each, index: bool) -> list[Part]:
        facts = self.facts
        sizes = [file.size for file in facts.files]
        self._progress.begin("log", sum(sizes), "bytes")
        parts = []
        for part in each(range(facts.used), partial(make_part, facts, os.path.join(self._target, _PARTS), index)):
            parts.append(changed(part, path=os.path.join(self._target, _PARTS, os.path.basename(part.path))))
            self._progress.advance(sizes[part.number])
        return sorted(parts, key=lambda part: part.number)

    def _left_out(self, parts: Sequence[Part], deleted_topics: bool) -> dict[QueueKey, int]:
        """Count the records of queues that were deleted with their topic, by topic and queue id."""
        counts: dict[QueueKey, int] = {}
        if self._topics is None or deleted_topics:
            return counts
        old_topics = {queue.topic for queue in self._old}
        old = {(queue.topic, queue.queue_id) for queue in self._old}
        for part in parts:
            for topic, queue_id, _, records in part.queues:
                key = topic, queue_id
                if topic.startswith(LMQ_PREFIX) or key in old:
                    continue
                # If a topic was recreated with fewer queues, its other queues were deleted too.
                if topic not in old_topics if topic not in self._topics else 0 < self._topics[topic] <= queue_id:
                    counts[key] = counts.get(key, 0) + records
        return counts

    def _queues(self, each: Each, parts: Sequence[Part], left_out: dict[QueueKey, int]) -> list[QueueMade]:
        slices: dict[QueueKey, list[EntrySlice]] = {(queue.topic, queue.queue_id): [] for queue in self._old}
        for part in parts:
            for topic, queue_id, first, rows in part.queues:
                if (topic, queue_id) not in left_out:
                    slices.setdefault((topic, queue_id), []).append(EntrySlice(part.entries_path, first, rows))
        tasks = [
            QueueToMake(key, tuple(some), self._file_size, self.facts.log_begin, self.facts.queue_root)
            for key, some in slices.items()
        ]
        make_dirs(consume_queue_dir(self._target))
        self._progress.begin("queues", len(tasks), "queues")
        made = []
        for one in each(tasks, partial(make_queue, self._target)):
            made.append(one)
            self._progress.advance(1)
        return sorted(made, key=lambda one: one.key)

    def _index_files(self, each: Each, parts: Sequence[Part]) -> list[int]:
        directory = index_dir(self._target)
        make_dirs(directory)
        tasks = planned_files([(part.keys_path, part.keys) for part in parts], self.shape)
        self._progress.begin("index", len(tasks), "files")
        counts = []
        for entries in each(tasks, partial(make_index_file, directory, self.shape)):
            counts.append(entries)
            self._progress.advance(1)
        return counts

    def _report(
        self,
        parts: Sequence[Part],
        made: Sequence[QueueMade],
        left_out: dict[QueueKey, int],
        index_files: Sequence[int],
    ) -> Report:
        made = [one for one in made if one.end]
        deleted = Counter[str]()
        for (topic, _), records in left_out.items():
            deleted[topic] += records
        facts: dict[str, Any] = {
            "store": self.facts.root,
            "target": self._target,
            "records": sum(part.records for part in parts),
            "log_files": len(parts),
            "queues": len(made),
            "entries": sum(one.end - one.begin for one in made),
            "expired_entries": sum(one.expired for one in made),
            "index_files": len(index_files),
            "index_entries": sum(index_files),
            "deleted_topics": [{"topic": topic, "records": records} for topic, records in sorted(deleted.items())],
            "odd_queues": [
                {
                    "topic": one.key[0],
                    "queue": one.key[1],
                    "filled": one.filled,
                    "doubled": one.doubled,
                    "restarted": one.restarted,
                    "unlikely": one.unlikely,
                }
                for one in made
                if one.filled or one.doubled or one.restarted or one.unlikely
            ],
        }
        return Report(facts, [*(line for part in parts for line in part.damage), *self._problems(made)])

    @staticmethod
    def _problems(made: Sequence[QueueMade]) -> Iterator[str]:
        for one in made:
            name = f"{one.key[0]}-{one.key[1]}"
            if one.filled:
                yield f"queue {name} lacks {one.filled} messages that the log does not have; readers pass over them"
            if one.doubled:
                yield f"{one.doubled} records say that they are messages of queue {name} that others are, and have no entry"
            if one.unlikely:
                yield f"{one.unlikely} records of queue {name} have a queue offset that cannot be, and have no entry"

    def finish(self, report: Report) -> Report:
        """Remove the data kept for a resume."""
        shutil.rmtree(os.path.join(self._target, _PARTS))
        os.unlink(os.path.join(self._target, _PLAN))
        sync_dir(self._target)
        return report

    def swap_in(self, report: Report) -> Report:
        """Move the new files into the store, and keep the replaced ones."""
        root = self.facts.root
        name = os.path.join(root, ASIDE + time.strftime("%Y%m%d-%H%M%S"))
        names = (name if not number else f"{name}-{number}" for number in count())
        aside = next(path for path in names if not os.path.exists(path))
        # From here on, a repeated run only moves the files.
        replace(os.path.join(self._target, _SWAP), json.dumps(aside).encode())
        swap(root, self._target, aside)
        return changed(report, facts={**report.facts, "target": root, "aside": aside})


def unfinished_swap(root: str) -> str | None:
    """Return the directory for replaced files if a rebuild was interrupted while it moved its files; else None."""
    work = os.path.join(root, WORK)
    try:
        with open(os.path.join(work, _SWAP), encoding="utf-8") as file:
            return str(json.load(file))
    except FileNotFoundError:
        return None


def swap(root: str, work: str, aside: str) -> None:
    """Move the files of `work` into the store, the replaced ones into `aside`, and remove `work`; may be repeated."""
    from rocketd.store.recovery.file_notes import notes_path

    make_dirs(aside)
    # The next start must not miss the replaced files, and no entry points into the extension any more.
    for path in (notes_path(root), consume_queue_ext_dir(root)):
        _move(path, aside)
    for directory in (consume_queue_dir, index_dir):
        new = directory(work)
        if os.path.isdir(new):
            _move(directory(root), aside)
            os.rename(new, directory(root))
            sync_dir(root)
    sync_dir(aside)
    # The note goes last: until then, a repeated run does the rest.
    shutil.rmtree(os.path.join(work, _PARTS), ignore_errors=True)
    for name in (_PLAN, _SWAP):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(work, name))
    shutil.rmtree(work)
    sync_dir(root)


def _move(path: str, aside: str) -> None:
    if os.path.exists(path):
        os.rename(path, os.path.join(aside, os.path.basename(path)))
