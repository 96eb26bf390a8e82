"""The answers to administrators' commands, sent once the changed table is on disk."""

from collections.abc import Callable

from rocketd.broker.base import problems
from rocketd.common.table_writer import Written
from rocketd.remoting.interfaces import IRequestContext
from rocketd.remoting.wire.command import RemotingCommand


def when_written(context: IRequestContext, what: str, then: Callable[[], None] | None = None) -> Written:
    """Return the callback of a table's write: it calls ``then``, by default a plain success.

    If the write failed, it answers that ``what`` is in memory only. ``context`` is an IRequestContext.
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
