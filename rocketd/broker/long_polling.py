"""Pulls that wait for a message.

Answers to Apache's PullRequestHoldService and NotifyMessageArrivingListener. A pull that found nothing is held until a
message arrives for it or its time is over; then it is run again and answered. The table belongs to the pull pool's one
thread. ``arrived`` is called by the reput thread: it only looks whether anybody waits and hands the rest over; since a
message may come between a pull's read and its being held, ``hold`` looks at the queue's end once more.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rocketd.remoting.headers import PullMessageRequestHeader
from rocketd.store.message import Arrival, MessageFilter

QueueKey = tuple[str, int]

LOOK_MS = 5_000
"""How often pulls are answered for messages that their filter does not take: so the group gets past these."""


class HeldPull(NamedTuple):
    """A pull that waits. ``deadline_ms`` is on the clock given to LongPolling."""

    request: Any
    header: PullMessageRequestHeader
    filter: MessageFilter
    deadline_ms: int


class LongPolling:
    """The pulls that wait, by queue. ``run_again`` answers one; ``call`` runs a function in the pull pool's thread."""

    def __init__(
        self,
        clock_ms: Callable[[], int],
        max_offset: Callable[[str, int], int],
        run_again: Callable[[HeldPull], None],
        call: Callable[[Callable[[], None]], None],
    ) -> None:
        self._clock_ms = clock_ms
        self._max_offset = max_offset
        self._run_again = run_again
        self._call = call
        self._held: dict[QueueKey, list[HeldPull]] = {}
        self._next_look_ms = clock_ms() + LOOK_MS

    @property
    def count(self) -> int:
        """How many pulls wait."""
        return sum(map(len, self._held.values()))

    # ------------------------------------------------------------ pull pool's thread

    def hold(self, pull: HeldPull) -> None:
        """Let a pull wait, unless what it waits for has come meanwhile."""
        header = pull.header
        key = (header.topic, header.queue_id)
        self._held.setdefault(key, []).append(pull)
        if self._max_offset(*key) > header.queue_offset:
            self._remove(key, pull)
            self._run_again(pull)

    def check(self) -> None:
        """Run again what has waited long enough, and forget the pulls of connections that are gone."""
        clock_ms = self._clock_ms()
        look = clock_ms >= self._next_look_ms
        if look:
            self._next_look_ms = clock_ms + LOOK_MS
        for key, pulls in list(self._held.items()):
            end = self._max_offset(*key) if look else 0
            for pull in list(pulls):
                over = pull.deadline_ms <= clock_ms or pull.request.connection.closed
                if over or end > pull.header.queue_offset:
                    self._remove(key, pull)
                    self._run_again(pull)

    def _wake(self, arrivals: Sequence[Arrival]) -> None:
        for arrival in arrivals:
            key = (arrival[0], arrival[1])
            for pull in list(self._held.get(key, ())):
                if arrival[2] > pull.header.queue_offset and _wants(pull.filter, arrival):
                    self._remove(key, pull)
                    self._run_again(pull)

    def _remove(self, key: QueueKey, pull: HeldPull) -> None:
        pulls = self._held[key]
        pulls.remove(pull)
        if not pulls:
            del self._held[key]

    # ------------------------------------------------------------ reput thread

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Tell that messages have become visible."""
        held = self._held
        if held:
            wanted = [arrival for arrival in arrivals if (arrival[0], arrival[1]) in held]
            if wanted:
                self._call(lambda: self._wake(wanted))


def _wants(wanted: MessageFilter, arrival: Arrival) -> bool:
    _, _, _, tags_code, store_timestamp, properties, bitmap = arrival
    if wanted.tags_codes is not None and tags_code not in wanted.tags_codes:
        return False
    if wanted.matches_unit is not None and not wanted.matches_unit(store_timestamp, bitmap):
        return False
    return wanted.matches is None or wanted.matches(properties)
