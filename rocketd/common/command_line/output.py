"""Lines and tables on standard output, and complaints on standard error."""

import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from shutil import get_terminal_size
from typing import Final

import click

from rocketd.common.command_line.errors import CommandError, OutputClosedError

CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal may obey: all controls but tab and newline, and those that reorder or break a line."""


def escape_controls(text: str) -> str:
    r"""Return a text that a terminal shows and does not obey. Its control characters become \xHH or \uHHHH."""
    return CONTROLS.sub(_escape, text)


def escape_cell(text: str) -> str:
    r"""Return a text that stays one cell of one line: tabs and newlines become \x09 and \x0a, too."""
    return escape_controls(text).replace("\t", r"\x09").replace("\n", r"\x0a")


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 queue``, ``2 queues``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def show(*words: str, sep: str = " ") -> None:
    """Print a line on standard output now.

    Characters that its encoding lacks are written as escapes. After an error nothing can be printed any more.

    Raises:
        OutputClosedError: the reader has gone.
        CommandError: the line cannot be written for another reason.
    """
    text = sep.join(words)
    encoding = sys.stdout.encoding or "utf-8"
    with _output_errors():
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def show_line(text: str) -> None:
    """Print the text of a server on one line now.

    On a terminal its control characters, tabs and newlines are escaped. In a file or a pipe it is unchanged.
    Raises as `show`.
    """
    show(escape_cell(text) if sys.stdout.isatty() else text)


def show_bytes(data: bytes) -> None:
    """Write bytes to standard output now, unchanged. Raises as `show`."""
    with _output_errors():
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


@contextmanager
def _output_errors() -> Iterator[None]:
    """Raise OutputClosedError or CommandError for an OSError. Nothing is printed after that."""
    try:
        yield
    except OSError as error:
        give_up_output()
        if isinstance(error, BrokenPipeError):
            raise OutputClosedError() from None
        raise CommandError(f"standard output: {error.strerror}") from None


def complain(text: str, command: str | None = None) -> None:
    """Print one line on standard error, behind the name of the command that runs.

    The text may be that of a server, so its control characters are escaped.
    """
    if command is None:
        context = click.get_current_context(silent=True)
        command = "rocketd" if context is None else context.command_path
    print(f"{command}: {escape_controls(' '.join(text.split()))}", file=sys.stderr)


def show_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[str] = (),
    plain_header: bool = True,
) -> None:
    """Print rows under the names of their columns.

    On a terminal this is a table, in which the columns named in ``right`` are aligned to the right. Everywhere else each
    row is a line of fields separated by tabs, for other programs; the first line names the columns if ``plain_header``.
    An empty table prints nothing on a terminal. A cell may be the text of a server, so its control characters are escaped,
    with tabs and newlines. Raises as `show`.
    """
    escaped = [[escape_cell(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in [columns, *escaped] if plain_header else escaped:
            show(*row, sep="\t")
    elif escaped:
        show(_drawn(columns, escaped, right))


def _drawn(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str]) -> str:
    # Imported here: it takes longer than all the rest of a short command.
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    file = StringIO()
    Console(file=file, force_terminal=True, width=get_terminal_size().columns).print(table)
    return file.getvalue().rstrip("\n")


def give_up_output() -> None:
    """Discard what is still to be written to standard output, so that no write fails when the interpreter ends."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
