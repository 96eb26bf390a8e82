"""Runs ordinary processors: from the frames of a job to their answers.

Everything belongs to pool threads, unless it says otherwise.
"""

from collections.abc import Callable, Sequence
from functools import partial

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rocketd.remoting.interfaces import IRequestProcessor
from rocketd.remoting.serving.answers import Parts, RequestContext, ServerAnswers
from rocketd.remoting.serving.connection import Connection
from rocketd.remoting.serving.pools import Job, Pool
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import Frame

_JOINED = 1 << 16
"""Size in bytes up to which the answers to one job are joined into one buffer."""
_WRITTEN_TOGETHER = 1 << 18
"""Bytes of answers written before the next request of the job is handled."""


class CommandHandler:
    """Runs ordinary processors: decodes each frame, calls hooks and processor, sends the answers."""

    def __init__(self, answers: ServerAnswers, pool: Pool | None = None) -> None:
        """``pool`` is the pool that runs it, None if another handler calls it."""
        self.processors: dict[int, IRequestProcessor] = {}
        self._answers = answers
        self._pool = pool

    def process_jobs(self, jobs: Sequence[Job]) -> None:
        """Handle every frame of the jobs. Requests of a connection that does not read its answers are parked."""
        for job in jobs:
            answer_job(self._answers, self._pool, job, self.process_frame)

    def process_frame(self, connection: Connection, frame: Frame, received_ms: int) -> Parts:
        """Handle one frame. Return the encoded answer, () if there is none now."""
        request = self._answers.decode_request(connection, frame, self.processors)
        if request is None:
            return ()
        return self._process_command(connection, request, received_ms, self.processors[request.code])

    def _process_command(
        self, connection: Connection, request: RemotingCommand, received_ms: int, processor: IRequestProcessor
    ) -> Parts:
        answers = self._answers
        context = RequestContext(answers, connection, request, received_ms)
        try:
            answers.run_hooks(connection, request)
            response = processor.process(request, context)
            if isinstance(response, Deferred):
                answers.late.kept(context)
                answers.call_from_thread(self._answer_later, response, context)
                return ()
            if response is None:
                if not request.is_oneway:
                    answers.late.kept(context)
                return ()
            return answers.finish(context, response)
        except Exception as error:
            return answers.fail(connection, request, error)

    def _answer_later(self, response: Deferred[RemotingCommand], context: RequestContext) -> None:
        """Answer when the Deferred fires. Reactor thread."""

        def failed(failure: Failure) -> RemotingCommand:
            error = failure.value or RuntimeError("failed without an error")
            return self._answers.error_response(context.connection, context.request, error)

        def done(answer: RemotingCommand | None) -> None:
            if answer is not None:  # None: a plugin keeps the context
                context.answer(answer)

        response.addErrback(failed)
        response.addCallback(done)
        response.addErrback(
            lambda failure: self._answers.peer_log.failure(
                "no answer",
                "{address}: {request}: no answer",
                failure,
                address=context.connection.address,
                request=context.request,
            )
        )


def answer_job(
    answers: ServerAnswers, pool: Pool | None, job: Job, answer: Callable[[Connection, Frame, int], Parts]
) -> None:
    """Write the answer to each frame of a job, many with one write.

    As soon as the connection is behind with reading, the rest of the job is parked in ``pool``, if that is given.
    """
    connection = job.connection
    if answers.gave_up(connection):
        return
    parts: list[bytes | memoryview] = []
    size = 0
    is_written = True
    for index, frame in enumerate(job.frames):
        if is_written:
            is_written = False
            if connection.behind and pool is not None and park(answers, pool, job, index):
                break
        try:
            more = answer(connection, frame, job.received_ms)
        except Exception as error:
            if answers.frame_failed(connection, error):
                break
            continue
        parts += more
        size += sum(map(len, more))
        if size > _WRITTEN_TOGETHER:
            connection.write(parts)
            parts = []
            size = 0
            is_written = True
    if parts:
        connection.write(parts if size > _JOINED or len(parts) == 1 else (b"".join(parts),))


def park(answers: ServerAnswers, pool: Pool, job: Job, index: int) -> bool:
    """Park the requests of a job from ``index`` on until their connection has taken its answers.

    Return False if the connection has already taken them.
    """
    rest = Job(job.handler, job.connection, job.frames[index:], job.received_ms)
    parked: bool = job.connection.park(partial(_resubmit, answers, pool, rest))
    return parked


def _resubmit(answers: ServerAnswers, pool: Pool, job: Job, then: Callable[[], None]) -> None:
    """Submit parked requests again, and call a function after them. Thread that reads the connection."""
    if not pool.submit(job) and not pool.hold(job):
        answers.refuse_for(pool, job)
    pool.call(then, job.connection)
