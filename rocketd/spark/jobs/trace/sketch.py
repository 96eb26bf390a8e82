"""Percentiles of very many numbers in little memory, from parts that can be added.

Bounds of buckets are a fixed ratio apart. So every percentile has a relative error of at most `ERROR`, for any number
of values, and in whatever order parts were added. Values up to zero have a separate bucket and count as zero. Plain
Python; `bucket_sql` is the same rule for Spark.
"""

import math
from collections.abc import Iterable, Mapping

ERROR = 0.01
"""The greatest relative error of a percentile."""

_GAMMA = (1 + ERROR) / (1 - ERROR)
_LOG_GAMMA = math.log(_GAMMA)

ZERO = -(1 << 31)
"""The bucket of values up to zero."""


def bucket_of(value: float) -> int:
    """Return the bucket number of a value."""
    return ZERO if value <= 0 else math.ceil(math.log(value) / _LOG_GAMMA)


def bucket_sql(value: str) -> str:
    """Return the same rule as a Spark SQL expression over another expression."""
    return f"CASE WHEN {value} <= 0 THEN {ZERO} ELSE CAST(ceil(ln({value}) / {_LOG_GAMMA!r}D) AS INT) END"


class Sketch:
    """Counts by bucket. `add` combines two sketches, in any order."""

    __slots__ = ("_counts", "count")

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self._counts: dict[int, int] = dict(counts or {})
        self.count = sum(self._counts.values())

    @classmethod
    def of(cls, values: Iterable[float]) -> "Sketch":
        """Return the sketch of these values."""
        sketch = cls()
        for value in values:
            sketch.add_bucket(bucket_of(value), 1)
        return sketch

    def add_bucket(self, bucket: int, count: int) -> None:
        """Count values of one bucket."""
        self._counts[bucket] = self._counts.get(bucket, 0) + count
        self.count += count

    def add(self, other: "Sketch") -> None:
        """Add the counts of another sketch."""
        for bucket, count in other._counts.items():
            self.add_bucket(bucket, count)

    def quantile(self, part: float) -> float | None:
        """Return the value below which this part (0 to 1) of all values lies; None without values."""
        if not self.count:
            return None
        rank = part * (self.count - 1)
        passed = 0
        for bucket in sorted(self._counts):
            passed += self._counts[bucket]
            if passed > rank:
                # The middle of the bucket, by ratio.
                return 0.0 if bucket == ZERO else 2 * _GAMMA**bucket / (_GAMMA + 1)
        raise AssertionError("counts that do not add up")
