"""The three faces of rocketd.client behind one that blocks, so that the same tests drive all of them."""

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from threading import Condition, Thread
from types import ModuleType
from typing import Any

from rocketd.client import aio, sync

LIMIT = 60.0  # seconds for each wait


class Face:
    """A face: ``module`` has its Producer and Consumer, ``run`` calls a function in its thread or loop, and waits."""

    name: str
    module: ModuleType

    def run(self, function: Callable[[], Any]) -> Any:
        raise NotImplementedError

    async def breathe(self) -> None:
        """Wait a moment, as coroutine functions of the face do; return at once if the face cannot await."""

    def iterate(self, consumer: "Held", take: Callable[[Any], bool]) -> None:
        """Open a consumer and loop over its messages until ``take`` of one is false, in the way of the face."""
        raise NotImplementedError

    def close(self) -> None:
        """End the threads and loops started by the face."""


async def iterate(consumer: Any, take: Callable[[Any], bool]) -> None:
    """Loop over the messages of a consumer for asyncio or Twisted."""
    async with consumer:
        async for message in consumer:
            if not take(message):
                break


class SyncFace(Face):
    name = "sync"
    module = sync

    def run(self, function):
        return function()

    def iterate(self, consumer, take):
        with consumer.client as messages:
            for message in messages:
                if not take(message):
                    break


class AioFace(Face):
    """asyncio in a separate thread."""

    name = "aio"
    module = aio

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = Thread(target=self.loop.run_forever, name="asyncio", daemon=True)
        self._thread.start()

    def run(self, function):
        async def call() -> Any:
            result = function()
            return await result if asyncio.iscoroutine(result) else result

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(LIMIT)

    async def breathe(self):
        await asyncio.sleep(0.01)

    def iterate(self, consumer, take):
        self.run(lambda: iterate(consumer.client, take))

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Held:
    """A client in a with block; its methods block, whichever face it is of."""

    def __init__(self, face: Face, client: Any) -> None:
        self.client = client
        self._face = face

    def __enter__(self) -> "Held":
        self._face.run(self.client.open)
        return self

    def __exit__(self, *_: object) -> None:
        self._face.run(self.client.close)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.client, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            return self._face.run(lambda: method(*arguments, **keywords))

        return call

    @property
    def client_id(self) -> str:
        """The client id at brokers."""
        return self.client._engine.instance.client_id


class Got:
    """A handler that records its messages; any thread may read them."""

    def __init__(self, then: Callable[[Any], Any] | None = None) -> None:
        """``then`` is called with each message, and its answer is the handler's."""
        self.messages: list[Any] = []
        self._then = then
        self._news = Condition()

    def __call__(self, message: Any) -> Any:
        with self._news:
            self.messages.append(message)
            self._news.notify_all()
        return None if self._then is None else self._then(message)

    @property
    def bodies(self) -> list[Any]:
        """The bodies, in the order of their arrival."""
        with self._news:
            return [message.body for message in self.messages]

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        """Return once the condition, asked after each message, holds. AssertionError after LIMIT."""
        deadline = time.monotonic() + LIMIT
        with self._news:
            while not condition():
                left = deadline - time.monotonic()
                assert left > 0, f"waited {LIMIT:g} s in vain: {what}; got {self.bodies}"
                self._news.wait(min(left, 1.0))

    def wait_bodies(self, wanted: Iterable[Any]) -> None:
        """Return once all of these came, in any order and any number of times."""
        wanted = set(wanted)
        self.wait(f"{sorted(wanted)} come", lambda: wanted <= set(self.bodies))


def eventually(what: str, condition: Callable[[], bool]) -> None:
    """Return once the condition holds. AssertionError after LIMIT."""
    never: Future[None] = Future()
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, f"waited {LIMIT:g} s in vain: {what}"
        try:
            never.result(0.02)
        except TimeoutError:
            pass
