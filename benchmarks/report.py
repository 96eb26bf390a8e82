"""The tables that a run prints: the rows with their ratios and goals, and the change against an older run.

In every ratio more is better (see ``benchmarks.figures``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.figures import CLIENT_CPU, CPU, P50, P99, P999, RATE, Figure, Goal, ratio
from benchmarks.outcome import APACHE, ROCKETD, Results
from benchmarks.rows import Row

_COST = (CPU, RATE)
_CLIENT_COST = (CLIENT_CPU, RATE)
_LATENCY = (P50, P99, P999)
_HEADERS = {CPU: "µs/op", CLIENT_CPU: "µs/op", RATE: "op/s"}
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
    """CPU and rates of all loads, then their latencies, then every other value in a line each."""
    parts = []
    for title, columns in (("load", _COST), ("client", _CLIENT_COST), ("latency", _LATENCY)):
        rows = [row for row in results.rows if _goals(row, columns) and columns[0] in _figures(row)]
        if rows:
            parts.append(_columns_table(results, title, rows, columns))
    rest = [(row, goal) for row in results.rows for goal in row.goals if not _in_columns(row, goal.figure)]
    if rest:
        header = ["other figure", "unit", ROCKETD, APACHE, "x", "goal", "reached"]
        parts.append(table(header, [_figure_line(results, row, goal) for row, goal in rest]))
    return "\n\n".join(parts)


def summary(results: Results) -> str:
    """How many goals are reached, and the others with their measured ratios; empty if no goal was measured."""
    reached, missed = 0, []
    for row in results.rows:
        for goal in row.goals:
            medians = results.medians(row, goal.figure)
            match goal.reached(*medians):
                case True:
                    reached += 1
                case False:
                    value = number(medians[0]) if goal.limit is not None else times(ratio(goal.figure, *medians))
                    missed.append(f"- {row.name}: {goal.figure.title} {value}, goal {goal}")
    if not reached and not missed:
        return ""
    lines = [f"Goals reached: {reached} of {reached + len(missed)}."]
    if missed:
        lines += ["Not reached:", *missed]
    return "\n".join(lines)


def comparison(results: Results, old: dict[str, Any]) -> str:
    """How each value of rocketd, and its ratio to Apache, stands against an older run's JSON form."""
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


def _figures(row: Row) -> set[Figure]:
    return {goal.figure for goal in row.goals}


def _goals(row: Row, columns: Sequence[Figure]) -> dict[Figure, Goal]:
    return {goal.figure: goal for goal in row.goals if goal.figure in columns}


def _in_columns(row: Row, figure: Figure) -> bool:
    return any(figure in columns and columns[0] in _figures(row) for columns in (_COST, _CLIENT_COST, _LATENCY))


def _columns_table(results: Results, title: str, rows: Sequence[Row], columns: Sequence[Figure]) -> str:
    """Some values of each row, both sides, with ratios and goals."""
    header = [title]
    for side in (ROCKETD, APACHE):
        first, *others = (_HEADERS.get(figure, _title(figure)) for figure in columns)
        header += [f"{side} {first}", *others]
    header += [f"{_short(figure)} x" for figure in columns]
    return table([*header, "goal", "reached"], [_columns_line(results, row, columns) for row in rows])


def _columns_line(results: Results, row: Row, columns: Sequence[Figure]) -> list[str]:
    goals = _goals(row, columns)
    measured = {figure: results.medians(row, figure) if figure in goals else (None, None) for figure in columns}
    line = [row.name]
    for side in (0, 1):
        line += [number(measured[figure][side]) for figure in columns]
    line += [times(ratio(figure, *measured[figure])) for figure in columns]
    wanted = [goal for goal in goals.values() if goal.ratio is not None]
    line.append(", ".join(f"{_short(goal.figure)} {goal}" for goal in wanted) or _NOTHING)
    line.append(", ".join(verdict(goal.reached(*measured[goal.figure])) for goal in wanted) or _NOTHING)
    return line


def _short(figure: Figure) -> str:
    return figure.title.removeprefix("server ").removeprefix("client ")


def _figure_line(results: Results, row: Row, goal: Goal) -> list[str]:
    figure = goal.figure
    medians = results.medians(row, figure)
    shown = [*map(number, medians), times(ratio(figure, *medians)), str(goal), verdict(goal.reached(*medians))]
    return [f"{row.name}: {figure.title}", figure.unit, *shown]


def _title(figure: Figure) -> str:
    return f"{figure.title}, {figure.unit}"
