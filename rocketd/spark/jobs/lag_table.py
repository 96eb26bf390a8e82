"""How far groups are behind, worked out of samples: plain values and pure functions.

A sample is what is known of every queue at one time. Rates come from the first and the last sample of a queue, the time to
the end from both rates.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rocketd.spark.ranges import Queue


@dataclass(frozen=True, slots=True)
class QueueSample:
    """One queue of one group. `at_ms` is the broker's clock, `seconds` a clock that only counts between samples.

    `committed` is None where the group has committed nothing: it is behind by all there is. `first_stored_ms` is the store
    time of the first message that it has not consumed, where that was asked.
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
        """Messages that are there and not consumed."""
        reached = self.start if self.committed is None else self.committed
        return max(0, self.end - max(self.start, reached))


@dataclass(frozen=True, slots=True)
class Lag:
    """How far one queue, or several together, are behind. Rates are messages a second, None with one sample.

    `eta_seconds` is when the group will be through at these rates: 0 when it is, None when it never will or nobody knows.
    """

    behind: int
    behind_seconds: float | None
    produced: float | None
    consumed: float | None

    @property
    def eta_seconds(self) -> float | None:
        """Seconds until nothing is left."""
        if not self.behind:
            return 0.0
        if self.produced is None or self.consumed is None or self.consumed <= self.produced:
            return None
        return self.behind / (self.consumed - self.produced)


def lag_of(samples: Sequence[QueueSample]) -> Lag:
    """How far a queue is behind, given its samples in the order of time; at least one."""
    first, last = samples[0], samples[-1]
    age = None
    if not last.behind:
        age = 0.0
    elif last.first_stored_ms is not None:
        age = max(0.0, (last.at_ms - last.first_stored_ms) / 1000)
    passed = last.seconds - first.seconds
    if passed <= 0:
        return Lag(last.behind, age, None, None)
    before, after = (sample.start if sample.committed is None else sample.committed for sample in (first, last))
    # Offsets that were set back are no consumption.
    return Lag(last.behind, age, max(0, last.end - first.end) / passed, max(0, after - before) / passed)


def together(lags: Iterable[Lag]) -> Lag:
    """Several queues as one: numbers added up, and the greatest age."""
    known = list(lags)
    ages = [lag.behind_seconds for lag in known if lag.behind_seconds is not None]
    rated = all(lag.produced is not None for lag in known)
    return Lag(
        sum(lag.behind for lag in known),
        max(ages, default=None),
        sum(lag.produced or 0 for lag in known) if rated else None,
        sum(lag.consumed or 0 for lag in known) if rated else None,
    )


def by_queue(samples: Iterable[QueueSample]) -> dict[tuple[str, Queue], list[QueueSample]]:
    """The samples of each queue of each group, sorted by group and queue."""
    found: dict[tuple[str, Queue], list[QueueSample]] = {}
    for sample in samples:
        found.setdefault((sample.group, sample.queue), []).append(sample)
    return dict(sorted(found.items()))


def over_time(rounds: Sequence[Sequence[QueueSample]]) -> Iterator[dict[str, object]]:
    """A row for each round, group and topic: how far it was behind then, and the rates since the round before."""
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
