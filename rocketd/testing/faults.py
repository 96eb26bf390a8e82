"""Network faults: lost requests, answers or connections.

They act after a server has read whole frames, so they are the same in memory and over sockets.
"""

from collections.abc import Callable, Sequence
from random import Random
from threading import Lock
from types import TracebackType
from typing import Any, Literal, Self, get_args

from rocketd.client.errors import IllegalOptionError
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import Frame

What = Literal["request", "answer", "connection"]
"""The thing to lose: the request before it is handled, the answer after it was handled, or the connection."""

GROUPS: dict[str, tuple[RequestCode, ...]] = {
    "send": (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
    ),
    "pull": (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE),
    "heartbeat": (RequestCode.HEART_BEAT,),
    "route": (RequestCode.GET_ROUTEINFO_BY_TOPIC,),
    "commit": (RequestCode.UPDATE_CONSUMER_OFFSET,),
    "retry": (RequestCode.CONSUMER_SEND_MSG_BACK,),
    "end": (RequestCode.END_TRANSACTION,),
}
"""Short names of groups of requests."""


class Drop:
    """One order to lose messages. It ends after ``times`` losses, by ``end``, or with its with block."""

    def __init__(
        self, codes: frozenset[int], times: int | None, rate: float, seed: int, what: What, ended: Callable[[Any], None]
    ) -> None:
        self.dropped = 0
        """Number of losses so far."""
        self._codes = codes
        self._left = times
        self._rate = rate
        self._random = Random(seed)
        self.what = what
        self._ended = ended

    def takes(self, code: int) -> bool:
        """Return whether a request of this code, or its answer, is lost. Called once for each."""
        if self._left == 0 or (self._codes and code not in self._codes) or self._random.random() >= self._rate:
            return False
        self.dropped += 1
        if self._left is not None:
            self._left -= 1
            if not self._left:
                self.end()
        return True

    def end(self) -> None:
        """Stop losing."""
        self._left = 0
        self._ended(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()


class Faults:
    """The active orders. ``dispatching`` belongs to the servers' reactor, everything else to any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._drops: tuple[Drop, ...] = ()

    def drop(
        self,
        requests: Sequence[str | int],
        *,
        times: int | None = None,
        rate: float = 1.0,
        seed: int = 0,
        what: What = "request",
    ) -> Drop:
        """Lose requests of these codes or names from now on, or all of them.

        Raises IllegalOptionError for an unknown name and for invalid values.
        """
        if what not in get_args(What):
            raise IllegalOptionError(f"what={what!r}: accepted is {', '.join(map(repr, get_args(What)))}")
        if times is not None:
            check_number("times", times, 1)
        if not isinstance(rate, int | float) or not 0 <= rate <= 1:
            raise IllegalOptionError(f"rate={rate!r}: accepted is a probability from 0 to 1")
        codes = frozenset(code for request in requests for code in codes_of(request))
        drop = Drop(codes, times, rate, seed, what, self._remove)
        with self._lock:
            self._drops = (*self._drops, drop)
        return drop

    def clear(self) -> None:
        """Stop losing."""
        for drop in self._drops:
            drop.end()

    def _remove(self, drop: Drop) -> None:
        with self._lock:
            self._drops = tuple(other for other in self._drops if other is not drop)

    def dispatching(self, dispatch: Callable[[Any, list[Frame]], None]) -> Callable[[Any, list[Frame]], None]:
        """Wrap a server's dispatch function with the faults."""

        def faulty(connection: Any, frames: list[Frame]) -> None:
            if not self._drops:
                dispatch(connection, frames)
                return
            kept: list[Frame] = []
            for frame in frames:
                what = self._fate(frame)
                if what is None:
                    kept.append(frame)
                elif what == "answer":
                    dispatch(_Deaf(connection), [frame])
                elif what == "connection":
                    connection.abort()
                    return
            if kept:
                dispatch(connection, kept)

        return faulty

    def _fate(self, frame: Frame) -> What | None:
        command = RemotingCommand.decode(frame)
        if command.is_response:
            return None
        for drop in self._drops:
            if drop.takes(command.code):
                return drop.what
        return None


class _Deaf:
    """A connection that drops all answers."""

    def __init__(self, connection: object) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def send(self, command: RemotingCommand) -> None:
        """Drop it."""

    def write(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Drop it."""


def check_number(option: str, value: int, least: int) -> None:
    """Raise IllegalOptionError unless the value is a whole number from ``least`` on."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise IllegalOptionError(f"{option}={value!r}: accepted is a whole number from {least} on")


def codes_of(request: str | int) -> tuple[int, ...]:
    """Return the codes of a request, given by number, name in Apache's table, or short name.

    Raises IllegalOptionError.
    """
    if isinstance(request, int):
        return (request,)
    codes = GROUPS.get(request) if isinstance(request, str) else None
    if codes is not None:
        return codes
    try:
        return (RequestCode[request.upper()],)
    except (KeyError, AttributeError):
        names = ", ".join(GROUPS)
        raise IllegalOptionError(
            f"{request!r} is not a request: accepted are {names}, and the names of RequestCode"
        ) from None
