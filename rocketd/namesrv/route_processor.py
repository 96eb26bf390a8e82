"""Answers route queries, the only frequent request of a name server.

Counterpart: `DefaultRequestProcessor.getRouteInfoByTopic` (Apache). It takes the whole queue at once and decodes JSON
requests in one pass. Other requests go the ordinary way: refused ones, binary headers, and all requests if hooks are
installed.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from zope.interface import implementer

from rocketd.namesrv.route_answers import RouteAnswers
from rocketd.remoting.errors import JSON_ERRORS, RequestError
from rocketd.remoting.headers.client import GetRouteInfoRequestHeader, read_header
from rocketd.remoting.interfaces import IJobProcessor, IRequestContext, IRequestProcessor
from rocketd.remoting.serving.answers import Parts
from rocketd.remoting.serving.command_jobs import CommandHandler, answer_job
from rocketd.remoting.serving.connection import Connection
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.serving.pools import Job, Pool
from rocketd.remoting.wire.codes import V4_9_4, LanguageCode, RequestCode, ResponseCode, SerializeType
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import Frame

FAQ: Final = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
"""Apache's addition to frequently discussed refusals."""


class _Fields(msgspec.Struct, rename="camel"):
    topic: str
    accept_standard_json_only: str = ""


class _RouteRequest(msgspec.Struct, rename="camel"):
    """A route request's JSON header, only the fields needed for its answer."""

    opaque: int
    flag: int
    version: int
    language: str
    ext_fields: _Fields


_decode = msgspec.json.Decoder(_RouteRequest).decode


@implementer(IJobProcessor, IRequestProcessor)
class RouteProcessor:
    """Looks up and sends routes. Pool threads. It has no state except that of RouteAnswers."""

    def __init__(self, answers: RouteAnswers, dispatcher: Dispatcher, pool: Pool) -> None:
        """``pool`` is the pool that runs it."""
        self._answers = answers
        self._dispatcher = dispatcher
        self._pool = pool
        self._commands = CommandHandler(dispatcher.answers)
        self._commands.processors[RequestCode.GET_ROUTEINFO_BY_TOPIC] = self

    def process_jobs(self, jobs: Sequence[Job]) -> None:
        """Answer all frames of the jobs. Queries of a connection that does not read its answers are parked."""
        for job in jobs:
            answer_job(self._dispatcher.answers, self._pool, job, self._answer)

    def _answer(self, connection: Connection, frame: Frame, received_ms: int) -> Parts:
        serialize_type, header, _ = frame
        if serialize_type == SerializeType.JSON and not self._dispatcher.answers.hooks:
            try:
                request = _decode(header)
            except JSON_ERRORS:
                request = None
            if request is not None and not request.flag:
                fields = request.ext_fields
                standard = request.version >= V4_9_4 or fields.accept_standard_json_only.lower() == "true"
                answer = self._answers.get(fields.topic, standard, request.language == "RUST", connection.address)
                if answer is not None:
                    found = answer.frame(request.opaque)
                    if len(found) <= self._dispatcher.answers.longest_answer:
                        return (found,)
        return self._commands.process_frame(connection, frame, received_ms)

    def process(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        """Answer one request, with TOPIC_NOT_EXIST if no known broker has the topic."""
        header = read_header(GetRouteInfoRequestHeader, request)
        standard = request.version >= V4_9_4 or header.accept_standard_json_only is True
        asker = context.connection.address
        answer = self._answers.get(header.topic, standard, request.language == LanguageCode.RUST, asker)
        if answer is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {header.topic}{FAQ}"
            )
        return RemotingCommand.response(body=answer.body)
