"""The lag of groups, computed from samples: plain values and pure functions.

A sample describes every queue at one time. Rates come from the first and the last sample of a queue, and the remaining
time from both rates.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rocketd.spark.ranges import Queue


@dataclass(frozen=True, slots=True)
class QueueSample:
    """One queue of one group.

    `at_ms` is the broker's clock, and `seconds` a monotonic clock to measure the time between samples.

    `committed` is None if the group has committed nothing: then its lag is the whole queue. `first_stored_ms` is the
    store time of the first unconsumed message, if requested.
    """

    group: str
    queue: Queue
    at_ms: int
    seconds: float
    start: int
    end: int
    committed: int | None
    first_stored_ms: int | None = None

    @property
    def behind(self) -> int:
        """The number of unconsumed messages still in the queue."""
        reached = self.start if self.committed is None else self.committed
        return max(0, self.end - max(self.start, reached))


@dataclass(frozen=True, slots=True)
class LagFigures:
    """The lag of one queue, or of several together. Rates are messages per second, None with one sample.

    `eta_seconds` is the time until the group is done at these rates: 0 if done, None if unknown or never.
    """

    behind: int
    behind_seconds: float | None
    produced: float | None
    consumed: float | None

    @property
    def eta_seconds(self) -> float | None:
        """Seconds until the lag is 0."""
        if not self.behind:
            return 0.0
        if self.produced is None or self.consumed is None or self.consumed <= self.produced:
            return None
        return self.behind / (self.consumed - self.produced)


def lag_of(samples: Sequence[QueueSample]) -> LagFigures:
    """Return the lag of a queue from its samples in the order of time; at least one."""
    first, last = samples[0], samples[-1]
    age = None
    if not last.behind:
        age = 0.0
    elif last.first_stored_ms is not None:
        age = max(0.0, (last.at_ms - last.first_stored_ms) / 1000)
    passed = last.seconds - first.seconds
    if passed <= 0:
        return LagFigures(last.behind, age, None, None)
    before, after = (sample.start if sample.committed is None else sample.committed for sample in (first, last))
    # Offsets that were set back do not count as consumption.
    return LagFigures(last.behind, age, max(0, last.end - first.end) / passed, max(0, after - before) / passed)


def together(lags: Iterable[LagFigures]) -> LagFigures:
    """Combine several queues: sums of the numbers, and the greatest age."""
    known = list(lags)
    ages = [lag.behind_seconds for lag in known if lag.behind_seconds is not None]
    rated = all(lag.produced is not None for lag in known)
    return LagFigures(
        sum(lag.behind for lag in known),
        max(ages, default=None),
        sum(lag.produced or 0 for lag in known) if rated else None,
        sum(lag.consumed or 0 for lag in known) if rated else None,
    )


def by_queue(samples: Iterable[QueueSample]) -> dict[tuple[str, Queue], list[QueueSample]]:
    """Group the samples by group and queue, sorted."""
    found: dict[tuple[str, Queue], list[QueueSample]] = {}
    for sample in samples:
        found.setdefault((sample.group, sample.queue), []).append(sample)
    return dict(sorted(found.items()))


def over_time(rounds: Sequence[Sequence[QueueSample]]) -> Iterator[dict[str, object]]:
    """Yield a row for each round, group and topic: the lag at that time, and the rates since the round before."""
    before: Mapping[tuple[str, Queue], QueueSample] = {}
    for one in rounds:
        now = {(sample.group, sample.queue): sample for sample in one}
        topics: dict[tuple[str, str], list[tuple[str, Queue]]] = {}
        for key in now:
            topics.setdefault((key[0], key[1].topic), []).append(key)
        for (group, topic), keys in sorted(topics.items()):
            lag = together(lag_of([*([before[key]] if key in before else []), now[key]]) for key in keys)
            yield {
                "at_ms": max(now[key].at_ms for key in keys),
                "group": group,
                "topic": topic,
                "behind": lag.behind,
                "produced_per_second": lag.produced,
                "consumed_per_second": lag.consumed,
            }
        before = now
