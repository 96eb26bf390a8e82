"""Times of delayed tasks, and the delay levels for the rest of a delay. Pure functions."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

LONGEST_TIMER = timedelta(days=1)
"""Longest delay requested from a timer. Brokers refuse longer ones than their timerMaxDelaySec, three days by default."""

LEVEL_SECONDS = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Delay levels of brokers with the default messageDelayLevel, from level 1 on."""


def eta_of(headers: Mapping[str, Any]) -> datetime | None:
    """Return the time before which a Celery task must not run; None if it may run at once."""
    text = headers.get("eta")
    if not isinstance(text, str):
        return None
    try:
        eta = datetime.fromisoformat(text)
    except ValueError:
        return None
    return eta.replace(tzinfo=UTC) if eta.tzinfo is None else eta


def level_within(rest: timedelta) -> int:
    """Return the highest delay level that is not longer than ``rest``; 0 if it is shorter than all."""
    return sum(seconds <= rest.total_seconds() for seconds in LEVEL_SECONDS)
