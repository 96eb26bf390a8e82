"""The records of an answer, without damaged ones: those must not hide the others.

Counterpart: `MessageDecoder.decodes` (Apache), which ends at the first damaged record, without an error.
"""

from collections.abc import Callable

from twisted.logger import Logger

from rocketd.common.logs.throttle import event_log
from rocketd.store.format.record import MessageExt, decode_readable

_events = event_log(Logger())


def log_damaged(text: str) -> None:
    """Log that a damaged record is left out."""
    _events.error("damaged records", "a message is left out because it is damaged: {found}", found=text)


def readable_records(body: bytes | None, source: str, tell: Callable[[str], None] = log_damaged) -> list[MessageExt]:
    """Return the records of a body. ``tell`` is called for each damaged one, with ``source``, its place and the damage."""
    records, damages = decode_readable(body or b"")
    for damage in damages:
        tell(f"{source}: {damage}")
    return records
