"""How a client of any face is opened and closed.

No counterpart in Apache. A client is made without a thread, a socket or a reactor; ``bring_up`` brings its engine up on the
reactor that its face is hosted by, and ``bring_down`` lets go of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from twisted.internet.defer import CancelledError, Deferred, ensureDeferred

from rocketd.client.config import ClientConfig, config_of
from rocketd.client.errors import ClientClosedError, ClientStateError, NotStartedError
from rocketd.client.hosting.fork import ForkGuard
from rocketd.client.hosting.gevent_patches import check_patches
from rocketd.client.instance import registry
from rocketd.client.instance.client_instance import ClientInstance

RunCoroutine = Callable[[Any], Deferred[Any]]


class LifeState:
    """Where a client is between its making and its end."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.guard = ForkGuard(what)
        self.begun = False
        self.ended = False

    def begin(self) -> None:
        """It is being opened. Raises ClientClosedError or ClientStateError when it was before, and ForkedClientError.

        Raises UsageError where gevent has patched what it needs too late.
        """
        self.guard.check()
        check_patches()
        if self.begun or self.ended:
            state = "was closed: make a new one" if self.ended else "is open already"
            raise (ClientClosedError if self.ended else ClientStateError)(f"this {self.what} {state}")
        self.begun = True
        self.guard.begin()

    def fail(self) -> None:
        """The start failed: it may be tried again."""
        self.begun = False
        self.guard.end()

    def check(self) -> None:
        """Raise what keeps it from being used."""
        self.guard.check()
        if self.ended:
            raise ClientClosedError(f"this {self.what} is closed: make a new one")
        raise NotStartedError(f"this {self.what} is not open: open it, or use it in a with block")


class Life(ABC):
    """What a face needs of a client to open and close it."""

    _life: LifeState
    block_failed = False
    """Whether its with block ended by an exception."""

    @abstractmethod
    async def bring_up(self, reactor: Any, run_coroutine: RunCoroutine) -> None:
        """Bring the engine up. Reactor thread."""

    @abstractmethod
    async def bring_down(self) -> bool:
        """Let go of the engine; whether it was up. One that comes up just now does not. Reactor thread."""

    def _check_caller(self) -> None:  # noqa: B027 - most faces may be called from anywhere
        """Raise ClientStateError where the engine may not be used from here. Only for one that was opened."""


class Engine(Protocol):
    """What does the work of a client."""

    instance: ClientInstance

    def start(self) -> Coroutine[Any, Any, None]:
        """Begin."""

    async def stop(self) -> None:
        """End, also after a start that failed."""


E = TypeVar("E", bound=Engine)


class Face(Life, Generic[E]):
    """A client whose engine is of one type."""

    kind: ClassVar[registry.Kind]
    group: str

    def _make_life(self, what: str, cluster: Any) -> None:
        self.config = config_of(cluster)
        self._life = LifeState(what)
        self._engine: E | None = None
        self._starting: Deferred[None] | None = None

    @property
    def engine(self) -> E:
        """The engine. Raises NotStartedError, ClientClosedError, ForkedClientError, or another ClientStateError."""
        engine = self._engine
        if engine is None or self._life.guard.forked:
            self._life.check()
        assert engine is not None
        self._check_caller()
        return engine

    @abstractmethod
    def make_engine(self, instance: ClientInstance, run_coroutine: RunCoroutine) -> E:
        """Make the engine. Reactor thread."""

    def instance_config(self) -> ClientConfig:
        """Return the config of the instance it needs."""
        return self.config

    async def stop_engine(self, engine: E) -> None:
        """Stop the engine."""
        await engine.stop()

    async def bring_up(self, reactor: Any, run_coroutine: RunCoroutine) -> None:
        """Bring the engine up. Reactor thread."""
        config = self.instance_config()
        instance = registry.acquire(config.reactor_on(reactor), config, self.kind, self.group)
        engine = None
        try:
            engine = self.make_engine(instance, run_coroutine)
            self._starting = ensureDeferred(engine.start())
            await self._starting
            if self._life.ended:
                raise CancelledError
        except BaseException as error:
            if engine is not None:
                await engine.stop()
            await registry.release(instance, self.kind, self.group)
            if self._life.ended:
                raise ClientClosedError(f"this {self._life.what} was closed while it was opened") from error
            raise
        finally:
            self._starting = None
        self._engine = engine

    async def bring_down(self) -> bool:
        """Let go of the engine; whether it was up. One that comes up just now does not. Reactor thread."""
        engine, self._engine = self._engine, None
        self._life.ended = True
        if engine is not None:
            await self.stop_engine(engine)
            await registry.release(engine.instance, self.kind, self.group)
        elif self._starting is not None:
            self._starting.cancel()
        return engine is not None
