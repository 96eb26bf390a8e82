"""Writes the tables of options into docs/spark.md: `python -m rocketd.spark.gen_docs docs/spark.md`.

The tables follow from the declarations. Each table stands between two comments of the page; the text between them is
replaced. Needs the extra ``spark``.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rocketd.spark.columns import COLUMNS, DEFAULT_COLUMNS
from rocketd.spark.options import READ_OPTIONS, Option
from rocketd.spark.sink.options import WRITE_OPTIONS
from rocketd.spark.sink.write_columns import WRITE_COLUMNS


def page(text: str) -> str:
    """Return the page with up-to-date tables. Raises ValueError if the page has no place for a table."""
    for name, lines in _tables().items():
        begin, end = f"<!-- {name} -->\n", "<!-- end -->"
        head, found, rest = text.partition(begin)
        if not found or end not in rest:
            raise ValueError(f"the page has no place for {name}: {begin.strip()} … {end}")
        text = "".join((head, begin, "\n".join(lines), "\n", end, rest.partition(end)[2]))
    return text


def _tables() -> dict[str, list[str]]:
    return {
        "columns": _table(
            ("column", "type", "meaning"),
            (
                (
                    f"`{name}`",
                    f"`{column.ddl}`",
                    column.doc + ("" if name in DEFAULT_COLUMNS else "; only if selected"),
                )
                for name, column in COLUMNS.items()
            ),
        ),
        "read options": _options(READ_OPTIONS),
        "write options": _options(WRITE_OPTIONS),
        "write columns": _table(("column", "meaning"), ((f"`{name}`", doc) for name, doc in WRITE_COLUMNS.items())),
    }


def _options(options: Iterable[Option]) -> list[str]:
    header = ("option", "accepted", "default", "meaning")
    only = {"batch": " Batch only.", "stream": " Streams only.", "": ""}
    return _table(
        header,
        ((f"`{one.name}`", one.kind.accepted, one.default or "-", one.doc + only[one.only]) for one in options),
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "| " + " | ".join("---" for _ in header) + " |"]
    return lines + ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]


def main() -> int:
    """Rewrite the page named on the command line."""
    path = Path(sys.argv[1])
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
