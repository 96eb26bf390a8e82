"""The report at the end of a job: numbers and tables, as text for people or as JSON for programs.

Keys are in snake_case; JSON has them in camelCase, like all JSON of RocketMQ's tools.
"""

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rocketd.spark.options.declare import camel

_WIDEST = 60


@dataclass(frozen=True, slots=True)
class Report:
    """The facts of a run in display order, and the problems found, one sentence each.

    A fact is a number, text, time, list of rows (mappings with the same keys) or a mapping of such. A job with problems
    has done its work, and its exit status is 1.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    problems: Sequence[str] = ()

    @property
    def status(self) -> int:
        """The exit status: 1 if there are problems."""
        return 1 if self.problems else 0

    def as_json(self) -> str:
        """Return the report as JSON text."""
        whole = {**self.facts, "problems": list(self.problems)}
        return json.dumps(_json_value(whole), indent=2, ensure_ascii=False)

    def as_text(self) -> str:
        """Return the report as lines: facts below each other, rows as tables, problems last."""
        return "\n".join([*_lines(self.facts), *(f"problem: {problem}" for problem in self.problems)])


def _json_value(value: object) -> Any:
    if isinstance(value, Mapping):
        # Topics and other names are keys too, and stay as they are: only our keys are written with underscores.
        return {camel(key) if _is_ours(key) else str(key): _json_value(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(each) for each in value]
    if isinstance(value, (set, frozenset)):
        return [_json_value(each) for each in sorted(value)]
    if isinstance(value, (str, bool, int, float)) or value is None:
        return value
    return _cell(value)


def _is_ours(key: object) -> bool:
    return isinstance(key, str) and key.isidentifier() and key.islower()


def _lines(facts: Mapping[str, Any], indent: str = "") -> Iterable[str]:
    width = max((len(_title(key)) for key, value in facts.items() if not _is_nested(value)), default=0)
    for key, value in facts.items():
        if not _is_nested(value):
            yield f"{indent}{_title(key):{width}}  {_cell(value)}".rstrip()
            continue
        yield ""
        yield f"{indent}{_title(key)}:"
        if isinstance(value, Mapping):
            yield from _lines(value, indent + "  ")
        elif value and all(isinstance(row, Mapping) for row in value):
            yield from _table(value, indent + "  ")
        else:
            yield from (f"{indent}  {_cell(each)}" for each in value)


def _is_nested(value: object) -> bool:
    return isinstance(value, (Mapping, list, tuple, set, frozenset)) and bool(value)


def _table(rows: Sequence[Mapping[str, Any]], indent: str) -> Iterable[str]:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_title(column) for column in columns], *([_cell(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[position]) for line in cells) for position in range(len(columns))]
    right = [all(_is_number(row.get(column)) for row in rows) for column in columns]
    for line in cells:
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        )
        yield (indent + "  ".join(padded)).rstrip()


def _title(key: object) -> str:
    return str(key).replace("_", " ") if _is_ours(key) else str(key)


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _cell(value: object) -> str:
    if value is None or (isinstance(value, (Mapping, list, tuple, set, frozenset)) and not value):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if isinstance(value, datetime.datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, (Mapping, list, tuple, set, frozenset)):
        text = json.dumps(_json_value(value), ensure_ascii=False)
        return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
    return str(value)
