"""The table of outstanding requests, sans-io: which answer belongs to which request.

Answers to the responseTable of Apache's NettyRemotingAbstract. An entry leaves the table exactly once: by its answer, by
its caller giving up, by a failure, or by the scan. Time is passed in; who waits is not looked at.
"""

from collections import OrderedDict
from enum import Enum
from typing import Generic, TypeVar

EXPIRY_GRACE_MS = 1000
"""Milliseconds that a request may be over its timeout before the scan removes it."""

LATE_MEMORY = 1024
"""How many requests that were given up are remembered, to tell a late answer from one nobody asked for."""

W = TypeVar("W")


class Unmatched(Enum):
    """Why an answer has no request."""

    LATE = "its request was given up"
    CANCELLED = "its request was cancelled"
    UNKNOWN = "no such request was sent to that peer"


class PendingRequest(Generic[W]):
    """One request that was sent. ``owner`` is the connection it went to, ``waiter`` who gets its answer."""

    __slots__ = ("began_ms", "opaque", "owner", "timeout_ms", "waiter")

    def __init__(self, opaque: int, owner: object, timeout_ms: float, began_ms: float, waiter: W) -> None:
        self.opaque = opaque
        self.owner = owner
        self.timeout_ms = timeout_ms
        self.began_ms = began_ms
        self.waiter = waiter


class RequestTable(Generic[W]):
    """Requests by opaque, in the order in which they were sent. Belongs to one thread."""

    def __init__(self) -> None:
        self._pending: dict[int, PendingRequest[W]] = {}
        self._given_up: OrderedDict[tuple[int, int], Unmatched] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, opaque: int, owner: object, timeout_ms: float, now_ms: float, waiter: W) -> PendingRequest[W]:
        """Enter a request that is about to be sent. Raises ValueError when its opaque is outstanding already."""
        if opaque in self._pending:
            raise ValueError(f"a request with opaque {opaque} is outstanding already")
        self._given_up.pop((id(owner), opaque), None)
        entry = self._pending[opaque] = PendingRequest(opaque, owner, timeout_ms, now_ms, waiter)
        return entry

    def answer(self, opaque: int, owner: object) -> PendingRequest[W] | Unmatched:
        """Take out the request that an answer from ``owner`` belongs to, or say why there is none.

        An answer that comes over another connection than its request went is not its answer.
        """
        entry = self._pending.get(opaque)
        if entry is not None and entry.owner is owner:
            del self._pending[opaque]
            return entry
        return self._given_up.pop((id(owner), opaque), Unmatched.UNKNOWN)

    def remove(self, entry: PendingRequest[W]) -> bool:
        """Take out a request that failed; False when it was out already."""
        if self._pending.get(entry.opaque) is not entry:
            return False
        del self._pending[entry.opaque]
        return True

    def give_up(self, entry: PendingRequest[W], why: Unmatched = Unmatched.LATE) -> bool:
        """Take out a request whose caller waits no longer, but know its answer when it comes; False when it was out."""
        if not self.remove(entry):
            return False
        self._given_up[id(entry.owner), entry.opaque] = why
        if len(self._given_up) > LATE_MEMORY:
            self._given_up.popitem(last=False)
        return True

    def expire(self, now_ms: float) -> list[PendingRequest[W]]:
        """Take out all requests that are over their timeout by EXPIRY_GRACE_MS or more."""
        expired = [e for e in self._pending.values() if e.began_ms + e.timeout_ms + EXPIRY_GRACE_MS <= now_ms]
        for entry in expired:
            self.give_up(entry)
        return expired

    def forget(self, owner: object) -> list[PendingRequest[W]]:
        """Take out all requests of a closed connection, and what is remembered of it."""
        entries = [entry for entry in self._pending.values() if entry.owner is owner]
        for entry in entries:
            del self._pending[entry.opaque]
        for key in [key for key in self._given_up if key[0] == id(owner)]:
            del self._given_up[key]
        return entries

    def clear(self) -> list[PendingRequest[W]]:
        """Take out everything, but know the answers that come before their connections are closed."""
        entries = list(self._pending.values())
        self._pending.clear()
        for entry in entries:
            self._given_up[id(entry.owner), entry.opaque] = Unmatched.CANCELLED
        return entries
