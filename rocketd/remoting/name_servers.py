"""The list of name servers and which of them is asked, sans-io.

Answers to the name server half of Apache's NettyRemotingClient.
"""

from collections.abc import Iterable
from random import Random

_START_RANGE = 999


class NameServers:
    """Addresses in an order of their own; one is kept while it works, then the next takes its place."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._addresses: list[str] = []
        self._index = random.randrange(_START_RANGE)
        self.chosen: str | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses in the order in which they are asked."""
        return tuple(self._addresses)

    def update(self, addresses: Iterable[str]) -> bool:
        """Take a new list and mix it, unless it is empty or holds the same addresses; tell whether it was taken.

        The chosen one is dropped when it is no longer listed.
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
        """Choose the next address of the list, which may not be empty."""
        self._index += 1
        self.chosen = self._addresses[self._index % len(self._addresses)]
        return self.chosen
