"""The answers to administrators' commands, which wait until the changed table is on the disk."""

from collections.abc import Callable
from typing import Any

from rocketd.broker import problems
from rocketd.common.table_writer import Written
from rocketd.remoting.command import RemotingCommand


def when_written(context: Any, what: str, then: Callable[[], None] | None = None) -> Written:
    """Make what is told of a write: call ``then``, by default a plain success; or answer that ``what`` is in memory only.

    ``context`` is an IRequestContext.
    """

    def written(error: Exception | None) -> None:
        if error is not None:
            refusal = problems.TABLE_NOT_WRITTEN.error(what=what, error=error)
            context.answer(RemotingCommand.response(refusal.code, refusal.remark))
        elif then is not None:
            then()
        else:
            context.answer(RemotingCommand.response())

    return written
