"""``rocketd spark replay``: send the messages of an archive to topics of a live cluster, each once and in order."""

import os
import time
from typing import Any

from rocketd.common.command_line.option_types import key_value
from rocketd.spark.archive.archive import Archive
from rocketd.spark.archive.format.durable import Lock, make_dirs
from rocketd.spark.archive.reader import by_queue, check_is_messages
from rocketd.spark.archive.replaying import (
    SINK,
    OffsetSlice,
    ReplayState,
    StageTask,
    batches,
    stage,
    targets_from_json,
    targets_of,
    targets_to_json,
)
from rocketd.spark.archive.selection import Selection
from rocketd.spark.errors import ArchiveError
from rocketd.spark.jobs.archive.arguments import selection_of, selection_section
from rocketd.spark.jobs.running.command import job
from rocketd.spark.jobs.running.context import JobContext
from rocketd.spark.jobs.running.options import Arguments, Section, option
from rocketd.spark.jobs.running.report import Report
from rocketd.spark.jobs.running.targets import cluster_options, target_cluster_options
from rocketd.spark.jobs.running.tasks import need_files_everywhere, run_tasks
from rocketd.spark.ranges import Queue
from rocketd.spark.sink.cluster_output import ClusterOutput
from rocketd.spark.sink.effectively_once.delivery import EffectivelyOnce
from rocketd.spark.sink.effectively_once.staging import mark_folder
from rocketd.spark.sink.options import WriteOptions


@job(
    "replay",
    selection_section(),
    Section(
        "target",
        [
            option(
                "--to-topic",
                default="",
                metavar="NAME",
                help="topic for all messages (default: the topic of each message)",
            ),
            *target_cluster_options(),
            option(
                "--state",
                metavar="DIR",
                required=True,
                help="directory of the progress: messages to send, and sent ones",
            ),
            option(
                "--option",
                multiple=True,
                metavar="NAME=VALUE",
                type=key_value,
                help="further write option; repeatable",
            ),
        ],
    ),
)
def replay(context: JobContext, args: Arguments) -> Report:
    """Send an archive's messages to topics again.

    Each message is sent once, also if the job is killed and started again with the same state directory. The
    messages of a queue go to one queue and keep their order. They get new offsets, and keep unique keys, tags, keys
    and properties. The target's topics must exist, or the cluster must create them on first use.
    """
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

    def run(self, args: Arguments) -> Report:
        """Send all messages not sent before."""
        plan = self._state.plan(self._wanted(args))
        commits = self._archive.commits[: plan["commits"]]
        files = self._selection.files(file for commit in commits for file in commit.files)
        targets = targets_from_json(plan["targets"])
        spark = self._context.spark()
        mark = mark_folder(self._options.staging)
        need_files_everywhere(spark, [self._archive.root, self._directory])
        sink = EffectivelyOnce(self._options, SINK, "", lambda: ClusterOutput(self._options))
        before = self._state.messages
        began = time.monotonic()
        self._context.progress.begin("replay", sum(file.rows for file in files))
        self._context.progress.advance(before)
        for number, slices in enumerate(batches(files, self._selection, targets)):
            if number >= self._state.done:
                self._send(sink, slices, number, mark)
        self._context.progress.end()
        return Report(self._facts(targets, before, time.monotonic() - began))

    def _wanted(self, args: Arguments) -> dict[str, Any]:
        queues = sorted(by_queue(self._selection.files(self._archive.files)))
        if not queues:
            # Not recorded, because messages may be archived later.
            raise ArchiveError(f"{self._archive.root} has no messages that were asked for")
        output = ClusterOutput(self._options)
        topics = {args.to_topic or queue.topic for queue in queues}
        targets = targets_of(queues, {topic: sorted(output.queues(topic)) for topic in topics}, args.to_topic)
        return {
            "archive": self._archive.root,
            "commits": len(self._archive.commits),
            "selection": self._selection.to_json(),
            "namesrv": list(self._options.namesrv),
            "topic": args.to_topic,
            "targets": targets_to_json(targets),
        }

    def _send(self, sink: EffectivelyOnce, slices: list[OffsetSlice], number: int, mark: str) -> None:
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
