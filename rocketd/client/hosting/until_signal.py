"""Clients that run until the process is told to end, and then let what is under way end: a function for each face.

No counterpart in Apache, where a JVM's shutdown hook does that.
"""

import asyncio
import signal
import threading
from collections.abc import Iterable
from contextlib import AsyncExitStack, ExitStack
from types import FrameType
from typing import Any

from twisted.internet.defer import Deferred

from rocketd.client.errors import UsageError
from rocketd.client.hosting.aio_life import AioLife
from rocketd.client.hosting.sync_life import SyncLife
from rocketd.client.hosting.twisted_life import TwistedLife

ENDING = (signal.SIGTERM, signal.SIGINT)
"""What supervisors send, and what Ctrl-C does."""


def run_blocking(*clients: SyncLife, signals: Iterable[signal.Signals] = ENDING) -> None:
    """Open clients in this order; when a signal comes, close them in the other: consumers end within their ``grace``.

    Until then it waits. A second signal does what it would have done without this. Raises what opening and closing
    raise, and UsageError outside the main thread, where Python has no signals.
    """
    _check_thread()
    # An Event has a lock that the interrupted thread may hold; this one is only ever released by the handler.
    came = threading.Lock()
    came.acquire()
    before: dict[signal.Signals, Any] = {}

    def restore() -> None:
        while before:
            signal.signal(*before.popitem())

    def come(_number: int, _frame: FrameType | None) -> None:
        restore()
        if came.locked():
            came.release()

    for number in signals:
        before[number] = signal.signal(number, come)
    try:
        with ExitStack() as opened:
            for client in clients:
                opened.enter_context(client)
            came.acquire()
    finally:
        restore()


async def run_aio(*clients: AioLife, signals: Iterable[signal.Signals] = ENDING) -> None:
    """Open clients in this order; when a signal comes, close them in the other: consumers end within their ``grace``.

    Until then it waits. A second signal does what it would have done without this. Raises what opening and closing
    raise, and UsageError outside the main thread, where Python has no signals.
    """
    _check_thread()
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    before: dict[signal.Signals, Any] = {}

    def restore() -> None:
        while before:
            number, handler = before.popitem()
            loop.remove_signal_handler(number)
            signal.signal(number, handler)

    def come() -> None:
        restore()
        came.set()

    try:
        for number in signals:
            before[number] = signal.getsignal(number)
            loop.add_signal_handler(number, come)
        async with AsyncExitStack() as opened:
            for client in clients:
                await opened.enter_async_context(client)
            await came.wait()
    finally:
        restore()


def _check_thread() -> None:
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("run is for the main thread: elsewhere, open and close the clients")


def run_twisted(*clients: TwistedLife) -> Deferred[None]:
    """Open clients in this order; when the reactor stops, close them in the other: consumers end within their ``grace``.

    SIGTERM and SIGINT make the reactor stop, which waits for that. Fires when all are closed, and fails with what opening
    and closing raise.
    """
    return Deferred.fromCoroutine(_run_twisted(clients))


async def _run_twisted(clients: Iterable[TwistedLife]) -> None:
    from twisted.internet import reactor as installed

    reactor: Any = installed
    stops: Deferred[None] = Deferred()
    closed: Deferred[None] = Deferred()

    def stop() -> Deferred[None]:
        stops.callback(None)
        return closed

    trigger = reactor.addSystemEventTrigger("before", "shutdown", stop)
    try:
        async with AsyncExitStack() as opened:
            for client in clients:
                await opened.enter_async_context(client)
            await stops
    finally:
        if not stops.called:
            reactor.removeSystemEventTrigger(trigger)
        closed.callback(None)
