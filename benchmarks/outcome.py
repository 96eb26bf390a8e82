"""What a run gave, collected measurement by measurement, and its JSON form.

The form: ``{"format": 1, "when", "machine", "settings", "rows": [{"name", "figures": {KEY: {"rocketd": {"median",
"runs"}, "Apache": {"median", "runs"}, "ratio", "goal", "reached"}}}], "remarks", "failures"}``; a ratio is how many times
better rocketd is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.figures import Figure, Goal, median, ratio
from benchmarks.measurement import Measurement
from benchmarks.rows import Row

ROCKETD = "rocketd"
APACHE = "Apache"


@dataclass
class Results:
    """The values of every row, side and figure, one for each round in which it was measured."""

    rows: Sequence[Row]
    runs: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, row: Row, side: str, measurement: Measurement) -> None:
        """Take in one measurement of a row at a side."""
        for goal in row.goals:
            value = measurement.figures[goal.figure.key]
            self.runs.setdefault((row.name, side, goal.figure.key), []).append(value)
        self.remarks += [f"{side}, {row.name}: {remark}" for remark in measurement.remarks]

    def fail(self, what: str, error: Exception) -> None:
        """Note that something could not be measured."""
        self.failures.append(f"{what}: {error}")

    def median(self, row: Row, side: str, figure: Figure) -> float | None:
        """The median over the rounds; None when there is none."""
        return median(self.runs.get((row.name, side, figure.key), []))

    def medians(self, row: Row, figure: Figure) -> tuple[float | None, float | None]:
        """Of rocketd and of Apache."""
        return self.median(row, ROCKETD, figure), self.median(row, APACHE, figure)

    def as_json(self) -> dict[str, Any]:
        """The part of the JSON form that was measured."""
        return {
            "rows": [
                {"name": row.name, "figures": {goal.figure.key: self._figure(row, goal) for goal in row.goals}}
                for row in self.rows
            ],
            "remarks": self.remarks,
            "failures": self.failures,
        }

    def _figure(self, row: Row, goal: Goal) -> dict[str, Any]:
        rocketd, apache = self.medians(row, goal.figure)
        return {
            **{
                side: {"median": value, "runs": self.runs.get((row.name, side, goal.figure.key), [])}
                for side, value in ((ROCKETD, rocketd), (APACHE, apache))
            },
            "ratio": ratio(goal.figure, rocketd, apache),
            "goal": str(goal),
            "reached": goal.reached(rocketd, apache),
        }
