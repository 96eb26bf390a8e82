"""Held pulls: long polling.

A pull without messages is held until one arrives or its time is over; then it runs again and is answered. The table
belongs to the holder of ``guard``, mostly the pull pool's one thread. The dispatching thread calls ``arrived``, which only
checks for held pulls and hands the rest over to the pool. A message may arrive between a pull's read and ``hold``; so
``hold`` checks the queue's end once more.

A few simple pulls are answered by the storage thread itself, right after it has made their messages visible
(``answers_after``): waking the pull pool's thread costs more than their answers.

Counterpart: `PullRequestHoldService`, `NotifyMessageArrivingListener` (Apache).
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from threading import Lock, get_ident
from typing import NamedTuple

from rocketd.remoting.headers.client import PullMessageRequestHeader
from rocketd.remoting.serving.request_decoder import DecodedRequest
from rocketd.store.format.message import Arrival, MessageFilter

QueueKey = tuple[str, int]
AfterJobs = Callable[[bool], bool]
"""The call after each round of a pool's jobs, see ``Pool.after_jobs``."""

LOOK_MS = 5_000
"""How often held pulls are run again even if their filter rejects the new messages. It moves the group past them."""

AT_ONCE = 64
"""The number of held pulls run again before other requests of the pool take their turn."""

HERE_LIMIT = 4
"""The number of arrivals, and of held pulls, that the storage thread handles itself after a dispatch."""

NEAR = 32
"""A pull is answered by the storage thread only if at most so many messages follow its offset."""


class PullRequest(DecodedRequest[PullMessageRequestHeader]):
    """A pull. The garbage collector sees it, because a held pull is part of a cycle with its connection."""


class HeldPull(NamedTuple):
    """A held pull. ``deadline_ms`` is on the clock given to LongPolling."""

    request: PullRequest
    filter: MessageFilter
    deadline_ms: int


class LongPolling:
    """The held pulls, by queue.

    ``run_again`` answers one of them; ``call`` runs a function in the pull pool's thread. If many are woken at once,
    connections take turns, and other requests of the pool run in between.

    Hold ``guard`` for `hold` and `check`, and whenever a pull runs.
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
        self.guard = Lock()
        self._storage_thread: int | None = None
        self._due: list[Arrival] = []
        """Arrivals for which the storage thread may answer pulls. Only that thread uses them."""

    @property
    def count(self) -> int:
        """The number of held pulls."""
        return self._count

    # ------------------------------------------------------------ holder of the guard

    def hold(self, pull: HeldPull) -> bool:
        """Hold a pull; run it again at once if a message has arrived meanwhile.

        False if a limit of held pulls is reached.
        """
        header = pull.request.header
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
        """Run again every pull whose time is over, and forget those of closed connections."""
        now_ms = self._clock_ms()
        look = now_ms >= self._next_look_ms
        if look:
            self._next_look_ms = now_ms + LOOK_MS

        def is_finished(pull: HeldPull) -> bool:
            over = pull.deadline_ms <= now_ms or pull.request.connection.closed
            return over or end > pull.request.header.queue_offset

        over: list[HeldPull] = []
        for key in list(self._held):
            end = self._max_offset(*key) if look else 0
            over += self._take(key, is_finished)
        self._run(over)

    def _wake(self, arrivals: Sequence[Arrival]) -> None:
        woken: list[HeldPull] = []
        for arrival in arrivals:
            woken += self._take((arrival[0], arrival[1]), partial(_is_for, arrival))
        self._run(woken)

    def _take(self, key: QueueKey, wanted: Callable[[HeldPull], bool]) -> list[HeldPull]:
        """Remove and return the pulls of a queue that satisfy ``wanted``."""
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
        """Run some of the woken pulls, connections taking turns. The rest follow after other requests of the pool."""
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
            self._call(self._run_more)

    # ------------------------------------------------------------ pull pool's thread

    def _run_more(self) -> None:
        with self.guard:
            self._run_some()

    def _wake_later(self, arrivals: Sequence[Arrival]) -> None:
        """Wake the pulls of some arrivals in the pull pool's thread. Any thread."""

        def wake() -> None:
            with self.guard:
                self._wake(arrivals)

        self._call(wake)

    def end(self, topics: Collection[str]) -> None:
        """Run again the pulls of topics that are deleted, in the pull pool's thread. Any thread."""

        def run() -> None:
            with self.guard:
                ended: list[HeldPull] = []
                for key in [key for key in self._held if key[0] in topics]:
                    ended += self._take(key, lambda _: True)
                self._run(ended)

        self._call(run)

    # ------------------------------------------------------------ storage thread

    def answers_after(self, after_jobs: AfterJobs, may_answer: Callable[[], bool]) -> AfterJobs:
        """Return a function that makes messages visible as ``after_jobs`` does, and then answers a few pulls itself.

        The storage thread calls it after each round of its jobs. ``may_answer`` returns whether pulls may run there.
        """

        def dispatch_and_answer(idle: bool) -> bool:
            self._storage_thread = get_ident()
            try:
                left = after_jobs(idle)
            finally:
                self._storage_thread = None
            if self._due:
                due, self._due = self._due, []
                if not (may_answer() and self._answer_here(due)):
                    self._wake_later(due)
            return left

        return dispatch_and_answer

    def _answer_here(self, arrivals: Sequence[Arrival]) -> bool:
        """Answer the pulls of some arrivals in this thread, unless they might take long. Return whether it did."""
        if not self.guard.acquire(blocking=False):
            return False
        try:
            is_short = not self._woken and self._are_short(arrivals)
            if is_short:
                self._wake(arrivals)
            return is_short
        finally:
            self.guard.release()

    def _are_short(self, arrivals: Sequence[Arrival]) -> bool:
        """Return whether the pulls of some arrivals are few, filter by tags at most, and read only new messages."""
        count = 0
        for arrival in arrivals:
            pulls = self._held.get((arrival[0], arrival[1]), ())
            count += len(pulls)
            if count > HERE_LIMIT:
                return False
            for request, wanted, _ in pulls:
                if wanted.matches is not None or wanted.matches_unit is not None:
                    return False
                if arrival[2] - request.header.queue_offset > NEAR:
                    return False
        return True

    # ------------------------------------------------------------ dispatching thread

    def is_awaited(self, topic: str, queue_id: int) -> bool:
        """Return whether a pull is held for a queue. Any thread."""
        return (topic, queue_id) in self._held

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Announce that messages have become visible."""
        held = self._held
        if held:
            wanted = [arrival for arrival in arrivals if (arrival[0], arrival[1]) in held]
            if not wanted:
                return
            if get_ident() == self._storage_thread and len(self._due) + len(wanted) <= HERE_LIMIT:
                self._due += wanted
            else:
                self._wake_later(wanted)


def _is_for(arrival: Arrival, pull: HeldPull) -> bool:
    return bool(arrival[2] > pull.request.header.queue_offset) and _wants(pull.filter, arrival)


def _wants(wanted: MessageFilter, arrival: Arrival) -> bool:
    _, _, _, tags_code, store_timestamp, properties, bitmap = arrival
    if wanted.tags_codes is not None and tags_code not in wanted.tags_codes:
        return False
    if wanted.matches_unit is not None and not wanted.matches_unit(store_timestamp, bitmap):
        return False
    return wanted.matches is None or wanted.matches(properties)
