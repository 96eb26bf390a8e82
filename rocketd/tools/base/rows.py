"""Rows of facts, as a table or as lines of JSON, and the option that chooses."""

from collections.abc import Collection, Iterable, Sequence

import click

from rocketd.common.command_line.output import show_bytes, show_line, show_table
from rocketd.tools.base.json_lines import json_text

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print each row as one line of JSON.")


def show_rows(
    columns: Sequence[str],
    rows: Sequence[Sequence[str | int | float]],
    *,
    as_json: bool,
    right: Collection[str] = (),
    plain_header: bool = True,
) -> None:
    """Print rows as `show_table` does, or each as one line of JSON. Raises as `show`."""
    if not as_json:
        show_table(columns, [[str(cell) for cell in row] for row in rows], right=right, plain_header=plain_header)
        return
    for row in rows:
        show_bytes(json_text(dict(zip(columns, row, strict=True))).encode() + b"\n")


def show_names(column: str, names: Iterable[str], *, as_json: bool) -> None:
    """Print each name on a line, or as one line of JSON. Raises as `show`."""
    if as_json:
        show_rows((column,), [(name,) for name in names], as_json=True)
        return
    for name in names:
        show_line(name)
