"""From frames to pools: finds the processor of each code, and submits its requests.

``dispatch`` runs in the thread that reads the connection and only peeks at the code. Decoding, hooks and processors run
in pool threads: see `command_jobs`. A peer's response to one of our own requests goes to the invoke layer.

Counterpart: `NettyRemotingAbstract.processRequestCommand` (Apache).
"""

from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Any, cast

from rocketd.remoting.errors import FrameError
from rocketd.remoting.interfaces import IRequestProcessor, IRPCHook
from rocketd.remoting.limits.address_guard import AddressGuard
from rocketd.remoting.limits.limit_log import LimitLog
from rocketd.remoting.serving.answers import ServerAnswers
from rocketd.remoting.serving.command_jobs import CommandHandler, park
from rocketd.remoting.serving.connection import Connection
from rocketd.remoting.serving.fair_queue import TurnKey, each_connection
from rocketd.remoting.serving.pools import Job, JobHandler, Pool
from rocketd.remoting.serving.third_party.guarded_processor import PluginProcessor, takes_jobs
from rocketd.remoting.serving.third_party.running_calls import PluginCalls
from rocketd.remoting.wire.codes import JSON_TYPE
from rocketd.remoting.wire.command import RemotingCommand, cannot_be_refused
from rocketd.remoting.wire.frame import Frame

Target = tuple[Pool, JobHandler]
"""The pool and the handler of a request code."""
_PREFIX_LENGTH = 12
_PREFIXES_LIMIT = 1024

_DECODE_POOL_BYTES = 8 << 20
"""Bytes of frames waiting for the decode pool: some seconds of its time at worst."""


class Dispatcher:
    """The table of processors, and the way of a request to them.

    ``register`` is used before the server starts, ``dispatch`` in the reactor thread and the lanes. ``clock`` returns the
    seconds used for ``received_ms``.
    """

    def __init__(
        self,
        call_from_thread: Callable[..., Any],
        hooks: Iterable[IRPCHook] = (),
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.answers = ServerAnswers(call_from_thread, hooks, clock)
        self.call_from_thread = call_from_thread
        self.clock = clock
        self._pools: dict[str, Pool] = {}
        self._started = False
        self._targets: dict[int, Target] = {}
        self._targets_by_prefix: dict[bytes, Target] = {}
        self._commands: dict[str, CommandHandler] = {}
        self._plugins: list[PluginProcessor] = []
        self.plugin_calls = PluginCalls(clock)
        """The running calls into third-party code."""
        self.plugin_stop_seconds = 10.0
        self._guards: dict[int, AddressGuard] = {}
        self._per_connection: int | None = None
        self.decode_pool = Pool(
            "decode",
            call_from_thread=call_from_thread,
            max_bytes=_DECODE_POOL_BYTES,
            turns=each_connection,
            limits=self.limits,
        )
        self._odd = self.decode_pool, _OddFrames(self, self.decode_pool)

    # ------------------------------------------------------------ set-up

    def add_pool(
        self,
        name: str,
        *,
        threads: int = 1,
        max_requests: int = 10_000,
        max_bytes: int = 64 << 20,
        turns: TurnKey | None = None,
    ) -> Pool:
        """Add a named pool. It starts at once if the others run. ``turns`` makes connections take turns in it."""
        pool = Pool(
            name,
            call_from_thread=self.call_from_thread,
            threads=threads,
            max_requests=max_requests,
            max_bytes=max_bytes,
            turns=turns,
            limits=self.limits,
        )
        if self._per_connection is not None:
            pool.max_per_connection = self._per_connection
        self._pools[name] = pool
        if self._started:
            pool.start()
        return pool

    def pool(self, name: str) -> Pool:
        """Return the pool of that name. An unknown one is created with one thread."""
        return self._pools.get(name) or self.add_pool(name)

    def limit_connections(self, requests: int) -> None:
        """Limit the unanswered requests of each connection: in each pool, and those that are answered later."""
        self._per_connection = self.answers.late.max_per_connection = requests
        for pool in self._all_pools():
            pool.max_per_connection = requests

    @property
    def limits(self) -> LimitLog:
        """The reached limits of the server."""
        return self.answers.limits

    @property
    def queued_bytes(self) -> int:
        """Bytes of the requests in all pools."""
        return sum([pool.queued_bytes + pool.held_bytes for pool in self._all_pools()])

    @property
    def pools(self) -> dict[str, Pool]:
        """All pools by name."""
        return self._pools

    def handles(self, code: int) -> bool:
        """Whether a processor is registered for a code."""
        return code in self._targets

    def guard(self, codes: Iterable[int], guard: AddressGuard) -> None:
        """Put a guard before the processors of some codes, for registrations from now on."""
        self._guards.update(dict.fromkeys(codes, guard))

    def refused_by_address(self) -> dict[str, int]:
        """Return the number of requests refused by each guard, by the name of its counter. Any thread."""
        return {guard.counter: guard.refused for guard in self._guards.values()}

    def register(self, code: int, processor: object, pool_name: str) -> None:
        """Register a processor for a code in a pool.

        Raises:

        - ValueError if the code is taken, or if its requests are guarded and the processor takes whole jobs,
        - TypeError if the processor provides neither IJobProcessor nor IRequestProcessor.
        """
        if self.handles(code):
            raise ValueError(f"request code {code} already has a processor")
        if isinstance(processor, PluginProcessor) and processor not in self._plugins:
            self._plugins.append(processor)
        if takes_jobs(processor):
            if code in self._guards:
                raise ValueError(
                    f"request code {code} is accepted from some addresses only: use process, not process_jobs"
                )
            handler = cast(JobHandler, processor)
        else:
            # One for each pool: a header that names two codes must not run a processor in another pool's thread.
            commands = self._commands.setdefault(pool_name, CommandHandler(self.answers, self.pool(pool_name)))
            guard = self._guards.get(code)
            commands.processors[code] = IRequestProcessor(processor) if guard is None else guard.before(processor)
            handler = commands
        self._targets[code] = (self.pool(pool_name), handler)

    def start(self) -> None:
        """Start all pools."""
        self._started = True
        self.plugin_calls.start()
        for pool in self._all_pools():
            pool.start()

    def stop(self) -> None:
        """Finish queued requests and stop all pools. Blocks: do not call it in the reactor thread.

        Calls into plugins still running after ``plugin_stop_seconds`` are logged and abandoned.
        """
        self._started = False
        self.begin_stop()
        calls = self.plugin_calls
        self.decode_pool.stop()
        for pool in self._pools.values():
            pool.stop(lambda thread: calls.is_stuck((thread.ident,)))
        if not calls.wait():
            for plugin in self._plugins:
                self.call_from_thread(plugin.cancel)

    def begin_stop(self) -> None:
        """Give plugins ``plugin_stop_seconds`` from now on. Call it before ``stop`` if other parts are stopped first."""
        self.plugin_calls.begin_stop(self.plugin_stop_seconds)

    def connection_lost(self, connection: Connection) -> None:
        """Forget the requests of a closed connection waiting for plugins. Reactor thread."""
        self.plugin_calls.connection_lost(connection)

    def _all_pools(self) -> list[Pool]:
        return [self.decode_pool, *self._pools.values()]

    # ------------------------------------------------------------ threads that read connections

    def dispatch(self, connection: Connection, frames: list[Frame]) -> None:
        """Submit the frames of one read to their pools, one job for each handler. Raises FrameError for a bad header."""
        received_ms = int(self.clock() * 1000)
        first = self._target(frames[0])
        if len(frames) == 1 or (first is not None and self._is_target_of_all(first, frames)):
            self._submit(first, connection, frames, received_ms)
            return
        groups: dict[Any, list[Frame]] = {}
        for frame in frames:
            groups.setdefault(self._target(frame), []).append(frame)
        for target, group in groups.items():
            self._submit(target, connection, group, received_ms)

    def _is_target_of_all(self, target: Target, frames: list[Frame]) -> bool:
        """Return whether all frames have the target of the first one."""
        serialize_type, header, _ = frames[0]
        prefix = header[:_PREFIX_LENGTH]
        for frame in frames:
            # JSON headers with equal beginnings have the same target. Clients mostly send one kind of request.
            same = frame[0] == serialize_type == JSON_TYPE and frame[1][:_PREFIX_LENGTH] == prefix
            if not same and self._target(frame) is not target:
                return False
        return True

    def _target(self, frame: Frame) -> Target | None:
        serialize_type, header, _ = frame
        if serialize_type == JSON_TYPE:
            prefix = header[:_PREFIX_LENGTH]
            target = self._targets_by_prefix.get(prefix)
            return target if target is not None else self._target_of_new_prefix(prefix)
        return self._targets.get(int.from_bytes(header[:2], "big"))

    def _target_of_new_prefix(self, prefix: bytes) -> Target | None:
        """Find the code in a header that begins like those of Java and Go. All others are decoded first."""
        if not prefix.startswith(b'{"code":'):
            return None
        digits, comma, _ = prefix[8:].partition(b",")
        target = self._targets.get(int(digits)) if comma and digits.isdigit() else None
        if target is not None and len(self._targets_by_prefix) < _PREFIXES_LIMIT:
            self._targets_by_prefix[prefix] = target
        return target

    def _submit(
        self,
        target: Target | None,
        connection: Connection,
        frames: list[Frame],
        received_ms: int,
    ) -> None:
        if target is None:
            frames = self._without_responses(connection, frames)
            if not frames:
                return
            target = self._odd
        pool, handler = target
        if pool.threads > 1 and len(frames) > 1:
            # The threads share the requests of one connection, too.
            for frame in frames:
                self._submit(target, connection, [frame], received_ms)
            return
        job = Job(handler, connection, frames, received_ms)
        loop = pool.loop
        if loop is not None:
            if loop.takes(job):
                return
            if connection.lane is None:
                loop.attract(connection)
        if pool.refusal is not None and (refusal := pool.refusal()) is not None:
            refused, oneway = job.split(cannot_be_refused)
            self.answers.refuse(refused, refusal, pool.name)
            if oneway is None:
                return
            job = oneway
        if not pool.submit(job):
            self._submit_singly(pool, job)

    def _submit_singly(self, pool: Pool, job: Job) -> None:
        """Submit those frames of a job that fit into the pool. The others are refused, or held if one-way."""
        kept: list[Frame] = []
        for frame in job.frames:
            oneway = cannot_be_refused(frame)
            if oneway and kept:  # keeps their order
                kept.append(frame)
                continue
            single = Job(job.handler, job.connection, [frame], job.received_ms)
            if len(job.frames) > 1 and pool.submit(single):
                continue
            if oneway:
                kept.append(frame)
            else:
                self.answers.refuse_for(pool, single)
        if kept and not pool.hold(Job(job.handler, job.connection, kept, job.received_ms)):
            self.answers.oneway_lost(
                len(kept), f"the {pool.name} pool and the connections that wait for it are full", "pool-full"
            )

    def _without_responses(self, connection: Connection, frames: list[Frame]) -> list[Frame]:
        """Handle the ordinary responses among frames without a peeked code, and return the other frames."""
        rest = []
        for frame in frames:
            response = RemotingCommand.decode_response(frame)
            if response is None:
                rest.append(frame)
            else:
                connection.call_reactor(self.answers.take_response, connection, response)
        return rest

    def target_of(self, code: int) -> Target | None:
        """Return pool and handler of a code. Any thread."""
        return self._targets.get(code)

    def submit_decoded(
        self, connection: Connection, groups: Sequence[tuple[Target, list[Frame]]], received_ms: int
    ) -> None:
        """Submit frames whose codes were found by the decode pool."""
        for target, frames in groups:
            self._submit(target, connection, frames, received_ms)

    def count_unhandled(self) -> None:
        """Count the one-way requests that arrived after the pools had stopped. Reactor thread only."""
        for pool in self._all_pools():
            lost = sum([cannot_be_refused(frame) for job in pool.left_over() for frame in job.frames])
            if lost:
                self.answers.oneway_lost(lost, "the server stops", "server-stops")


class _OddFrames:
    """Decodes frames with an unusual header or an unknown code. Thread of the decode pool."""

    def __init__(self, dispatcher: Dispatcher, pool: Pool) -> None:
        self._dispatcher = dispatcher
        self._pool = pool

    def process_jobs(self, jobs: Sequence[Job]) -> None:
        """Submit every frame to the pool of its code, or answer it."""
        for job in jobs:
            if self._dispatcher.answers.gave_up(job.connection):
                continue
            if job.connection.behind and park(self._dispatcher.answers, self._pool, job, 0):
                continue
            self._process(job)

    def _process(self, job: Job) -> None:
        dispatcher, connection = self._dispatcher, job.connection
        parts: list[bytes | memoryview] = []
        groups: list[tuple[Target, list[Frame]]] = []
        for frame in job.frames:
            try:
                command = RemotingCommand.decode(frame)
            except FrameError as error:
                if dispatcher.answers.frame_failed(connection, error):
                    break
                continue
            target = dispatcher.target_of(command.code)
            if command.is_response:
                dispatcher.call_from_thread(dispatcher.answers.take_response, connection, command)
            elif target is None:
                response = dispatcher.answers.not_supported(connection, command)
                if not command.is_oneway:
                    parts += response.encode_parts()
            elif groups and groups[-1][0] is target:
                groups[-1][1].append(frame)
            else:
                groups.append((target, [frame]))
        if parts:
            connection.write((b"".join(parts),))
        if groups:
            dispatcher.call_from_thread(dispatcher.submit_decoded, connection, groups, job.received_ms)
