"""Pulls that wait for a message.

Answers to Apache's PullRequestHoldService and NotifyMessageArrivingListener. A pull that found nothing is held until a
message arrives for it or its time is over; then it is run again and answered. The table belongs to the pull pool's one
thread. ``arrived`` is called by the reput thread: it only looks whether anybody waits and hands the rest over; since a
message may come between a pull's read and its being held, ``hold`` looks at the queue's end once more.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from rocketd.remoting.headers import PullMessageRequestHeader
from rocketd.store.message import Arrival, MessageFilter

QueueKey = tuple[str, int]

LOOK_MS = 5_000
"""How often pulls are answered for messages that their filter does not take: so the group gets past these."""

AT_ONCE = 64
"""Pulls that are run again before other requests of the pool have their turn."""


class HeldPull(NamedTuple):
    """A pull that waits. ``deadline_ms`` is on the clock given to LongPolling."""

    request: Any
    header: PullMessageRequestHeader
    filter: MessageFilter
    deadline_ms: int


class LongPolling:
    """The pulls that wait, by queue. ``run_again`` answers one; ``call`` runs a function in the pull pool's thread.

    If many are woken at once, connections take turns, and other requests of the pool come in between.
    """

    def __init__(
        self,
        clock_ms: Callable[[], int],
        max_offset: Callable[[str, int], int],
        run_again: Callable[[HeldPull], None],
        call: Callable[[Callable[[], None]], None],
        max_held: int = 200_000,
        max_of_connection: int = 10_000,
    ) -> None:
        self._clock_ms = clock_ms
        self._max_offset = max_offset
        self._run_again = run_again
        self._call = call
        self.max_held = max_held
        self.max_of_connection = max_of_connection
        self._held: dict[QueueKey, list[HeldPull]] = {}
        self._count = 0
        self._count_of: Counter[int] = Counter()
        self._woken: dict[int, deque[HeldPull]] = {}
        self._next_look_ms = clock_ms() + LOOK_MS

    @property
    def count(self) -> int:
        """How many pulls wait."""
        return self._count

    # ------------------------------------------------------------ pull pool's thread

    def hold(self, pull: HeldPull) -> bool:
        """Let a pull wait, unless its message has come meanwhile. False if too many pulls wait already."""
        header = pull.header
        connection = id(pull.request.connection)
        if self._count >= self.max_held or self._count_of[connection] >= self.max_of_connection:
            return False
        key = (header.topic, header.queue_id)
        self._held.setdefault(key, []).append(pull)
        self._count += 1
        self._count_of[connection] += 1
        if self._max_offset(*key) > header.queue_offset:
            self._take(key, lambda held: held is pull)
            self._run_again(pull)
        return True

    def check(self) -> None:
        """Run again what has waited long enough, and forget the pulls of connections that are gone."""
        now_ms = self._clock_ms()
        look = now_ms >= self._next_look_ms
        if look:
            self._next_look_ms = now_ms + LOOK_MS

        def is_over(pull: HeldPull) -> bool:
            over = pull.deadline_ms <= now_ms or pull.request.connection.closed
            return over or end > pull.header.queue_offset

        over: list[HeldPull] = []
        for key in list(self._held):
            end = self._max_offset(*key) if look else 0
            over += self._take(key, is_over)
        self._run(over)

    def _wake(self, arrivals: Sequence[Arrival]) -> None:
        woken: list[HeldPull] = []
        for arrival in arrivals:
            woken += self._take((arrival[0], arrival[1]), partial(_is_for, arrival))
        self._run(woken)

    def _take(self, key: QueueKey, wanted: Callable[[HeldPull], bool]) -> list[HeldPull]:
        """Take pulls of a queue out of the table."""
        pulls = self._held.get(key)
        if pulls is None:
            return []
        taken: list[HeldPull] = []
        left: list[HeldPull] = []
        for pull in pulls:
            (taken if wanted(pull) else left).append(pull)
        if not taken:
            return taken
        if left:
            self._held[key] = left
        else:
            del self._held[key]
        self._count -= len(taken)
        for pull in taken:
            connection = id(pull.request.connection)
            self._count_of[connection] -= 1
            if not self._count_of[connection]:
                del self._count_of[connection]
        return taken

    def _run(self, pulls: Sequence[HeldPull]) -> None:
        if not self._woken and len(pulls) <= AT_ONCE:
            for pull in pulls:
                self._run_again(pull)
            return
        idle = not self._woken
        for pull in pulls:
            self._woken.setdefault(id(pull.request.connection), deque()).append(pull)
        if idle:
            self._run_some()

    def _run_some(self) -> None:
        """Run some of the woken pulls, one of each connection by turns, and the others after other requests."""
        for _ in range(AT_ONCE):
            if not self._woken:
                return
            connection = next(iter(self._woken))
            pulls = self._woken.pop(connection)
            pull = pulls.popleft()
            if pulls:
                self._woken[connection] = pulls
            self._run_again(pull)
        if self._woken:
            self._call(self._run_some)

    # ------------------------------------------------------------ reput thread

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Tell that messages have become visible."""
        held = self._held
        if held:
            wanted = [arrival for arrival in arrivals if (arrival[0], arrival[1]) in held]
            if wanted:
                self._call(lambda: self._wake(wanted))


def _is_for(arrival: Arrival, pull: HeldPull) -> bool:
    return bool(arrival[2] > pull.header.queue_offset) and _wants(pull.filter, arrival)


def _wants(wanted: MessageFilter, arrival: Arrival) -> bool:
    _, _, _, tags_code, store_timestamp, properties, bitmap = arrival
    if wanted.tags_codes is not None and tags_code not in wanted.tags_codes:
        return False
    if wanted.matches_unit is not None and not wanted.matches_unit(store_timestamp, bitmap):
        return False
    return wanted.matches is None or wanted.matches(properties)
