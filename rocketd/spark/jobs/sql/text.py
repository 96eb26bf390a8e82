"""The text of a SQL file: its statements, the names in it, and the target of each statement's rows.

Pure functions over text. Strings, quoted names and comments follow Spark's grammar; everything else is left to Spark's
parser.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rocketd.spark.errors import SparkError

# Strings, names in back quotes, both kinds of comments, and the end of a statement.
_PIECES = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/|;""",
    re.DOTALL,
)
_COMMENTS = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`)|--[^\n]*|/\*.*?\*/""", re.DOTALL)
_LEAD = re.compile(r"(?:\s|--[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NAMES = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`((?:[^`]|``)*)`|([^\W\d]\w*)")
_INSERT = re.compile(r"\s*insert\s+into\s+(topic|archive)\s*\.\s*`((?:[^`]|``)+)`\s*", re.IGNORECASE)
_WRITES = re.compile(r"\s*insert\s", re.IGNORECASE)
_READS = re.compile(r"\s*(select|with|from|values|\()", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement. `query` is the part for Spark, and `line` its first line, from 1.

    `sink` is "topic", "archive", "console", or "" for a statement without rows. `target` is the topic or directory.
    """

    query: str
    sink: str
    target: str
    line: int


def statements(text: str) -> Iterator[Statement]:
    """Yield the statements of a file, which are separated by semicolons.

    Raises SparkError for an INSERT into another sink.
    """
    begin = 0
    for piece in _PIECES.finditer(text):
        if piece.group() == ";":
            yield from _statement(text, begin, piece.start())
            begin = piece.end()
    yield from _statement(text, begin, len(text))


def _statement(text: str, begin: int, end: int) -> Iterator[Statement]:
    whole = text[begin:end]
    bare = _COMMENTS.sub(lambda piece: piece.group(1) or " ", whole)
    if not bare.strip():
        return
    line = text.count("\n", 0, _end_of_lead(text, begin)) + 1
    query = bare.strip()
    insert = _INSERT.match(query)
    if insert is not None:
        sink, target = insert.group(1).lower(), insert.group(2).replace("``", "`")
        yield Statement(query[insert.end() :], sink, target, line)
    elif _WRITES.match(query):
        raise SparkError(
            f"line {line}: rows go INSERT INTO topic.`NAME` or INSERT INTO archive.`DIRECTORY`, or to the screen with SELECT"
        )
    else:
        yield Statement(query, "console" if _READS.match(query) else "", "", line)


def _end_of_lead(text: str, begin: int) -> int:
    lead = _LEAD.match(text, begin)
    return begin if lead is None else lead.end()


def names(text: str) -> set[str]:
    """Return all words and quoted names that could name a table, in lower case. Strings and comments are skipped."""
    bare = _COMMENTS.sub(lambda piece: piece.group(1) or " ", text)
    return {
        (match.group(1).replace("``", "`") if match.group(1) is not None else match.group(2)).lower()
        for match in _NAMES.finditer(bare)
        if match.group(1) is not None or match.group(2) is not None
    }
