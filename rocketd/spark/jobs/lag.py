"""``rocketd spark lag``: how far consumer groups are behind, how fast they and the producers are, and when they are through.

Answers to mqadmin consumerProgress; counts all messages, whether a group wants them or not (``rocketd lag`` counts what it
wants). Only reads, and starts no Spark: what there is to ask is little.
"""

import argparse
import datetime
import time
from collections.abc import Callable, Sequence
from typing import Any

from rocketd.spark.errors import OptionError, SparkError
from rocketd.spark.jobs.arguments import add_source_arguments
from rocketd.spark.jobs.frames import source_queues
from rocketd.spark.jobs.job import Job as BaseJob
from rocketd.spark.jobs.job import JobContext
from rocketd.spark.jobs.lag_sample import ClusterSampler, Sampler, StoreSampler
from rocketd.spark.jobs.lag_table import Lag, QueueSample, by_queue, lag_of, over_time, together
from rocketd.spark.jobs.progress import Progress
from rocketd.spark.jobs.report import Report
from rocketd.spark.options import ReadOptions
from rocketd.spark.options.kinds import DURATION
from rocketd.spark.source import cluster_options

_ALL_TOPICS = ".*"


class Job(BaseJob):
    """Tell the lag of groups."""

    description = (
        "Times are those of each broker's clock, to the second; rates are measured between the first and the last sample. "
        "The exit status is 1 when nobody knows a group that was asked for."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Source, groups, samples."""
        add_source_arguments(parser, positions=False)
        group = parser.add_argument_group("lag")
        group.add_argument("--group", action="append", default=[], metavar="NAME", help="consumer group (default: all)")
        group.add_argument("--samples", type=int, default=2, metavar="N", help="how many (default: %(default)s)")
        group.add_argument(
            "--interval", default="5s", metavar="DURATION", help="time between samples (default: %(default)s)"
        )
        group.add_argument("--by-queue", action="store_true", help="a line for each queue, too")

    def run(self, context: JobContext, args: argparse.Namespace) -> Report:
        """Take the samples, and say what they mean."""
        if args.samples < 1:
            raise OptionError(f"--samples {args.samples}: accepted are numbers from 1 on")
        try:
            interval = DURATION.read(args.interval)
        except ValueError as error:
            raise OptionError(f"--interval {args.interval}: {error}") from None
        given = context.source_options(args)
        named = {"subscribe", "subscribePattern", "assign"} & given.keys()
        if not named:
            given["subscribePattern"] = _ALL_TOPICS
        topics = frozenset(queue.topic for queue in source_queues(given))
        sampler = open_sampler(ReadOptions.parse(given))
        # Groups may have committed for topics that no pattern matches, as the broker's own.
        wanted = topics if named else frozenset()
        rounds = take_samples(sampler, frozenset(args.group), wanted, args.samples, interval, context.progress)
        return report_of(rounds, frozenset(args.group), queues=args.by_queue)


def open_sampler(options: ReadOptions) -> Sampler:
    """The sampler for the store or the cluster that the options name. Raises StoreFilesError, BrokerError."""
    if options.store:
        from rocketd.spark.store_tree import StoreTree

        return StoreSampler(StoreTree(options.store, options.broker_name, options.commit_log))
    from rocketd.spark.wire.cluster import Cluster

    return ClusterSampler(Cluster(cluster_options(options)))


def take_samples(
    sampler: Sampler,
    groups: frozenset[str],
    topics: frozenset[str],
    count: int,
    interval: float,
    progress: Progress,
    sleep: Callable[[float], None] = time.sleep,
) -> list[list[QueueSample]]:
    """So many samples, `interval` s from one to the next. Raises SparkError."""
    progress.begin("samples", count, "samples")
    begun = time.monotonic()
    rounds: list[list[QueueSample]] = []
    for number in range(count):
        if number:
            sleep(max(0.0, begun + number * interval - time.monotonic()))
        rounds.append(sampler.sample(groups, topics, aged=number == count - 1))
        progress.advance(1)
    return rounds


def report_of(rounds: Sequence[Sequence[QueueSample]], groups: frozenset[str], *, queues: bool = False) -> Report:
    """What the samples mean. Groups that were asked for, and are in none, are problems; all of them, an error."""
    samples = [sample for one in rounds for sample in one]
    missing = sorted(groups - {sample.group for sample in samples})
    if groups and not samples:
        raise SparkError(f"nobody knows the group {', '.join(missing)}: it has committed no offset for these topics")
    lags = {key: lag_of(some) for key, some in by_queue(samples).items()}
    facts: dict[str, Any] = {
        "samples": len(rounds),
        "from": _time(min((sample.at_ms for sample in samples), default=None)),
        "until": _time(max((sample.at_ms for sample in samples), default=None)),
        "groups": [
            {"group": group, **_row(together(lag for key, lag in lags.items() if key[0] == group))}
            for group in dict.fromkeys(group for group, _ in lags)
        ],
        "topics": [
            {
                "group": group,
                "topic": topic,
                **_row(together(lag for key, lag in lags.items() if (key[0], key[1].topic) == (group, topic))),
            }
            for group, topic in dict.fromkeys((group, queue.topic) for group, queue in lags)
        ],
    }
    if queues:
        newest = {key: some[-1] for key, some in by_queue(samples).items()}
        facts["queues"] = [
            {
                "group": group,
                "topic": queue.topic,
                "broker": queue.broker,
                "queue": queue.queue_id,
                "committed": newest[group, queue].committed,
                "end": newest[group, queue].end,
                **_row(lag),
            }
            for (group, queue), lag in lags.items()
        ]
    if len(rounds) > 2:
        facts["over_time"] = [{"at": _time(row.pop("at_ms")), **row} for row in over_time(rounds)]
    return Report(facts, [f"nobody knows the group {group}: it has committed no offset" for group in missing])


def _row(lag: Lag) -> dict[str, Any]:
    return {
        "behind": lag.behind,
        "behind_seconds": lag.behind_seconds,
        "produced_per_second": lag.produced,
        "consumed_per_second": lag.consumed,
        "eta_seconds": lag.eta_seconds,
    }


def _time(at_ms: Any) -> datetime.datetime | None:
    return None if at_ms is None else datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
