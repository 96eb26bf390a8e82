"""Rows of facts, as a table or as lines of JSON."""

from collections.abc import Collection, Sequence

from rocketd.common.command_line.output import show_bytes, show_table
from rocketd.tools.base.json_lines import json_text


def show_rows(
    columns: Sequence[str], rows: Sequence[Sequence[str | int]], *, as_json: bool, right: Collection[str] = ()
) -> None:
    """Print rows as `show_table` does, or each as one line of JSON. Raises as `show`."""
    if not as_json:
        show_table(columns, [[str(cell) for cell in row] for row in rows], right=right)
        return
    for row in rows:
        show_bytes(json_text(dict(zip(columns, row, strict=True))).encode() + b"\n")
