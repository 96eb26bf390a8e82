"""The tables that a run prints: the rows with their ratios and goals, and the change against an older run.

In every ratio more is better (see ``benchmarks.figures``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.figures import CPU, P50, RATE, Figure, Goal, ratio
from benchmarks.outcome import APACHE, ROCKETD, Results
from benchmarks.rows import Row

_LOAD_COLUMNS = (CPU, RATE, P50)
_NOTHING = "-"


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table with its columns aligned: the first to the left, all others to the right."""
    cells = [list(header), *(list(line) for line in lines)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(header))]

    def show(line: Sequence[str]) -> str:
        first, *others = (
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        return f"| {' | '.join([first, *others])} |"

    rule = "|".join("-" * (width + 2) if not column else "-" * (width + 1) + ":" for column, width in enumerate(widths))
    return "\n".join([show(cells[0]), f"|{rule}|", *(show(line) for line in cells[1:])])


def number(value: float | None) -> str:
    """A value in three digits or in full: ``-``, ``8.21``, ``61.3``, ``48,300``."""
    if value is None:
        return _NOTHING
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def times(value: float | None) -> str:
    """A ratio: ``-`` or ``2.50``."""
    return _NOTHING if value is None else f"{value:.2f}"


def verdict(reached: bool | None) -> str:
    """``yes``, ``NO``, or a dash where there is no goal or nothing to hold against it."""
    return {True: "yes", False: "NO", None: _NOTHING}[reached]


def tables(results: Results) -> str:
    """Both tables: the loads that have CPU, rate and p50 in columns, then every other figure in a line of its own."""
    parts = []
    loads = [row for row in results.rows if _is_load(row)]
    if loads:
        header = ["load"]
        for side in (ROCKETD, APACHE):
            header += [f"{side} µs/op", "op/s", "p50 µs"]
        header += ["CPU x", "rate x", "p50 x", "goal", "reached"]
        parts.append(table(header, [_load_line(results, row) for row in loads]))
    rest = [(row, goal) for row in results.rows for goal in row.goals if not _in_load_table(row, goal)]
    if rest:
        header = ["other figure", "unit", ROCKETD, APACHE, "x", "goal", "reached"]
        parts.append(table(header, [_figure_line(results, row, goal) for row, goal in rest]))
    return "\n\n".join(parts)


def comparison(results: Results, old: dict[str, Any]) -> str:
    """How each figure of rocketd, and its ratio to Apache, stands against an older run's JSON form."""
    before = {row["name"]: row["figures"] for row in old["rows"]}
    lines = []
    for row in results.rows:
        for goal in row.goals:
            figure = goal.figure
            then = before.get(row.name, {}).get(figure.key)
            if then is None:
                continue
            now, apache = results.medians(row, figure)
            was = then[ROCKETD]["median"]
            ratios = (then["ratio"], ratio(figure, now, apache))
            # The older run takes Apache's place: how many times better than it was.
            change = ratio(figure, now, was)
            lines.append([row.name, _title(figure), number(was), number(now), *map(times, (change, *ratios))])
    return table(["against the older run", "figure", "then", "now", "better x", "ratio then", "ratio now"], lines)


def _is_load(row: Row) -> bool:
    return row.goals[0].figure == CPU


def _in_load_table(row: Row, goal: Goal) -> bool:
    return _is_load(row) and goal.figure in _LOAD_COLUMNS


def _load_line(results: Results, row: Row) -> list[str]:
    goals = {goal.figure: goal for goal in row.goals if goal.figure in _LOAD_COLUMNS}
    measured = {figure: results.medians(row, figure) for figure in goals}
    nothing = (None, None)
    line = [row.name]
    for side in (0, 1):
        line += [number(measured.get(figure, nothing)[side]) for figure in _LOAD_COLUMNS]
    line += [times(ratio(figure, *measured.get(figure, nothing))) for figure in _LOAD_COLUMNS]
    wanted = [goal for goal in goals.values() if goal.ratio is not None]
    line.append(", ".join(f"{goal.figure.title.removeprefix('server ')} {goal}" for goal in wanted) or _NOTHING)
    line.append(", ".join(verdict(goal.reached(*measured[goal.figure])) for goal in wanted) or _NOTHING)
    return line


def _figure_line(results: Results, row: Row, goal: Goal) -> list[str]:
    figure = goal.figure
    medians = results.medians(row, figure)
    shown = [*map(number, medians), times(ratio(figure, *medians)), str(goal), verdict(goal.reached(*medians))]
    return [f"{row.name}: {figure.title}", figure.unit, *shown]


def _title(figure: Figure) -> str:
    return f"{figure.title}, {figure.unit}"
