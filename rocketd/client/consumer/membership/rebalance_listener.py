"""Calls the application's functions for assigned, revoked and lost queues.

Apache's push consumers have no such functions. Reactor thread.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred, DeferredLock
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketd.client.consumer.options.member_options import MemberOptions
from rocketd.client.consumer.pulling.assigned_queue import AssignedQueue
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.namespace import queue_without_namespace
from rocketd.client.runtime.listeners import HandlerThreads
from rocketd.client.runtime.tracebacks import LoggedError
from rocketd.client.settings.config import milliseconds
from rocketd.common.names import RETRY_PREFIX
from rocketd.remoting.bodies.tables import MessageQueue

QueuesFunction = Callable[[list[MessageQueue]], Any]

MAX_LISTENER_THREADS: Final = 4
"""Threads for plain functions. More than one, because a function that never returns keeps its thread."""


class RebalanceListener:
    """The functions of one consumer. They are called one after the other, without the queues of retry topics.

    An error is logged. A function that runs longer than ``listener_timeout`` is cancelled and no longer awaited.
    """

    _log = Logger()

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: MemberOptions,
        run_coroutine: Callable[[Any], Deferred[Any]],
    ) -> None:
        self._instance = instance
        self._group = group
        self._options = options
        # Handlers may block all their threads. So these functions have separate ones.
        self._threads = HandlerThreads(
            instance.reactor, f"rocketd-rebalance-{group}", MAX_LISTENER_THREADS, run_coroutine
        )
        self._turn = DeferredLock()
        self.is_calling = False
        """Whether a function runs now, which may use the consumer even while it opens or closes."""

    @property
    def present(self) -> bool:
        """Whether the application has given any of the functions."""
        options = self._options
        return not (options.on_assigned is None and options.on_revoked is None and options.on_lost is None)

    @property
    def running(self) -> list[Callable[..., Any]]:
        """The functions running now, also those no longer awaited."""
        return self._threads.running

    async def assigned(self, queues: Iterable[AssignedQueue]) -> None:
        """Call ``on_assigned``."""
        await self._call("on_assigned", self._options.on_assigned, queues)

    async def revoked(self, queues: Iterable[AssignedQueue]) -> None:
        """Call ``on_revoked``."""
        await self._call("on_revoked", self._options.on_revoked, queues)

    async def lost(self, queues: Iterable[AssignedQueue]) -> None:
        """Call ``on_lost``."""
        await self._call("on_lost", self._options.on_lost, queues)

    def stop(self) -> Deferred[None]:
        """Call nothing more. The Deferred fires after the threads have ended, except those still in a function."""
        return self._threads.stop()

    async def _call(self, name: str, function: QueuesFunction | None, queues: Iterable[AssignedQueue]) -> None:
        namespace = self._instance.config.namespace
        bare = sorted(
            queue_without_namespace(namespace, one.queue)
            for one in queues
            if not one.queue.topic.startswith(RETRY_PREFIX)
        )
        if function is None or not bare:
            return
        await self._turn.acquire()
        self.is_calling = True
        try:
            await self._limited(name, function, bare)
        finally:
            self.is_calling = False
            self._turn.release()

    def _limited(self, name: str, function: QueuesFunction, queues: list[MessageQueue]) -> Deferred[None]:
        """Return a Deferred for the end of the function, or of its time. It fails only if it is cancelled."""
        running = self._threads.invoke(function, queues)
        over = False

        def cancel(_: object) -> None:
            nonlocal over
            over = True
            limit.cancel()
            running.cancel()

        ended: Deferred[None] = Deferred(cancel)
        seconds = milliseconds("listener_timeout", self._options.listener_timeout) / 1000

        def expire() -> None:
            nonlocal over
            over = True
            self._log.warn(
                "{name} of group {group} has not returned within {seconds:g} s (listener_timeout): the rebalance goes on",
                name=name,
                group=self._group,
                seconds=seconds,
            )
            running.cancel()
            ended.callback(None)

        limit = self._instance.reactor.callLater(seconds, expire)

        def end(result: object) -> None:
            if limit.active():
                limit.cancel()
            if isinstance(result, Failure) and not (over and result.check(CancelledError)):
                self._failed(name, result)
            if not over:
                ended.callback(None)

        running.addBoth(end)
        return ended

    def _failed(self, name: str, failure: Failure) -> None:
        error = failure.value
        if error is not None:
            self._log.warn(
                "{name} of group {group} failed: {error!r}{trace}",
                name=name,
                group=self._group,
                error=error,
                trace=LoggedError(error, failure.getTracebackObject()),
            )
