"""Named, bounded thread pools that run jobs: the frames of one socket read for one handler.

Counterpart: the executors of `BrokerController`, and `RequestTask` (Apache). A job is the unit of hand-off, because
handing single messages to threads costs more than handling them.

A pool is bounded by requests and by bytes. Above half of either, it pauses the connection that feeds it; it also pauses
a connection above its share. If the pool is full, the caller refuses requests. One-way requests cannot be refused, so
the caller has them held: their connection stays paused until the pool has space.
"""

from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Lock, RLock, Thread
from typing import Any, Protocol

from twisted.logger import Logger

from rocketd.remoting.errors import RequestError
from rocketd.remoting.interfaces import IConnection
from rocketd.remoting.limits.limit_log import LimitLog
from rocketd.remoting.serving.connection import Connection
from rocketd.remoting.serving.fair_queue import TurnKey, TurnQueue
from rocketd.remoting.wire.frame import Frame

DRAIN_LIMIT = 64
"""Jobs taken from the queue at a time by the only thread of a pool."""

_TURNS_AT_ONCE = 4
"""The same for a pool with turns: a newcomer waits for this many jobs of the others."""

_SHARES = 8
"""Divisor of the pool's bytes: above this share of one connection, reading from it is paused."""

_STUCK_SECONDS = 0.1
"""Interval of checks for stuck pools during a stop."""

_FRAME_OVERHEAD = 256
"""Memory overhead in bytes of a frame, for held jobs."""


class Pausable(Protocol):
    """The part of a connection used by a pool to slow its peer down. Reactor thread only."""

    address: str

    def pause_reading(self, reason: object) -> None:
        """Stop reading until every reason is dropped."""

    def resume_reading(self, reason: object) -> None:
        """Drop one pause reason. Reading resumes when none is left."""


class JobHandler(Protocol):
    """Handler run in a pool's threads."""

    def process_jobs(self, jobs: "Sequence[Job]") -> None:
        """Handle all frames of the jobs, in order, and answer them."""


class Job:
    """Frames of one read of one connection, for one handler.

    Immutable, except that the thread that takes or refuses it removes its frames. ``rest`` is the part left to the
    pool's thread if the reactor thread takes the job: the job itself if all frames stay, None if no frame does. It is
    set before the job is claimed.
    """

    __slots__ = ("_unclaimed", "connection", "frames", "handler", "received_ms", "rest", "size")

    def __init__(self, handler: JobHandler, connection: Connection, frames: list[Frame], received_ms: int) -> None:
        self.handler = handler
        self.connection = connection
        self.frames = frames
        self.received_ms = received_ms
        size = 0
        for frame in frames:
            size += len(frame[1]) + len(frame[2])
        self.size = size
        self.rest: Job | None = None
        self._unclaimed = [True]

    def claim(self) -> bool:
        """Claim the job, to handle or to refuse it. Return True for the first caller only. Any thread."""
        try:
            return self._unclaimed.pop()
        except IndexError:
            return False

    def split(self, stays: Callable[[Frame], bool]) -> "tuple[Job, Job | None]":
        """Divide an unclaimed job by its frames into (part taken, part that stays).

        The job itself is a part if it has all the frames.
        """
        if self.rest is self:
            return Job(self.handler, self.connection, [], self.received_ms), self
        kept = [frame for frame in self.frames if stays(frame)]
        if not kept:
            return self, None
        if len(kept) == len(self.frames):
            self.rest = self
            return Job(self.handler, self.connection, [], self.received_ms), self
        taken = [frame for frame in self.frames if not stays(frame)]
        rest = Job(self.handler, self.connection, kept, self.received_ms)
        rest.rest = rest
        return Job(self.handler, self.connection, taken, self.received_ms), rest


class PoolLoop(Protocol):
    """The event loop of a pool's thread (see ``lane``)."""

    def run(self) -> None:
        """Handle events and jobs until the pool stops. The pool's thread."""

    def wake(self) -> None:
        """End the wait for events. Any thread."""

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Run a function in the thread of the loop, between its events. Any thread."""

    def takes(self, job: Job) -> bool:
        """Take a job that does not have to wait in the queue. The thread that has read it."""

    def attract(self, connection: Connection) -> None:
        """Take over a connection. Reactor thread."""


class _Call:
    """A function to run in a pool's thread, as a job without frames."""

    __slots__ = ("connection", "frames", "function", "handler", "received_ms", "size")

    def __init__(self, function: Callable[[], None], connection: IConnection | None) -> None:
        self.handler = self
        self.function = function
        self.connection = connection
        self.frames: list[Frame] = []
        self.received_ms = 0
        self.size = 0

    def claim(self) -> bool:
        return True

    def process_jobs(self, jobs: Sequence[Any]) -> None:
        for job in jobs:
            job.function()


class Pool:
    """A queue of jobs and the threads that empty it.

    ``turns`` makes connections take turns. Without it, jobs are handled in the order of arrival. ``submit`` and ``hold``
    belong to the threads that read connections: the reactor thread and the lanes. ``call`` may be used from any thread.
    Counters are written under a lock.
    """

    _log = Logger()

    def __init__(
        self,
        name: str,
        *,
        call_from_thread: Callable[..., Any],
        threads: int = 1,
        max_requests: int = 10_000,
        max_bytes: int = 64 << 20,
        turns: TurnKey | None = None,
        limits: LimitLog | None = None,
    ) -> None:
        self.name = name
        self.max_requests = max_requests
        self.max_bytes = max_bytes
        self.max_per_connection = max_requests
        """Queued or running requests of one connection before reading from it is paused."""
        self.max_bytes_per_connection = max_bytes // _SHARES
        """Bytes of those requests."""
        self._limits = limits
        self._call_from_thread = call_from_thread
        self._queue: SimpleQueue[Any] | TurnQueue = SimpleQueue() if turns is None else TurnQueue(turns)
        self._thread_count = threads
        # Jobs taken by one of several threads are not available to the others.
        self._drain_limit = 1 if threads > 1 else DRAIN_LIMIT if turns is None else _TURNS_AT_ONCE
        self._threads: list[Thread] = []
        self._lock = Lock()
        self._reading = RLock()
        """Held by the thread that submits jobs, or looks whether connections may resume."""
        self.loop: PoolLoop | None = None
        """The event loop of the only thread, None if it waits for jobs alone."""
        self._requests_in = self._requests_out = 0
        self._bytes_in = self._bytes_out = 0
        self._handled_at_once = 0
        self._paused: set[Pausable] = set()
        self._shares: dict[Pausable, list[int]] = {}
        """Requests and bytes of each connection."""
        self._over: set[Pausable] = set()
        self._over_reason = f"too many requests in {name}"
        self._waiting: deque[Job] = deque()
        self._held: deque[Job] = deque()
        self._held_bytes = 0
        self.refusal: Callable[[], RequestError | None] | None = None
        """Called in the reactor thread: returns the error with which all new requests are refused, or None."""
        self.after_jobs: Callable[[bool], bool] | None = None
        """Called in the pool's thread after each round of jobs, with whether there is nothing else to do.

        Returns whether it has left something to do for later.
        """

    @property
    def threads(self) -> int:
        """Number of threads, also before the start."""
        return self._thread_count

    @property
    def queued_requests(self) -> int:
        """Number of queued or running requests."""
        return self._requests_in - self._requests_out

    @property
    def handled_requests(self) -> int:
        """Number of requests handled or refused since the start."""
        return self._requests_out + self._handled_at_once

    def waiting_requests(self, handler_type: type) -> int:
        """Return the number of requests waiting for handlers of one class. Any thread."""
        return sum([len(job.frames) for job in list(self._waiting) if isinstance(job.handler, handler_type)])

    @property
    def queued_bytes(self) -> int:
        """Bytes of those requests."""
        return self._bytes_in - self._bytes_out

    @property
    def held_bytes(self) -> int:
        """Bytes of held requests."""
        return self._held_bytes

    def head_wait_ms(self, now_ms: int) -> int:
        """Return how long the oldest job has waited, by the clock of ``received_ms``, 0 without one."""
        try:
            return max(0, now_ms - self._waiting[0].received_ms)
        except IndexError:
            return 0

    def start(self) -> None:
        """Start the threads, unless they run."""
        if not self._threads:
            run = self._run if self.loop is None else self.loop.run
            self._threads = [
                Thread(target=run, name=f"{self.name}-{n}", daemon=True) for n in range(self._thread_count)
            ]
            for thread in self._threads:
                thread.start()

    def stop(self, is_stuck: Callable[[Thread], bool] | None = None) -> bool:
        """Let the threads finish queued jobs, and wait for them. Not from a pool's own thread.

        ``is_stuck`` is called repeatedly about an unfinished thread. If it returns True, the thread is abandoned and
        the result is False.
        """
        self._release_held()
        threads, self._threads = self._threads, []
        left = False
        for _ in threads:
            self._put(None)
        for thread in threads:
            thread.join(None if is_stuck is None else _STUCK_SECONDS)
            while thread.is_alive():
                if is_stuck is not None and is_stuck(thread):
                    left = True
                    break
                thread.join(_STUCK_SECONDS)
        return not left

    def submit(self, job: Job) -> bool:
        """Queue a job. Return False if the pool is full: the caller answers. The thread that has read the job."""
        with self._reading:
            requests = self.queued_requests + len(job.frames)
            size = self.queued_bytes + job.size
            if requests > self.max_requests or (size > self.max_bytes and requests > len(job.frames)):
                return False
            if self._enqueue(job):
                self._pause_over(job.connection)
            if requests * 2 > self.max_requests or size * 2 > self.max_bytes:
                self._pause(job.connection)
            return True

    def hold(self, job: Job) -> bool:
        """Keep a job until the pool has space for it, and its connection paused. The thread that has read the job.

        Return False if too much is held: the job is lost.
        """
        size = job.size + _FRAME_OVERHEAD * len(job.frames)
        with self._reading:
            if self._held and self._held_bytes + size > self.max_bytes:
                return False
            self._held.append(job)
            self._held_bytes += size
            self._pause(job.connection)
            return True

    def take_waiting(
        self,
        received_before_ms: int,
        wanted: Callable[[Job], bool] = lambda _: True,
        stays: Callable[[Frame], bool] = lambda _: False,
    ) -> list[Job]:
        """Take the wanted jobs that were received before a time, by the clock of ``received_ms``, and still wait.

        The caller answers them instead of a thread. Frames that stay are left to the threads, in their place. Reactor
        thread only.
        """
        taken = []
        for job in list(self._waiting):
            if job.received_ms >= received_before_ms:
                break
            if not wanted(job):
                continue
            part, rest = job.split(stays)
            if rest is not job and self._take(job, rest):
                taken.append(part)
        if taken:
            self._count_out(taken)
        return taken

    def _take(self, job: Job, rest: Job | None) -> bool:
        """Claim a waiting job and leave its rest in its place. Return False if a thread was faster."""
        if rest is not None:
            # A thread that comes too late for the job looks for the rest, so the rest must be set before.
            try:
                self._waiting.insert(self._waiting.index(job), rest)
            except ValueError:
                return False
            job.rest = rest
        if job.claim():
            self._waiting.remove(job)
            if rest is not None:
                job.frames = []  # the queue keeps the job until a thread gets to it
            return True
        if rest is not None:
            self._waiting.remove(rest)
        return False

    def left_over(self) -> list[Job]:
        """Return the jobs not begun by a thread."""
        return list(self._waiting) + list(self._held)

    def call(self, function: Callable[[], None], connection: IConnection | None = None) -> None:
        """Run a function in a thread of this pool, after the queued jobs. Any thread.

        If connections take turns, only queued jobs of this connection (or of calls without one) come before it.
        """
        self._put(_Call(function, connection))

    def _put(self, item: Job | _Call | None) -> None:
        self._queue.put(item)
        if self.loop is not None:
            self.loop.wake()

    def _is_low(self) -> bool:
        return self.queued_requests * 4 <= self.max_requests and self.queued_bytes * 4 <= self.max_bytes

    def _enqueue(self, job: Job) -> bool:
        """Queue a job and return whether its connection exceeds its share."""
        connection = job.connection
        with self._lock:
            share = self._shares.get(connection)
            if share is None:
                share = self._shares[connection] = [0, 0]
            share[0] += len(job.frames)
            share[1] += job.size
            too_much = share[0] > self.max_per_connection or share[1] > self.max_bytes_per_connection
            self._requests_in += len(job.frames)
            self._bytes_in += job.size
        self._waiting.append(job)
        self._put(job)
        return too_much

    def _release_held(self) -> None:
        with self._reading:
            while self._held:
                self._enqueue(self._held.popleft())
            self._held_bytes = 0

    def _pause(self, connection: Pausable) -> None:
        self._paused.add(connection)
        connection.pause_reading(self)
        self._resume_if_low()

    def _pause_over(self, connection: Pausable) -> None:
        requests, size = self._shares.get(connection, (0, 0))
        if self._limits is not None and connection not in self._over:
            self._limits.reached(
                "connections paused for unanswered requests",
                "{address}: reading is paused: {requests} of its requests, {size} bytes, wait in the pool "
                "{pool}, the limits are {limit} (serverMaxUnansweredRequests) and {bytes_limit} bytes",
                address=connection.address,
                requests=requests,
                size=size,
                pool=self.name,
                limit=self.max_per_connection,
                bytes_limit=self.max_bytes_per_connection,
            )
        self._over.add(connection)
        connection.pause_reading(self._over_reason)
        self._resume_over()

    def _is_over(self, connection: Pausable) -> bool:
        requests, size = self._shares.get(connection, (0, 0))
        return requests * 2 > self.max_per_connection or size * 2 > self.max_bytes_per_connection

    def _resume_over(self) -> None:
        with self._reading:
            for connection in [each for each in self._over if not self._is_over(each)]:
                self._over.discard(connection)
                connection.resume_reading(self._over_reason)

    def _resume_if_low(self) -> None:
        with self._reading:
            while self._held and self._is_low():
                job = self._held.popleft()
                self._held_bytes -= job.size + _FRAME_OVERHEAD * len(job.frames)
                self._enqueue(job)
            if self._paused and self._is_low():
                paused, self._paused = self._paused, set()
                for connection in paused:
                    connection.resume_reading(self)

    # ------------------------------------------------------------ the pool's threads

    @property
    def has_waiting(self) -> bool:
        """Whether jobs wait in the queue, or for space in it. Any thread."""
        return bool(self._waiting or self._held)

    @property
    def has_queued(self) -> bool:
        """Whether jobs or calls wait in the queue, or the order to end. Any thread."""
        return not self._queue.empty()

    def _run(self) -> None:
        goes_on, has_left = True, False
        while goes_on:
            first = self._queue.get()
            if first is None:
                break
            jobs, goes_on = self.take_queued(first)
            self.handle(jobs)
            has_left = self.finish_round(idle=self._queue.empty())
        if has_left:
            self.finish_round(idle=True)

    def take_queued(self, *first: Any) -> tuple[list[Any], bool]:
        """Return the first job or call and those that wait in the queue, and whether the pool goes on after them."""
        jobs = list(first)
        try:
            while len(jobs) < self._drain_limit:
                job = self._queue.get_nowait()
                if job is None:
                    return jobs, False
                jobs.append(job)
        except Empty:
            pass
        return jobs, True

    def finish_round(self, idle: bool) -> bool:
        """Call ``after_jobs``. Return whether it has left something to do for later."""
        if self.after_jobs is not None:
            try:
                return self.after_jobs(idle)
            except Exception:
                self._log.failure("{pool}: the call after a round of requests failed", pool=self.name)
        return False

    def queue_all_but_first(self, jobs: list[Job]) -> list[Job]:
        """Queue jobs that have just been read, apart from the first ones with the same handler if the queue is empty.

        Return those, for `handle_at_once`.
        """
        end = 0
        if not self.has_queued:
            while end < len(jobs) and jobs[end].handler is jobs[0].handler:
                end += 1
        for job in jobs[end:]:
            self._enqueue(job)
        return jobs[:end]

    def handle_at_once(self, jobs: list[Job]) -> None:
        """Handle jobs of one handler that were not queued."""
        for job in jobs:
            self._handled_at_once += len(job.frames)
        try:
            jobs[0].handler.process_jobs(jobs)
        except BaseException:  # as in `_process`, without a call
            self._handler_failed()

    def _process(self, handler: JobHandler, jobs: list[Any]) -> None:
        try:
            handler.process_jobs(jobs)
        except BaseException:  # even sys.exit in a handler must not end the thread
            self._handler_failed()

    def _handler_failed(self) -> None:
        self._log.failure("{pool}: a handler of requests failed", pool=self.name)

    def handle(self, jobs: list[Any]) -> None:
        """Handle jobs and calls from the queue, unless another thread has claimed them."""
        at = 0
        handled: list[Any] = []
        while at < len(jobs):
            handler = jobs[at].handler
            end = at + 1
            while end < len(jobs) and jobs[end].handler is handler:
                end += 1
            group = []
            for job in jobs[at:end]:
                mine = job if job.claim() else job.rest
                if mine is None or (mine is not job and not mine.claim()):
                    continue
                if mine.frames:
                    self._waiting.remove(mine)  # the first, except for jobs taken by the reactor thread meanwhile
                group.append(mine)
            handled += group
            self._process(handler, group)
            at = end
        self._count_out(handled)
        if self._paused and self._is_low():
            self._call_from_thread(self._resume_if_low)

    def _count_out(self, jobs: Sequence[Job]) -> None:
        shares = self._shares
        with self._lock:
            self._requests_out += sum([len(job.frames) for job in jobs])
            self._bytes_out += sum([job.size for job in jobs])
            for job in jobs:
                if job.frames:
                    share = shares[job.connection]
                    share[0] -= len(job.frames)
                    share[1] -= job.size
                    if not share[0]:
                        del shares[job.connection]
        if self._over:
            self._call_from_thread(self._resume_over)
