"""Percentiles of very many numbers in little room, in pieces that can be added up.

A value falls into the bucket whose bounds are a fixed ratio apart, so every percentile is right but for a relative error of
`ERROR`, however many values there are and whichever way pieces were added up. Values of zero and less are counted apart and
are zero. Plain Python; `bucket_sql` is the same rule for Spark.
"""

import math
from collections.abc import Iterable, Mapping

ERROR = 0.01
"""Greatest relative error of a percentile."""

_GAMMA = (1 + ERROR) / (1 - ERROR)
_LOG_GAMMA = math.log(_GAMMA)

ZERO = -(1 << 31)
"""Bucket of values up to zero."""


def bucket_of(value: float) -> int:
    """Number of the bucket that a value falls into."""
    return ZERO if value <= 0 else math.ceil(math.log(value) / _LOG_GAMMA)


def bucket_sql(value: str) -> str:
    """The same as an expression of Spark's SQL over another one."""
    return f"CASE WHEN {value} <= 0 THEN {ZERO} ELSE CAST(ceil(ln({value}) / {_LOG_GAMMA!r}D) AS INT) END"


class Sketch:
    """Counts by bucket. Two are added up by `add`, in any order."""

    __slots__ = ("_counts", "count")

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self._counts: dict[int, int] = dict(counts or {})
        self.count = sum(self._counts.values())

    @classmethod
    def of(cls, values: Iterable[float]) -> "Sketch":
        """The sketch of these values."""
        sketch = cls()
        for value in values:
            sketch.add_bucket(bucket_of(value), 1)
        return sketch

    def add_bucket(self, bucket: int, count: int) -> None:
        """Count values of one bucket."""
        self._counts[bucket] = self._counts.get(bucket, 0) + count
        self.count += count

    def add(self, other: "Sketch") -> None:
        """Count the values of another one, too."""
        for bucket, count in other._counts.items():
            self.add_bucket(bucket, count)

    def quantile(self, part: float) -> float | None:
        """The value below which this part (0 to 1) of all values lies; None without values."""
        if not self.count:
            return None
        rank = part * (self.count - 1)
        passed = 0
        for bucket in sorted(self._counts):
            passed += self._counts[bucket]
            if passed > rank:
                # In the middle of the bucket, by ratio.
                return 0.0 if bucket == ZERO else 2 * _GAMMA**bucket / (_GAMMA + 1)
        raise AssertionError("counts that do not add up")
