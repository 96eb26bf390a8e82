"""Clients that run until a signal ends the process, and then finish work under way: a function for each face."""

import asyncio
import signal
import threading
from collections.abc import Iterable
from contextlib import AsyncExitStack, ExitStack
from types import FrameType
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from rocketd.client.errors import UsageError
from rocketd.common.event_loop.reactor import global_reactor

if TYPE_CHECKING:  # each program needs only one of them
    from rocketd.client.faces.aio_lifecycle import AioLifecycle
    from rocketd.client.faces.sync_lifecycle import SyncLifecycle
    from rocketd.client.faces.twisted_lifecycle import TwistedLifecycle

ENDING = (signal.SIGTERM, signal.SIGINT)
"""The signals of supervisors and of Ctrl-C."""


def run_blocking(*clients: "SyncLifecycle", signals: Iterable[signal.Signals] = ENDING) -> None:
    """Open clients in this order, wait for a signal, and close them in reverse: consumers end within their ``grace``.

    A second signal has its usual effect. Raises the errors of opening and closing, and UsageError outside the main thread,
    because Python handles signals only there.
    """
    _check_thread()
    # An Event has a lock that the interrupted thread may hold. Only the handler ever releases this lock.
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


async def run_aio(*clients: "AioLifecycle", signals: Iterable[signal.Signals] = ENDING) -> None:
    """Open clients in this order, wait for a signal, and close them in reverse: consumers end within their ``grace``.

    A second signal has its usual effect. Raises the errors of opening and closing, and UsageError outside the main thread,
    because Python handles signals only there.
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


def run_twisted(*clients: "TwistedLifecycle") -> Deferred[None]:
    """Open clients in this order. When the reactor stops, close them in reverse: consumers end within their ``grace``.

    SIGTERM and SIGINT stop the reactor, which waits for the clients. The Deferred fires when all are closed, and fails
    with the errors of opening and closing.
    """
    return Deferred.fromCoroutine(_run_twisted(clients))


async def _run_twisted(clients: "Iterable[TwistedLifecycle]") -> None:
    reactor = global_reactor()
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
