"""Sessions of signed-in users, and the tokens that protect forms. Sans-io: the clock is given."""

import hmac
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from secrets import token_bytes, token_urlsafe
from typing import Final, Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T")

LONGEST_SECONDS: Final = 12 * 3600.0
"""Time after which a user must sign in again, even if the session is in use."""
FAILURES: Final = 10
"""Failed sign-ins as one account from one address within FAILURE_SECONDS, after which further ones are refused unseen."""
ADDRESS_FAILURES: Final = 100
"""Failed sign-ins from one address as any accounts within FAILURE_SECONDS, after which further ones are refused unseen."""
FAILURE_SECONDS: Final = 60.0
_REMEMBERED: Final = 10_000
"""Number of pairs, and of addresses, whose failures are remembered."""
_LONGEST: Final = 256
"""Compared characters of an access key."""


@dataclass(slots=True)
class _Session(Generic[T]):
    value: T
    began: float
    used: float


class Sessions(Generic[T]):
    """A bounded map of random session ids to values. If it is full, a new session ends the least recently used one.

    ``ended`` is called with the value of each session that ends. ``clock`` is in monotonic seconds.
    """

    def __init__(
        self, clock: Callable[[], float], idle_seconds: float, limit: int, ended: Callable[[T], object]
    ) -> None:
        self._clock = clock
        self._idle_seconds = idle_seconds
        self._limit = limit
        self._ended = ended
        self._sessions: OrderedDict[str, _Session[T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, value: T) -> str:
        """Return the id of a new session."""
        self.expire()
        while len(self._sessions) >= self._limit:
            self.end(next(iter(self._sessions)))
        now = self._clock()
        number = new_id()
        self._sessions[number] = _Session(value, now, now)
        return number

    def find(self, number: str | None) -> T | None:
        """Return the value of a session, which counts as used; None if it has ended."""
        self.expire()
        session = None if number is None else self._sessions.get(number)
        if number is None or session is None:
            return None
        session.used = self._clock()
        self._sessions.move_to_end(number)
        return session.value

    def end(self, number: str | None) -> None:
        """End a session, if it exists."""
        session = None if number is None else self._sessions.pop(number, None)
        if session is not None:
            self._ended(session.value)

    def expire(self) -> None:
        """End the sessions whose time is over."""
        now = self._clock()
        over = [
            number
            for number, session in self._sessions.items()
            if now - session.used >= self._idle_seconds or now - session.began >= LONGEST_SECONDS
        ]
        for number in over:
            self.end(number)

    def clear(self) -> None:
        """End all sessions."""
        for number in list(self._sessions):
            self.end(number)


class Tokens:
    """The tokens in forms. Each belongs to the id in a browser's cookie, and is not stored: it is derived from the id."""

    def __init__(self) -> None:
        self._key = token_bytes(32)

    def of(self, number: str) -> str:
        """Return the token for an id."""
        return hmac.new(self._key, number.encode(), "sha256").hexdigest()

    def fits(self, number: str | None, token: str | None) -> bool:
        """Return whether a token is that of the id."""
        if not number or not token:
            return False
        return hmac.compare_digest(self.of(number).encode(), token.encode("utf-8", "replace"))


class FailedLogins:
    """Counts failed sign-ins, so that secrets cannot be guessed quickly.

    They are counted by address and account: one user cannot lock out the others behind the same proxy.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_account: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()
        self._by_address: OrderedDict[str, deque[float]] = OrderedDict()

    def add(self, address: str, account: str) -> None:
        """Count a failure."""
        now = self._clock()
        _remember(self._by_account, (address, account[:_LONGEST]), FAILURES, now)
        _remember(self._by_address, address, ADDRESS_FAILURES, now)

    def are_many(self, address: str, account: str) -> bool:
        """Return whether sign-ins as an account from an address, or from this address at all, failed too often lately."""
        since = self._clock() - FAILURE_SECONDS
        return any(
            times is not None and len(times) == times.maxlen and times[0] > since
            for times in (self._by_account.get((address, account[:_LONGEST])), self._by_address.get(address))
        )


def _remember(table: OrderedDict[K, deque[float]], key: K, limit: int, now: float) -> None:
    times = table.setdefault(key, deque(maxlen=limit))
    times.append(now)
    table.move_to_end(key)
    if len(table) > _REMEMBERED:
        table.popitem(last=False)


def new_id() -> str:
    """Return a random id for a cookie."""
    return token_urlsafe(32)
