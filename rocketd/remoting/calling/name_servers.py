"""The list of name servers and the current choice, sans-io.

Counterpart: the name server half of `NettyRemotingClient` (Apache).
"""

from collections.abc import Iterable
from random import Random

_START_RANGE = 999


class NameServers:
    """Shuffled addresses. The chosen one is kept while it works, then the next is chosen."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._addresses: list[str] = []
        self._index = random.randrange(_START_RANGE)
        self.chosen: str | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses in the order of use."""
        return tuple(self._addresses)

    def update(self, addresses: Iterable[str]) -> bool:
        """Set and shuffle a new list, unless it is empty or has the same addresses. Return whether it was taken.

        The choice is dropped if it is no longer listed.
        """
        wanted = list(dict.fromkeys(addresses))
        if not wanted or set(wanted) == set(self._addresses):
            return False
        self._random.shuffle(wanted)
        self._addresses = wanted
        if self.chosen not in wanted:
            self.chosen = None
        return True

    def choose_next(self) -> str:
        """Choose the next address of the list. The list must not be empty."""
        self._index += 1
        self.chosen = self._addresses[self._index % len(self._addresses)]
        return self.chosen
