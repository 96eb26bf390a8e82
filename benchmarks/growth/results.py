"""The measurements of both ends, their growth, and the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks import report
from benchmarks.figures import CPU, RATE, Figure, median
from benchmarks.growth.dimensions import Dimension, Load
from benchmarks.measurement import Measurement

BENDS = 1.5
"""Growth of the cost of one operation from which on a curve counts as bent."""

Key = tuple[str, str, str, int, str]  # dimension, load, side, end, figure


@dataclass
class GrowthResults:
    """Values by dimension, load, side, end (0 or 1) and figure, one for each round."""

    sides: Sequence[str]
    runs: dict[Key, list[float]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, dimension: Dimension, load: Load, side: str, end: int, measurement: Measurement) -> None:
        """Take in one measurement; CPU and rate become those of operations of size 1."""
        weights = {CPU: 1 / load.weights[end], RATE: load.weights[end]}
        for goal in load.ends[end].goals:
            key = goal.figure.key
            value = measurement.figures[key] * weights.get(goal.figure, 1.0)
            self.runs.setdefault((dimension.name, load.name, side, end, key), []).append(value)
        where = f"{side}, {dimension.name} {dimension.labels[end]}, {load.name}"
        self.remarks += [f"{where}: {remark}" for remark in measurement.remarks]

    def ends(self, dimension: Dimension, load: Load, side: str, figure: Figure) -> tuple[float | None, float | None]:
        """The medians at both ends."""
        low, high = (self.runs.get((dimension.name, load.name, side, end, figure.key), []) for end in (0, 1))
        return median(low), median(high)

    def growth(self, dimension: Dimension, load: Load, side: str, figure: Figure) -> float | None:
        """The upper end over the lower one; None if one of them is missing or zero."""
        low, high = self.ends(dimension, load, side, figure)
        return high / low if low and high else None

    def bends(self, dimension: Dimension, load: Load, side: str) -> bool | None:
        """Whether the CPU of one operation grows; None if the upper end has more to do, or without measurements."""
        growth = self.growth(dimension, load, side, CPU)
        return None if growth is None or dimension.more_work else growth > BENDS

    def as_json(self, dimensions: Sequence[Dimension]) -> dict[str, Any]:
        """The JSON form."""
        lines = []
        for dimension in dimensions:
            for load in dimension.loads:
                figures = {
                    goal.figure.key: {
                        side: {
                            "runs": [
                                self.runs.get((dimension.name, load.name, side, end, goal.figure.key), [])
                                for end in (0, 1)
                            ],
                            "medians": self.ends(dimension, load, side, goal.figure),
                            "growth": self.growth(dimension, load, side, goal.figure),
                        }
                        for side in self.sides
                    }
                    for goal in load.ends[0].goals
                }
                lines.append({"grows": dimension.name, "ends": dimension.labels, "load": load.name, "figures": figures})
        return {"growth": lines, "remarks": self.remarks, "failures": self.failures}


def table(results: GrowthResults, dimensions: Sequence[Dimension]) -> str:
    """A line for each load and figure: both ends of each side, and the upper one over the lower one."""
    header = ["what grows", "from", "to", "load", "figure"]
    for side in results.sides:
        header += [f"{side} from", "to", "growth"]
    lines = []
    for dimension in dimensions:
        for load in dimension.loads:
            for goal in load.ends[0].goals:
                figure = goal.figure
                line = [dimension.name, *dimension.labels, load.name, f"{figure.title}, {figure.unit}"]
                for side in results.sides:
                    line += [report.number(value) for value in results.ends(dimension, load, side, figure)]
                    line.append(report.times(results.growth(dimension, load, side, figure)))
                bent = results.bends(dimension, load, results.sides[0]) if figure == CPU else None
                lines.append([*line, {True: "YES", False: "no", None: "-"}[bent]])
    return report.table([*header, f"{results.sides[0]} bends"], lines)
