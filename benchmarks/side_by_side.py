"""Results and table of runs that compare several variants of servers under the same loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks import report
from benchmarks.figures import CPU, P999, RATE, Figure, median, ratio
from benchmarks.measurement import Measurement

FIGURES = (CPU, RATE, P999)


@dataclass
class Variants:
    """Values by row, variant and figure, one for each round. Ratios are over the variant ``against``."""

    names: Sequence[str]
    against: str
    runs: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, row: str, variant: str, measurement: Measurement) -> None:
        """Take in one measurement."""
        for figure in FIGURES:
            self.runs.setdefault((row, variant, figure.key), []).append(measurement.figures[figure.key])
        self.remarks += [f"{variant}, {row}: {remark}" for remark in measurement.remarks]

    def median(self, row: str, variant: str, figure: Figure) -> float | None:
        """The median over the rounds; None if there is none."""
        return median(self.runs.get((row, variant, figure.key), []))

    def times_better(self, row: str, variant: str, figure: Figure) -> float | None:
        """How many times better a variant is than ``against``."""
        return ratio(figure, self.median(row, variant, figure), self.median(row, self.against, figure))

    def as_json(self, rows: Sequence[str]) -> dict[str, Any]:
        """The JSON form."""
        lines = [
            {
                "name": row,
                "figures": {
                    figure.key: {
                        variant: {
                            "median": self.median(row, variant, figure),
                            "runs": self.runs.get((row, variant, figure.key), []),
                            "ratio": self.times_better(row, variant, figure),
                        }
                        for variant in self.names
                    }
                    for figure in FIGURES
                },
            }
            for row in rows
        ]
        return {"against": self.against, "rows": lines, "remarks": self.remarks, "failures": self.failures}

    def table(self, rows: Sequence[str]) -> str:
        """A line for each row; in the columns of ratios, more is better than ``against``."""
        others = [name for name in self.names if name != self.against]
        header = ["load"]
        for name in self.names:
            header += [f"{name} µs/op", "op/s", "p99.9, µs"]
        for name in others:
            header += [f"{name} CPU x", "rate x", "p99.9 x"]
        lines = []
        for row in rows:
            line = [row]
            for name in self.names:
                line += [report.number(self.median(row, name, figure)) for figure in FIGURES]
            for name in others:
                line += [report.times(self.times_better(row, name, figure)) for figure in FIGURES]
            lines.append(line)
        return report.table(header, lines)
