"""Answers route queries, the one request of a name server that is frequent.

Answers to Apache's DefaultRequestProcessor.getRouteInfoByTopic. Takes the whole queue at once and decodes JSON requests in
one pass; what that refuses, binary headers, and all requests while hooks are installed go the ordinary way.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from zope.interface import implementer

from rocketd.namesrv.route_answers import RouteAnswers
from rocketd.remoting.codes import V4_9_4, LanguageCode, ResponseCode, SerializeType
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.dispatch import CommandHandler, Dispatcher, Parts
from rocketd.remoting.errors import JSON_ERRORS, RequestError
from rocketd.remoting.frame import Frame
from rocketd.remoting.headers import GetRouteInfoRequestHeader, read_header
from rocketd.remoting.interfaces import IJobProcessor
from rocketd.remoting.pools import Job

FAQ: Final = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
"""What Apache appends to refusals that its users ask about most."""


class _Fields(msgspec.Struct, rename="camel"):
    topic: str
    accept_standard_json_only: str = ""


class _RouteRequest(msgspec.Struct, rename="camel"):
    """A route request's header as JSON: what its answer depends on."""

    opaque: int
    flag: int
    version: int
    language: str
    ext_fields: _Fields


_decode = msgspec.json.Decoder(_RouteRequest).decode


@implementer(IJobProcessor)
class RouteProcessor:
    """Looks up and sends routes. Pool threads; it keeps nothing but what RouteAnswers keeps."""

    def __init__(self, answers: RouteAnswers, dispatcher: Dispatcher) -> None:
        self._answers = answers
        self._dispatcher = dispatcher
        self._ordinary = CommandHandler(dispatcher)

    def process_jobs(self, jobs: Sequence[Job]) -> None:
        """Answer all frames of the jobs, those of one job with one write."""
        for job in jobs:
            answers: list[bytes | memoryview] = []
            for frame in job.frames:
                try:
                    answers += self._answer(job, frame)
                except Exception as error:
                    if self._dispatcher.frame_failed(job.connection, error):
                        break
            if answers:
                job.connection.write(answers if len(answers) == 1 else (b"".join(answers),))

    def _answer(self, job: Job, frame: Frame) -> Parts:
        serialize_type, header, _ = frame
        if serialize_type == SerializeType.JSON and not self._dispatcher.hooks:
            try:
                request = _decode(header)
            except JSON_ERRORS:
                return self._answer_ordinarily(job, frame)
            if not request.flag:
                fields = request.ext_fields
                standard = request.version >= V4_9_4 or fields.accept_standard_json_only.lower() == "true"
                answer = self._answers.get(fields.topic, standard, request.language == "RUST")
                if answer is not None:
                    return (answer.frame(request.opaque),)
        return self._answer_ordinarily(job, frame)

    def _answer_ordinarily(self, job: Job, frame: Frame) -> Parts:
        command = RemotingCommand.decode(frame)
        if command.is_response:
            self._dispatcher.call_from_thread(self._dispatcher.take_response, job.connection, command)
            return ()
        return self._ordinary.process_frame(job.connection, frame, job.received_ms, self)

    def process(self, request: RemotingCommand, context: Any) -> RemotingCommand:
        """Answer one request; TOPIC_NOT_EXIST when no known broker has the topic."""
        header = read_header(GetRouteInfoRequestHeader, request)
        standard = request.version >= V4_9_4 or header.accept_standard_json_only is True
        answer = self._answers.get(header.topic, standard, request.language == LanguageCode.RUST)
        if answer is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {header.topic}{FAQ}"
            )
        return RemotingCommand.response(body=answer.body)
