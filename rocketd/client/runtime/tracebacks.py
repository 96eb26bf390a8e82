"""Tracebacks of the application's errors, without the frames of the client that called its functions."""

from traceback import format_exception
from types import TracebackType
from typing import TypeVar

from rocketd.client.errors import RocketMQError
from rocketd.remoting.errors import RemotingError

E = TypeVar("E", bound=BaseException)

_INTERNAL = ("rocketd", "twisted", "asyncio", "threading", "concurrent")
"""Packages whose frames say nothing about the application."""


def _is_internal(traceback: TracebackType) -> bool:
    return traceback.tb_frame.f_globals.get("__name__", "").partition(".")[0] in _INTERNAL


def _application_part(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and _is_internal(traceback):
        traceback = traceback.tb_next
    return traceback


def from_application(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the application's first frame on. Return all of it if the application has no frame."""
    return _application_part(traceback) or traceback


def without_internal_frames(error: E) -> E:
    """Return an error that leaves the client, with the frames of the application only; its causes, too.

    Errors of the client tell their cause and the next step in their text. So causes without a frame of the application are
    not printed with them; they are in ``__context__``. Other errors without a frame of the application may be faults of
    the client, so they keep all frames.
    """
    explained = isinstance(error, RocketMQError | RemotingError)
    concerned = False
    each: BaseException | None = error
    seen: list[BaseException] = []
    while each is not None and each not in seen:
        part = _application_part(each.__traceback__)
        concerned |= part is not None and each is not error
        if part is not None or explained:
            each.__traceback__ = part
        seen.append(each)
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    if explained and not concerned and len(seen) > 1:
        error.__context__, error.__cause__ = seen[1], None
        error.__suppress_context__ = True
    return error


class LoggedError:
    """An error for a log event. Its text is the traceback, after a line break.

    A failure in the event would make tests of trial fail, although the consumer has dealt with the error.
    """

    def __init__(self, error: BaseException, traceback: TracebackType | None = None) -> None:
        self.error = error
        self.traceback = from_application(traceback or error.__traceback__)

    def __str__(self) -> str:
        return "\n" + "".join(format_exception(type(self.error), self.error, self.traceback)).rstrip("\n")
