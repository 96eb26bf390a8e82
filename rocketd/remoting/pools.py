"""Named, bounded thread pools that run jobs: all the frames of one socket read that one handler wants.

Answers to the executors of Apache's BrokerController and to RequestTask. A job is the unit of hand-over, because handing
single messages to threads costs more than handling them. A pool is bounded by requests and by bytes: above half of
either it pauses the connection that feeds it. Requests that come when it is full are refused by the caller. One-way
requests cannot be refused, so the caller has them held: their connection stays paused until the pool has room.
"""

from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, Protocol

from twisted.logger import Logger

from rocketd.remoting.errors import RequestError
from rocketd.remoting.frame import Frame

DRAIN_LIMIT = 64
"""Jobs that the only thread of a pool takes from its queue at a time."""

_STUCK_SECONDS = 0.1
"""How often it is asked at the stop whether a pool that is not done is stuck."""

_FRAME_OVERHEAD = 256
"""Bytes of memory that a frame takes besides its own, as counted for held jobs."""


class Pausable(Protocol):
    """The side of a connection that a pool uses to slow its peer down. Reactor thread only."""

    def pause_reading(self, reason: object) -> None:
        """Stop reading until every reason is taken back."""

    def resume_reading(self, reason: object) -> None:
        """Take a reason back."""


class JobHandler(Protocol):
    """What runs in a pool's threads."""

    def process_jobs(self, jobs: "Sequence[Job]") -> None:
        """Handle all frames of the jobs, in order, and answer them."""


class Job:
    """Frames of one read of one connection, for one handler. Immutable but for who takes it; one that was refused has no
    frames any more.

    ``rest`` is the part that stays for the pool's thread if the reactor thread takes the job: the job itself if all of it
    stays, None if nothing does. It is set before the job is claimed.
    """

    __slots__ = ("_unclaimed", "connection", "frames", "handler", "received_ms", "rest", "size")

    def __init__(self, handler: JobHandler, connection: Any, frames: list[Frame], received_ms: int) -> None:
        self.handler = handler
        self.connection = connection
        self.frames = frames
        self.received_ms = received_ms
        self.size = sum([len(frame[1]) + len(frame[2]) for frame in frames])
        self.rest: Job | None = None
        self._unclaimed = [True]

    def claim(self) -> bool:
        """Take the job, to handle or to refuse it; False for all but the first. Any thread."""
        try:
            return self._unclaimed.pop()
        except IndexError:
            return False

    def split(self, stays: Callable[[Frame], bool]) -> "tuple[Job, Job | None]":
        """Divide an unclaimed job by its frames into the part that is taken and the part that stays.

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


class _Call:
    """A function to run in a pool's thread, dressed as a job without frames."""

    __slots__ = ("connection", "frames", "function", "handler", "received_ms", "size")

    def __init__(self, function: Callable[[], None]) -> None:
        self.handler = self
        self.function = function
        self.connection = None
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

    ``submit`` and the pausing belong to the reactor thread; ``call`` may be used from any thread. The counters of what
    went in are written by the reactor thread only, those of what came out under a lock by the pool's threads.
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
    ) -> None:
        self.name = name
        self.max_requests = max_requests
        self.max_bytes = max_bytes
        self.max_per_connection = max_requests
        """Requests of one connection that wait or are being handled before nothing more is read from it."""
        self._call_from_thread = call_from_thread
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._thread_count = threads
        # What one thread of several takes, the others cannot work on at the same time.
        self._drain_limit = DRAIN_LIMIT if threads == 1 else 1
        self._threads: list[Thread] = []
        self._lock = Lock()
        self._requests_in = self._requests_out = 0
        self._bytes_in = self._bytes_out = 0
        self._paused: set[Pausable] = set()
        self._requests_of: dict[Pausable, int] = {}
        self._over: set[Pausable] = set()
        self._over_reason = f"too many requests in {name}"
        self._waiting: deque[Job] = deque()
        self._held: deque[Job] = deque()
        self._held_bytes = 0
        self.refusal: Callable[[], RequestError | None] | None = None
        """Asked in the reactor thread whether all that comes now is refused, and why."""
        self.after_jobs: Callable[[bool], None] | None = None
        """Called in the pool's thread after each round of jobs, with whether its queue is empty; may not raise."""

    @property
    def threads(self) -> int:
        """How many threads it has, or will have when it runs."""
        return self._thread_count

    @property
    def queued_requests(self) -> int:
        """Requests that wait or are being handled."""
        return self._requests_in - self._requests_out

    def waiting_requests(self, handler_type: type) -> int:
        """Requests that wait for handlers of one class. Any thread."""
        return sum([len(job.frames) for job in list(self._waiting) if isinstance(job.handler, handler_type)])

    @property
    def queued_bytes(self) -> int:
        """Bytes of those requests."""
        return self._bytes_in - self._bytes_out

    @property
    def held_bytes(self) -> int:
        """Bytes of requests that wait for room."""
        return self._held_bytes

    def head_wait_ms(self, now_ms: int) -> int:
        """How long the oldest job has waited for its turn, by the clock of ``received_ms``; 0 when none waits."""
        try:
            return max(0, now_ms - self._waiting[0].received_ms)
        except IndexError:
            return 0

    def start(self) -> None:
        """Start the threads, unless they run."""
        if not self._threads:
            self._threads = [
                Thread(target=self._run, name=f"{self.name}-{n}", daemon=True) for n in range(self._thread_count)
            ]
            for thread in self._threads:
                thread.start()

    def stop(self, is_stuck: Callable[[], bool] | None = None) -> bool:
        """Let the threads finish what is queued, and wait for them. Not from a pool's own thread.

        ``is_stuck`` is asked again and again while they are not done. False if it said so: the threads are left behind.
        """
        self._release_held()
        threads, self._threads = self._threads, []
        for _ in threads:
            self._queue.put(None)
        for thread in threads:
            thread.join(None if is_stuck is None else _STUCK_SECONDS)
            while thread.is_alive():
                if is_stuck is not None and is_stuck():
                    return False
                thread.join(_STUCK_SECONDS)
        return True

    def submit(self, job: Job) -> bool:
        """Queue a job. False when the pool is full: the caller answers. Reactor thread only."""
        requests = self.queued_requests + len(job.frames)
        size = self.queued_bytes + job.size
        if requests > self.max_requests or (size > self.max_bytes and requests > len(job.frames)):
            return False
        if self._enqueue(job) > self.max_per_connection:
            self._over.add(job.connection)
            job.connection.pause_reading(self._over_reason)
            self._resume_over()
        if requests * 2 > self.max_requests or size * 2 > self.max_bytes:
            self._pause(job.connection)
        return True

    def hold(self, job: Job) -> bool:
        """Keep a job that the pool has no room for, and its connection paused until it has. False if too much is held:
        the job is lost. Reactor thread only.
        """
        size = job.size + _FRAME_OVERHEAD * len(job.frames)
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
        """Take the wanted jobs that came before a time, by the clock of ``received_ms``, and wait still: the caller
        answers them, no thread will. Frames that stay are left to the threads, at their place. Reactor thread only.
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
        """Claim a waiting job and leave the rest of it in its place; False if a thread was faster."""
        if rest is not None:
            # A thread that comes too late for the job looks for the rest, so it must be known before.
            try:
                self._waiting.insert(self._waiting.index(job), rest)
            except ValueError:
                return False
            job.rest = rest
        if job.claim():
            self._waiting.remove(job)
            if rest is not None:
                job.frames = []  # the queue keeps the job until a thread comes to it
            return True
        if rest is not None:
            self._waiting.remove(rest)
        return False

    def left_over(self) -> list[Job]:
        """Return the jobs that no thread has begun."""
        return list(self._waiting) + list(self._held)

    def call(self, function: Callable[[], None]) -> None:
        """Run a function in a thread of this pool, after what is queued. Any thread."""
        self._queue.put(_Call(function))

    def _is_low(self) -> bool:
        return self.queued_requests * 4 <= self.max_requests and self.queued_bytes * 4 <= self.max_bytes

    def _enqueue(self, job: Job) -> int:
        """Queue a job and return how many requests of its connection there are."""
        connection, count = job.connection, len(job.frames)
        with self._lock:
            count = self._requests_of[connection] = self._requests_of.get(connection, 0) + count
        self._requests_in += len(job.frames)
        self._bytes_in += job.size
        self._waiting.append(job)
        self._queue.put(job)
        return count

    def _release_held(self) -> None:
        try:
            while True:
                self._enqueue(self._held.popleft())
        except IndexError:
            self._held_bytes = 0

    def _pause(self, connection: Pausable) -> None:
        self._paused.add(connection)
        connection.pause_reading(self)
        self._resume_if_low()

    def _is_over(self, connection: Pausable) -> bool:
        return self._requests_of.get(connection, 0) * 2 > self.max_per_connection

    def _resume_over(self) -> None:
        for connection in [each for each in self._over if not self._is_over(each)]:
            self._over.discard(connection)
            connection.resume_reading(self._over_reason)

    def _resume_if_low(self) -> None:
        while self._held and self._is_low():
            job = self._held.popleft()
            self._held_bytes -= job.size + _FRAME_OVERHEAD * len(job.frames)
            self._enqueue(job)
        if self._paused and self._is_low():
            paused, self._paused = self._paused, set()
            for connection in paused:
                connection.resume_reading(self)

    def _run(self) -> None:
        queue = self._queue
        while True:
            job = queue.get()
            if job is None:
                return
            jobs = [job]
            last = False
            try:
                while len(jobs) < self._drain_limit:
                    job = queue.get_nowait()
                    if job is None:
                        last = True
                        break
                    jobs.append(job)
            except Empty:
                pass
            self._handle(jobs)
            if self.after_jobs is not None:
                try:
                    self.after_jobs(queue.empty())
                except Exception:
                    self._log.failure("{pool}: what follows a round of requests failed", pool=self.name)
            if last:
                return

    def _handle(self, jobs: list[Any]) -> None:
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
                    self._waiting.remove(mine)  # the first, but for those that the reactor thread takes meanwhile
                group.append(mine)
            handled += group
            try:
                handler.process_jobs(group)
            except BaseException:  # nor may a handler that calls sys.exit end the thread
                self._log.failure("{pool}: a handler of requests failed", pool=self.name)
            at = end
        self._count_out(handled)
        if self._paused and self._is_low():
            self._call_from_thread(self._resume_if_low)

    def _count_out(self, jobs: Sequence[Job]) -> None:
        requests_of = self._requests_of
        with self._lock:
            self._requests_out += sum([len(job.frames) for job in jobs])
            self._bytes_out += sum([job.size for job in jobs])
            for job in jobs:
                if job.frames:
                    left = requests_of[job.connection] - len(job.frames)
                    if left:
                        requests_of[job.connection] = left
                    else:
                        del requests_of[job.connection]
        if self._over:
            self._call_from_thread(self._resume_over)
