"""Forked processes: the child must make new clients, and may never wait for the parent's.

A started client lives in a thread or loop of its process. In a forked child this thread is gone and the sockets belong to
the parent. So the child closes its copies and forgets everything shared, and a call of a parent's client fails at once.
"""

import os
from collections.abc import Callable

from twisted.logger import Logger

from rocketd.client.errors import ForkedClientError

_log = Logger()
_pid = os.getpid()
_forks = 0
_resets: list[Callable[[], None]] = []


class ForkGuard:
    """Tells whether a client may be used in this process. Any thread may call it.

    A client not started before the fork may be started and used in the child.
    """

    __slots__ = ("_forks", "_pid", "_what")

    def __init__(self, what: str = "client") -> None:
        self._what = what
        self._forks: int | None = None
        self._pid = 0

    def begin(self) -> None:
        """Mark the client as started: it belongs to this process from now on."""
        self._forks = forks()
        self._pid = os.getpid()

    def end(self) -> None:
        """Mark the client as stopped: it no longer belongs to any process."""
        self._forks = None

    @property
    def forked(self) -> bool:
        """Whether the client was started in another process, from which this one was forked."""
        return self._forks is not None and self._forks != forks()

    def check(self) -> None:
        """Raise ForkedClientError if the client was started in another process."""
        if self.forked:
            raise ForkedClientError(
                f"this {self._what} was started in process {self._pid}, from which this one, {os.getpid()}, was forked:"
                " make a new one in the child, or start it only after the fork"
            )


def forks() -> int:
    """Return the number of forks between the first process that imported this module and this one."""
    if os.getpid() != _pid:
        _begin_child()  # forked without Python's hooks, as embedding servers may do
    return _forks


def at_fork_in_child(reset: Callable[[], None]) -> None:
    """Call a function in each forked child, in the order of registration, before any client is used there."""
    _resets.append(reset)


def _begin_child() -> None:
    global _pid, _forks
    if os.getpid() == _pid:
        return
    _pid = os.getpid()
    _forks += 1
    for reset in _resets:
        try:
            reset()
        except Exception:
            _log.failure("resources of the parent process were not released")


if hasattr(os, "register_at_fork"):  # only if processes can fork
    os.register_at_fork(after_in_child=_begin_child)
