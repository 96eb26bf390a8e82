"""The settings of an archive, written once to `rocketd-archive.json`, and binding for everything added later."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from rocketd.spark.archive.format.layout import FORMAT_VERSION
from rocketd.spark.columns import COLUMNS, arrow_schema, check_columns
from rocketd.spark.errors import ArchiveError, OptionError

MESSAGES = "messages"
"""Kind of an archive of whole messages. It has each offset of a queue at most once, and can be restored."""
ROWS = "rows"
"""Kind of an archive of any other rows of a stream."""

NEEDED_COLUMNS = ("broker", "topic", "queue_id", "queue_offset", "commit_log_offset", "store_size", "store_time", "raw")
"""Without these columns a message cannot be restored to its place."""

DEFAULT_COLUMNS = (
    "broker",
    "topic",
    "queue_id",
    "queue_offset",
    "commit_log_offset",
    "store_size",
    "sys_flag",
    "born_time",
    "store_time",
    "tags",
    "keys",
    "tag_hash",
    "raw",
)
"""Columns that queries usually select by; all others can be parsed from the raw record."""

_FORMAT = "rocketd-archive"


def message_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of an archive of messages: the given and the needed ones. Raises OptionError."""
    wanted = set(check_columns(names)) | set(NEEDED_COLUMNS)
    return tuple(name for name in COLUMNS if name in wanted)


@dataclass(frozen=True, slots=True)
class Settings:
    """Kind of the archive, and names and types of its columns; types as Arrow prints them."""

    kind: str
    columns: tuple[tuple[str, str], ...]
    created_ms: int = 0

    @staticmethod
    def of_messages(names: Sequence[str] = DEFAULT_COLUMNS) -> "Settings":
        """Return the settings for messages with these columns. Raises OptionError."""
        return Settings.of_schema(arrow_schema(message_columns(names)), MESSAGES)

    @staticmethod
    def of_schema(schema: pa.Schema, kind: str = ROWS) -> "Settings":
        """Return the settings for rows of this schema."""
        columns = tuple((field.name, str(field.type)) for field in schema)
        return Settings(kind, columns, time.time_ns() // 1_000_000)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(name for name, _ in self.columns)

    def check_same(self, other: "Settings", root: str) -> None:
        """Raise ArchiveError unless the other settings describe the same columns."""
        if self.kind != other.kind:
            raise ArchiveError(f"{root} is an archive of {self.kind}, not of {other.kind}: use another directory")
        if self.columns != other.columns:
            there = ", ".join(f"{name} {kind}" for name, kind in self.columns)
            raise ArchiveError(f"{root} has the columns {there}: write these, or use another directory")

    def check_whole(self, root: str) -> None:
        """Raise ArchiveError unless the archive holds whole messages with message columns only."""
        known = {name: str(COLUMNS[name].arrow) for name in self.names if name in COLUMNS}
        if self.kind != MESSAGES or known != dict(self.columns):
            raise ArchiveError(f"{root} has rows or columns that only a stream makes: use another directory")

    def encoded(self) -> bytes:
        """Return the content of the file."""
        said = {
            "format": _FORMAT,
            "version": FORMAT_VERSION,
            "kind": self.kind,
            "columns": [{"name": name, "type": kind} for name, kind in self.columns],
            "created": self.created_ms,
        }
        return json.dumps(said, indent=2).encode() + b"\n"

    @staticmethod
    def decoded(data: bytes, path: str) -> "Settings":
        """The reverse of `encoded`. Raises ArchiveError."""
        try:
            said = json.loads(data)
            if said["format"] != _FORMAT:
                raise ArchiveError(f"{path} does not describe an archive")
            if said["version"] != FORMAT_VERSION:
                raise ArchiveError(
                    f"{path}: the archive has format {said['version']}, this program knows {FORMAT_VERSION}; use a later one"
                )
            columns = tuple((column["name"], column["type"]) for column in said["columns"])
            return Settings(said["kind"], columns, said["created"])
        except (ValueError, KeyError, TypeError) as error:
            raise ArchiveError(f"{path} is damaged: {error!r}") from None


def is_of_messages(schema: pa.Schema) -> bool:
    """Tell whether rows of this schema are restorable messages: all needed columns, each with the right type."""
    return all(name in schema.names and schema.field(name).type == COLUMNS[name].arrow for name in NEEDED_COLUMNS)


def check_archive_columns(text: str) -> tuple[str, ...]:
    """Return the columns of a comma-separated option value; "all" means every column. Raises OptionError."""
    if text.strip() == "all":
        return tuple(COLUMNS)
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise OptionError(f"columns is empty; give some of {', '.join(COLUMNS)}, or all")
    return message_columns(names)
