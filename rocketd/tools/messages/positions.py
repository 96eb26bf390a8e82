"""Places to start reading from: the first or last message, an offset, or a point in time."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import click

_AGO: Final = re.compile(r"-(\d{1,9})([smhd])", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_ACCEPTED: Final = "accepted is earliest, latest, an offset, a time such as 2026-01-31T09:30 or -5m"


@dataclass(frozen=True, slots=True)
class StartPosition:
    """A place in each queue: ``word`` is earliest, latest, offset or time. The other fields belong to the last two."""

    word: str
    offset: int = 0
    moment: datetime | None = None

    def for_later_queue(self, begin: datetime) -> "StartPosition":
        """Return the start of a queue found after ``begin``: "latest" are its messages since then, not its end."""
        return StartPosition("time", moment=begin) if self.word == "latest" else self


def position(text: str) -> StartPosition:
    """Read a position. A time without a zone is local time; ``-5m`` is five minutes ago. Raises BadParameter."""
    if text in ("earliest", "latest"):
        return StartPosition(text)
    if text.isascii() and text.isdigit() and len(text) < 19:
        return StartPosition("offset", int(text))
    try:
        return StartPosition("time", moment=_moment(text))
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(f"{text!r}: {_ACCEPTED}") from None


def moment(text: str) -> datetime:
    """Read a point in time, as in `position`. Raises BadParameter."""
    try:
        return _moment(text)
    except (ValueError, OverflowError, OSError):
        accepted = "accepted is a time such as 2026-01-31T09:30, or -5m for five minutes ago"
        raise click.BadParameter(f"{text!r}: {accepted}") from None


def _moment(text: str) -> datetime:
    ago = _AGO.fullmatch(text)
    if ago is not None:
        moment = datetime.now().astimezone() - timedelta(seconds=int(ago[1]) * _SECONDS[ago[2]])
    else:
        moment = datetime.fromisoformat(text).astimezone()
    if moment.timestamp() < 0:
        raise ValueError(text)
    return moment
