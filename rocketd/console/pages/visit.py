"""A request for a page, without HTTP: its parameters, and the cluster as its user reaches it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from rocketd.console.cluster import ConsoleCluster
from rocketd.console.errors import ConsoleError

MAX_ROWS: Final = 100
"""Rows of a table on one page."""
_LONGEST: Final = 512
"""Characters of a parameter, other than the body of a message."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One request. ``fields`` are those of the query, or of the form of a change."""

    cluster: ConsoleCluster
    fields: Mapping[str, str] = field(default_factory=dict)
    read_only: bool = False

    def text(self, name: str, *, longest: int = _LONGEST) -> str:
        """Return a parameter without blanks around it; empty if it is missing. Raises ConsoleError if it is too long."""
        value = self.fields.get(name, "").strip()
        if len(value) > longest:
            raise ConsoleError(f"{name} has {len(value)} characters; {longest} are accepted.")
        return value

    def required(self, name: str) -> str:
        """Return a parameter. Raises ConsoleError if it is missing."""
        value = self.text(name)
        if not value:
            raise ConsoleError(f"The parameter {name} is missing.")
        return value

    def number(self, name: str, default: int, minimum: int, maximum: int) -> int:
        """Return a whole number. Raises ConsoleError if it is not one of those accepted."""
        value = self.text(name)
        if not value:
            return default
        if not value.isascii() or not value.isdigit() or len(value) > 18 or not minimum <= int(value) <= maximum:
            raise ConsoleError(f"{name}={value}: accepted is a whole number from {minimum} to {maximum}.")
        return int(value)

    def one_of(self, name: str, *accepted: str) -> str:
        """Return one of several words, the first by default. Raises ConsoleError for another."""
        value = self.text(name) or accepted[0]
        if value not in accepted:
            raise ConsoleError(f"{name}={value}: accepted are {', '.join(accepted)}.")
        return value

    def moment(self, name: str) -> datetime | None:
        """Return a time in UTC, such as 2026-01-31T09:30; None if it is missing. Raises ConsoleError for another text."""
        value = self.text(name)
        if not value:
            return None
        try:
            moment = datetime.fromisoformat(value)
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        except (ValueError, OverflowError):
            raise ConsoleError(f"{name}={value}: accepted is a time like 2026-01-31T09:30.") from None
        if moment.year < 1970:
            raise ConsoleError(f"{name}={value}: accepted are times from 1970 on.")
        return moment


def time_text(milliseconds: int) -> str | None:
    """Return a time in UTC; None for a time that no message has."""
    if milliseconds <= 0:
        return None
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)
    return moment_text(moment)


def moment_text(moment: datetime | None) -> str | None:
    """Return a point in time as text in UTC."""
    if moment is None:
        return None
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{moment.microsecond // 1000:03}"
