"""Waits for several Deferreds or coroutines at once, and fails with the first error or with those of all servers.

Twisted's gatherResults wraps the error, even a cancellation, in another one, which callers do not expect.
"""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, FirstError, gatherResults

from rocketd.client.errors import RocketMQError, UsageError

R = TypeVar("R")


async def all_of(works: Iterable[Deferred[R] | Coroutine[Any, Any, R]]) -> list[R]:
    """Return all results, in order. Raises the first error. If it is cancelled, it cancels all."""
    begun = [work if isinstance(work, Deferred) else Deferred.fromCoroutine(work) for work in works]
    try:
        return await gatherResults(begun, consumeErrors=True)
    except FirstError as error:
        failed = error.subFailure
    assert failed.value is not None
    raise failed.value.with_traceback(failed.getTracebackObject())


def end_of(running: Deferred[Any]) -> Deferred[None]:
    """Return a Deferred for the end of ``running``, with or without an error."""
    ended: Deferred[None] = Deferred()

    def tell(result: object) -> object:
        ended.callback(None)
        return result

    running.addBoth(tell)
    return ended


async def errors_of(servers: Iterable[str], tell: Callable[[str], Coroutine[Any, Any, object]]) -> list[RocketMQError]:
    """Tell each of several servers something. Return the errors, in the order of the servers.

    ``broker`` of each error is the server as given. Raises the first UsageError at once: it concerns the caller, not one
    of the servers.
    """

    async def error_of(server: str) -> RocketMQError | None:
        try:
            await tell(server)
        except UsageError:
            raise
        except RocketMQError as error:
            error.broker = server
            return error
        return None

    return [error for error in await all_of(map(error_of, servers)) if error is not None]


async def tell_each(servers: Iterable[str], tell: Callable[[str], Coroutine[Any, Any, object]]) -> None:
    """Tell each of several servers something. After all are told, raise the first error, with the others in ``others``."""
    raise_first(await errors_of(servers, tell))


def raise_first(errors: list[RocketMQError]) -> None:
    """Raise the first error, if there is one, with the others in ``others``."""
    if errors:
        errors[0].others = tuple(errors[1:])
        raise errors[0]
