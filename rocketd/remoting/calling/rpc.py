"""The table of outstanding requests, sans-io: matches answers to requests.

Counterpart: `responseTable` of `NettyRemotingAbstract` (Apache). An entry leaves the table exactly once: by its answer,
by its caller giving up, or by a failure. Waiters are opaque to the table.
"""

from collections import OrderedDict
from enum import Enum
from typing import Generic, TypeVar

LATE_MEMORY = 1024
"""Number of abandoned requests remembered, to tell a late answer from an unsolicited one."""

W = TypeVar("W")


class Unmatched(Enum):
    """Reason why an answer has no request."""

    LATE = "its request was given up"
    CANCELLED = "its request was cancelled"
    UNKNOWN = "no such request was sent to that peer"


class PendingRequest(Generic[W]):
    """One request sent. ``owner`` is its connection, ``waiter`` gets its answer."""

    __slots__ = ("opaque", "owner", "timeout_ms", "waiter")

    def __init__(self, opaque: int, owner: object, timeout_ms: float, waiter: W) -> None:
        self.opaque = opaque
        self.owner = owner
        self.timeout_ms = timeout_ms
        self.waiter = waiter


class RequestTable(Generic[W]):
    """Requests by opaque, in the order of sending. Belongs to one thread."""

    def __init__(self) -> None:
        self._pending: dict[int, PendingRequest[W]] = {}
        self._given_up: OrderedDict[tuple[int, int], Unmatched] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, opaque: int, owner: object, timeout_ms: float, waiter: W) -> PendingRequest[W]:
        """Add a request about to be sent. Raises ValueError if its opaque is already outstanding."""
        if opaque in self._pending:
            raise ValueError(f"a request with opaque {opaque} is already outstanding")
        self._given_up.pop((id(owner), opaque), None)
        entry = self._pending[opaque] = PendingRequest(opaque, owner, timeout_ms, waiter)
        return entry

    def answer(self, opaque: int, owner: object) -> PendingRequest[W] | Unmatched:
        """Remove and return the request of an answer from ``owner``, or return why there is none.

        An answer over a connection other than the request's does not count.
        """
        entry = self._pending.get(opaque)
        if entry is not None and entry.owner is owner:
            del self._pending[opaque]
            return entry
        return self._given_up.pop((id(owner), opaque), Unmatched.UNKNOWN)

    def remove(self, entry: PendingRequest[W]) -> bool:
        """Remove a failed request. Return False if it was already removed."""
        if self._pending.get(entry.opaque) is not entry:
            return False
        del self._pending[entry.opaque]
        return True

    def give_up(self, entry: PendingRequest[W], why: Unmatched = Unmatched.LATE) -> bool:
        """Remove a request whose caller stopped waiting, and remember it for its answer. Return False if already
        removed.
        """
        if not self.remove(entry):
            return False
        self._given_up[id(entry.owner), entry.opaque] = why
        if len(self._given_up) > LATE_MEMORY:
            self._given_up.popitem(last=False)
        return True

    def forget(self, owner: object) -> list[PendingRequest[W]]:
        """Remove and return all requests of a closed connection, and drop its remembered ones."""
        entries = [entry for entry in self._pending.values() if entry.owner is owner]
        for entry in entries:
            del self._pending[entry.opaque]
        for key in [key for key in self._given_up if key[0] == id(owner)]:
            del self._given_up[key]
        return entries

    def clear(self) -> list[PendingRequest[W]]:
        """Remove everything, and remember the requests until their connections are closed."""
        entries = list(self._pending.values())
        self._pending.clear()
        for entry in entries:
            self._given_up[id(entry.owner), entry.opaque] = Unmatched.CANCELLED
        return entries
