"""Waits for several things at once, and fails as the first of them does.

No counterpart in Apache. Twisted's own gathering wraps what was raised, a cancellation too, in an error of its own, which no
caller expects.
"""

from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, FirstError, gatherResults

R = TypeVar("R")


async def all_of(works: Iterable[Deferred[R] | Coroutine[Any, Any, R]]) -> list[R]:
    """Return all results, in order. Raises what the first raises that fails; cancelled, it cancels all."""
    begun = [work if isinstance(work, Deferred) else Deferred.fromCoroutine(work) for work in works]
    try:
        return await gatherResults(begun, consumeErrors=True)
    except FirstError as error:
        failed = error.subFailure
    assert failed.value is not None
    raise failed.value.with_traceback(failed.getTracebackObject())
