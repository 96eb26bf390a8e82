"""``rocketd spark replay``: the messages of an archive, sent to topics of a live cluster, each once and in order."""

import argparse
import os
import time
from typing import Any

from rocketd.spark.archive.archive import Archive
from rocketd.spark.archive.durable import Lock, make_dirs
from rocketd.spark.archive.reader import by_queue, check_is_messages
from rocketd.spark.archive.replaying import (
    SINK,
    ReplayState,
    Slice,
    StageTask,
    batches,
    stage,
    targets_from_json,
    targets_of,
    targets_to_json,
)
from rocketd.spark.archive.selection import Selection
from rocketd.spark.errors import ArchiveError
from rocketd.spark.jobs.archive_arguments import add_selection_arguments, selection_of
from rocketd.spark.jobs.arguments import pair
from rocketd.spark.jobs.job import Job as BaseJob
from rocketd.spark.jobs.job import JobContext
from rocketd.spark.jobs.report import Report
from rocketd.spark.jobs.targets import add_cluster_arguments, cluster_options
from rocketd.spark.jobs.tasks import need_files_everywhere, run_tasks
from rocketd.spark.ranges import Queue
from rocketd.spark.sink.cluster_outlet import ClusterOutlet
from rocketd.spark.sink.exact import EffectivelyOnce
from rocketd.spark.sink.options import WriteOptions
from rocketd.spark.sink.staging import mark_folder


class Job(BaseJob):
    """Send an archive's messages again."""

    description = (
        "Each message is sent once, also when the job is killed and started again with the same state directory. The "
        "messages of a queue go to one queue and keep their order. Messages get new offsets; unique keys, tags, keys and "
        "properties stay. The target's topics must be there, or be made by the cluster on use."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Archive, selection and target."""
        add_selection_arguments(parser)
        group = parser.add_argument_group("target")
        group.add_argument("--to-topic", default="", metavar="NAME", help="send all to it (default: each to its own)")
        add_cluster_arguments(group)
        group.add_argument("--state", metavar="DIR", required=True, help="keeps what is to be sent and what was")
        group.add_argument(
            "--option",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            type=pair,
            help="any other write option; repeatable",
        )

    def run(self, context: JobContext, args: argparse.Namespace) -> Report:
        """Send what is not sent yet."""
        archive = Archive.open(os.path.abspath(args.archive))
        check_is_messages(archive)
        selection = selection_of(args, archive)
        state = os.path.abspath(args.state)
        options = WriteOptions.parse(
            {
                **cluster_options(args, {}),
                **dict(args.option),
                **({"topic": args.to_topic} if args.to_topic else {}),
                "delivery": "effectively-once",
                "sinkId": SINK,
                "stagingDir": state,
                "queueSelector": "column",
            }
        )
        make_dirs(state)
        with Lock(os.path.join(state, "lock"), f"the replay in {state}"):
            return _Replay(context, archive, selection, options, state).run(args)


class _Replay:
    """One replay."""

    def __init__(
        self, context: JobContext, archive: Archive, selection: Selection, options: WriteOptions, state: str
    ) -> None:
        self._context = context
        self._archive = archive
        self._selection = selection
        self._options = options
        self._state = ReplayState(state)
        self._directory = state

    def run(self, args: argparse.Namespace) -> Report:
        """Send it."""
        plan = self._state.plan(self._wanted(args))
        commits = self._archive.commits[: plan["commits"]]
        files = self._selection.files(file for commit in commits for file in commit.files)
        targets = targets_from_json(plan["targets"])
        spark = self._context.spark()
        mark = mark_folder(self._options.staging)
        need_files_everywhere(spark, [self._archive.root, self._directory])
        sink = EffectivelyOnce(self._options, SINK, "", lambda: ClusterOutlet(self._options))
        before = self._state.messages
        began = time.monotonic()
        self._context.progress.begin("replay", sum(file.rows for file in files))
        self._context.progress.advance(before)
        for number, slices in enumerate(batches(files, self._selection, targets)):
            if number >= self._state.done:
                self._send(sink, slices, number, mark)
        self._context.progress.end()
        return Report(self._facts(targets, before, time.monotonic() - began))

    def _wanted(self, args: argparse.Namespace) -> dict[str, Any]:
        queues = sorted(by_queue(self._selection.files(self._archive.files)))
        if not queues:
            # Not noted: there may be some later.
            raise ArchiveError(f"{self._archive.root} has no messages of what is asked for")
        outlet = ClusterOutlet(self._options)
        topics = {args.to_topic or queue.topic for queue in queues}
        targets = targets_of(queues, {topic: sorted(outlet.queues(topic)) for topic in topics}, args.to_topic)
        return {
            "archive": self._archive.root,
            "commits": len(self._archive.commits),
            "selection": self._selection.to_json(),
            "namesrv": list(self._options.namesrv),
            "topic": args.to_topic,
            "targets": targets_to_json(targets),
        }

    def _send(self, sink: EffectivelyOnce, slices: list[Slice], number: int, mark: str) -> None:
        tasks = [
            StageTask(self._archive.root, self._selection, one, self._options, mark, str(number), place)
            for place, one in enumerate(slices)
        ]
        staged = list(run_tasks(self._context.spark(), tasks, stage, description="replay"))
        staged.sort(key=lambda one: one.name)
        sink.commit(str(number), staged)
        rows = sum(one.rows for one in staged)
        self._state.note_batch(rows)
        self._context.progress.advance(rows)

    def _facts(self, targets: dict[Queue, Queue], before: int, seconds: float) -> dict[str, Any]:
        sent = self._state.messages - before
        return {
            "archive": self._archive.root,
            "messages": sent,
            "sent_before": before,
            "batches": self._state.done,
            "seconds": round(seconds, 3),
            "queues": [{"from": str(one), "to": str(other)} for one, other in sorted(targets.items())],
        }
