"""Opening and closing of a client, for all faces.

A client is created without a thread, a socket or a reactor. ``_bring_up`` starts its engine on the reactor of its face,
and ``_bring_down`` releases it. Names without an underscore are those of applications.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from twisted.internet.defer import CancelledError, Deferred, ensureDeferred

from rocketd.client.errors import ClientClosedError, ClientStateError, NotStartedError
from rocketd.client.instance import registry
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.runtime.fork import ForkGuard
from rocketd.client.runtime.gevent_patches import check_patches
from rocketd.client.settings.config import ClientConfig, config_of
from rocketd.client.settings.option_names import check_names, takes_fields
from rocketd.client.settings.wrong_calls import check_call, class_name
from rocketd.common.event_loop.reactor import IReactor

RunCoroutine = Callable[[Any], Deferred[Any]]


class LifecycleState:
    """The state of a client from its creation to its end."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.guard = ForkGuard(what)
        self.begun = False
        self.ended = False

    def begin(self) -> None:
        """Mark the client as being opened.

        Raises:

        - ClientClosedError: it was closed.
        - ClientStateError: it is open already.
        - ForkedClientError: it belongs to the parent process.
        - UsageError: gevent patched required modules too late or only in part.
        """
        self.guard.check()
        check_patches()
        if self.begun or self.ended:
            state = "was closed: make a new one" if self.ended else "is open already"
            raise (ClientClosedError if self.ended else ClientStateError)(f"this {self.what} {state}")
        self.begun = True
        self.guard.begin()

    def fail(self) -> None:
        """Mark the start as failed. It may be tried again."""
        self.begun = False
        self.guard.end()

    def check(self) -> None:
        """Raise the reason why the client cannot be used."""
        self.guard.check()
        if self.ended:
            raise ClientClosedError(f"this {self.what} is closed: make a new one")
        raise NotStartedError(f"this {self.what} is not open: open it, or use it in a with block")


class Lifecycle(ABC):
    """The methods of a client needed by a face for opening and closing."""

    _life: LifecycleState
    _block_failed = False
    """Whether its with block ended with an exception."""

    @abstractmethod
    async def _bring_up(self, reactor: IReactor, run_coroutine: RunCoroutine) -> None:
        """Start the engine. Reactor thread."""

    @abstractmethod
    async def _bring_down(self) -> bool:
        """Release the engine. Return whether it was up. A starting engine does not come up. Reactor thread."""

    def _check_caller(self) -> None:  # noqa: B027 - most faces may be called from anywhere
        """Raise ClientStateError if the engine may not be used from here. Only for an open client."""


class Engine(Protocol):
    """The engine of a client, which does its work."""

    instance: ClientInstance

    def start(self) -> Coroutine[Any, Any, None]:
        """Start."""

    async def stop(self) -> None:
        """Stop, also after a failed start."""


E = TypeVar("E", bound=Engine)


class Face(Lifecycle, Generic[E]):
    """A client with an engine of one type."""

    _kind: ClassVar[registry.Kind]
    group: str

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """Create a client. Raises TypeError for an unknown option, with the right one if there is one, and a wrong call.

        A subclass with its own ``__init__`` may have other keywords.
        """
        if is_dataclass(cls) and takes_fields(cls):
            check_names(class_name(cls), options, [field.name for field in fields(cls)])
            check_call(class_name(cls), cls.__init__, arguments, options)
        return super().__new__(cls)

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute. An option is checked as in the call of the class.

        Raises TypeError for an unknown option, and ClientStateError for an option of a client that was opened. A subclass
        with its own ``__init__`` may have other attributes.
        """
        life = self.__dict__.get("_life")
        if life is not None and not name.startswith("_"):
            known = getattr(self, "__dataclass_fields__", {})
            if name in known:
                value = self._checked(name, value)
            elif takes_fields(type(self)) and not hasattr(type(self), name):
                check_names(class_name(type(self)), (name,), known)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        """Delete an attribute. Raises TypeError for an option."""
        if name in getattr(self, "__dataclass_fields__", ()):
            raise TypeError(f"{name} of this {self._life.what} cannot be deleted: make a new one without {name}=")
        super().__delattr__(name)

    def _checked(self, option: str, value: object) -> object:
        """Return a new value of an option as the client keeps it. Raises the errors of creating a client with it."""
        life = self._life
        if life.begun:
            raise ClientStateError(
                f"{option} of this {life.what} cannot be changed any more: make a new one with {option}="
            )
        trial: Any = object.__new__(type(self))
        trial.__dict__.update({name: self.__dict__[name] for name in trial.__dataclass_fields__}, **{option: value})
        trial.__post_init__()
        return trial.__dict__[option]

    def _make_life(self, what: str, cluster: Any) -> None:
        self._config = config_of(cluster)
        self._life = LifecycleState(what)
        self._running: E | None = None
        self._made: E | None = None  # also while it starts and stops
        self._starting: Deferred[None] | None = None

    @property
    def _engine(self) -> E:
        """The engine.

        Raises NotStartedError, ClientClosedError, ForkedClientError or another ClientStateError if it cannot be used.
        """
        made = self._made  # read once: another thread may end it
        engine = self._running if made is None or not self._is_called_back(made) else made
        if engine is None or self._life.guard.forked:
            self._life.check()
        assert engine is not None
        self._check_caller()
        return engine

    @abstractmethod
    def _make_engine(self, instance: ClientInstance, run_coroutine: RunCoroutine) -> E:
        """Create the engine. Reactor thread."""

    def _is_called_back(self, engine: E) -> bool:
        """Whether a function of the application that the engine awaits may use it, even while it starts or stops."""
        return False

    def _instance_config(self) -> ClientConfig:
        """Return the config of the required instance."""
        return self._config

    async def _stop_engine(self, engine: E) -> None:
        """Stop the engine."""
        await engine.stop()

    async def _bring_up(self, reactor: IReactor, run_coroutine: RunCoroutine) -> None:
        """Start the engine. Reactor thread."""
        config = self._instance_config()
        instance = registry.acquire(config.reactor_on(reactor), config, self._kind, self.group)
        engine = None
        try:
            engine = self._made = self._make_engine(instance, run_coroutine)
            self._starting = ensureDeferred(engine.start())
            await self._starting
            if self._life.ended:
                raise CancelledError
        except BaseException as error:
            if engine is not None:
                await engine.stop()
            self._made = None
            await registry.release(instance, self._kind, self.group)
            if self._life.ended:
                raise ClientClosedError(f"this {self._life.what} was closed while it was opened") from error
            raise
        finally:
            self._starting = None
        self._running = engine

    async def _bring_down(self) -> bool:
        """Release the engine. Return whether it was up. A starting engine does not come up. Reactor thread."""
        engine, self._running = self._running, None
        self._life.ended = True
        if engine is not None:
            await self._stop_engine(engine)
            self._made = None
            await registry.release(engine.instance, self._kind, self.group)
        elif self._starting is not None:
            self._starting.cancel()
        return engine is not None


def engine_of(client: Face[E]) -> E:
    """Return the engine of an open client, for other packages of rocketd. Raises the errors of ``Face._engine``."""
    return client._engine
