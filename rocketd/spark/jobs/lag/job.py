"""``rocketd spark lag``: lag of consumer groups, rates of groups and producers, and time until groups are done.

Like mqadmin consumerProgress it counts all messages, wanted by the group or not (``rocketd lag`` counts wanted ones).
It only reads, and does not start Spark, because there is little to ask.
"""

import datetime
import time
from collections.abc import Callable, Sequence
from typing import Any

from rocketd.common.command_line.option_types import POSITIVE
from rocketd.spark.errors import OptionError, SparkError
from rocketd.spark.jobs.lag.sample import ClusterSampler, Sampler, StoreSampler
from rocketd.spark.jobs.lag.table import LagFigures, QueueSample, by_queue, lag_of, over_time, together
from rocketd.spark.jobs.running.arguments import source_options, source_section
from rocketd.spark.jobs.running.command import job
from rocketd.spark.jobs.running.context import JobContext
from rocketd.spark.jobs.running.frames import source_queues
from rocketd.spark.jobs.running.options import Arguments, Section, flag, option
from rocketd.spark.jobs.running.progress import JobProgressBar
from rocketd.spark.jobs.running.report import Report
from rocketd.spark.options import ReadOptions
from rocketd.spark.options.kinds import DURATION
from rocketd.spark.source import cluster_options

_ALL_TOPICS = ".*"


@job(
    "lag",
    source_section(positions=False),
    Section(
        "lag",
        [
            option("--group", multiple=True, metavar="NAME", help="consumer group (default: all); repeatable"),
            option("--samples", type=POSITIVE, default="2", metavar="N", help="number of samples (default: 2)"),
            option("--interval", default="5s", metavar="DURATION", help="time between samples (default: 5s)"),
            flag("--by-queue", help="also print a line for each queue"),
        ],
    ),
)
def lag(context: JobContext, args: Arguments) -> Report:
    """Report the lag of consumer groups, and the time to catch up.

    Times are those of each broker's clock, to the second. Rates are measured between the first and the last
    sample. The exit status is 1 if no broker knows a given group.
    """
    try:
        interval = DURATION.read(args.interval)
    except ValueError as error:
        raise OptionError(f"--interval {args.interval}: {error}") from None
    given = source_options(args)
    named = {"subscribe", "subscribePattern", "assign"} & given.keys()
    if not named:
        given["subscribePattern"] = _ALL_TOPICS
    topics = frozenset(queue.topic for queue in source_queues(given))
    sampler = open_sampler(ReadOptions.parse(given))
    # Groups may have committed for topics that no pattern matches, such as the broker's system topics.
    wanted = topics if named else frozenset()
    rounds = take_samples(sampler, frozenset(args.group), wanted, args.samples, interval, context.progress)
    return report_of(rounds, frozenset(args.group), queues=args.by_queue)


def open_sampler(options: ReadOptions) -> Sampler:
    """Return the sampler for the store or the cluster of the options. Raises StoreFilesError, ClusterError."""
    if options.store:
        from rocketd.spark.store.tree import StoreTree

        return StoreSampler(StoreTree(options.store, options.broker_name, options.commit_log))
    from rocketd.spark.wire.cluster import ClusterClient

    return ClusterSampler(ClusterClient(cluster_options(options)))


def take_samples(
    sampler: Sampler,
    groups: frozenset[str],
    topics: frozenset[str],
    count: int,
    interval: float,
    progress: JobProgressBar,
    sleep: Callable[[float], None] = time.sleep,
) -> list[list[QueueSample]]:
    """Take `count` samples, `interval` s apart. Raises SparkError."""
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
    """Report the samples. A requested group without samples is a problem; if all are missing, it is an error."""
    samples = [sample for one in rounds for sample in one]
    missing = sorted(groups - {sample.group for sample in samples})
    if groups and not samples:
        raise SparkError(f"no broker knows the group {', '.join(missing)}: it has committed no offset for these topics")
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
    return Report(facts, [f"no broker knows the group {group}: it has committed no offset" for group in missing])


def _row(lag: LagFigures) -> dict[str, Any]:
    return {
        "behind": lag.behind,
        "behind_seconds": lag.behind_seconds,
        "produced_per_second": lag.produced,
        "consumed_per_second": lag.consumed,
        "eta_seconds": lag.eta_seconds,
    }


def _time(at_ms: Any) -> datetime.datetime | None:
    return None if at_ms is None else datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
