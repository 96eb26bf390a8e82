"""Sends: SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320).

Runs in the send pool's one thread, which is the storage thread. It takes the whole queue at once, decodes, checks,
builds, appends all messages with one write, and answers.

Counterpart: `SendMessageProcessor` (Apache).
"""

from collections.abc import Callable, Sequence

from twisted.python.failure import Failure
from zope.interface import implementer

from rocketd.broker.base import problems
from rocketd.broker.base.hook_contexts import SendMessageContext
from rocketd.broker.base.message_hooks import MessageHooks
from rocketd.broker.send.answers import Request, SendAnswers, send_too_old
from rocketd.broker.send.durability import Durability
from rocketd.broker.send.half_messages import turn_into_half
from rocketd.broker.send.message_builder import BatchFormatError, MessageBuilder
from rocketd.broker.send.message_check import Destination, MessageCheck, added_flags, choose_queue
from rocketd.broker.send.parts import SendParts
from rocketd.broker.tables.new_name_durability import NewNameDurability
from rocketd.common import message_properties as props
from rocketd.common.sysflag import TRANSACTION_PREPARED
from rocketd.remoting import problems as remoting_problems
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers.client import (
    Header,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from rocketd.remoting.interfaces import IJobProcessor
from rocketd.remoting.serving.connection import Connection
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.serving.pools import Job
from rocketd.remoting.serving.request_decoder import RequestDecoder
from rocketd.remoting.wire.codes import SEND_CODES, RequestCode, ResponseCode
from rocketd.store.format.message import MessageInner, PutResult, PutStatus
from rocketd.store.queue.multi_dispatch import fault_of_further

SEND_HEADERS: dict[int, type[Header]] = {
    code: SendMessageRequestHeader if code == RequestCode.SEND_MESSAGE else SendMessageRequestHeaderV2
    for code in SEND_CODES
}
"""The header class of each send."""

_Stored = tuple[Request, Sequence[PutResult], MessageInner]
"""A send whose messages are in the log, with the last result PUT_OK; the message is the first one."""


@implementer(IJobProcessor)
class SendMessageProcessor:
    """Stores messages of producers. Everything except the constructor belongs to the storage thread."""

    def __init__(self, broker: SendParts) -> None:
        settings = broker.settings
        self._broker = broker
        self._settings = settings
        self._has_further_queues: bool = settings.store.enable_multi_dispatch
        self._dispatcher: Dispatcher = broker.dispatcher
        self._check = MessageCheck(broker)
        self._builder: MessageBuilder = broker.message_builder
        self._answers = SendAnswers(broker)
        self._hooks: MessageHooks = broker.message_hooks
        self._durability = Durability(broker)
        self._waits = self._durability.needed
        self._flushes: bool = settings.store.flush_disk_type == "SYNC_FLUSH"
        self._new_name_durability: NewNameDurability = broker.topics.new_name_durability
        self._new_topics = self._new_name_durability.names
        self._requests = RequestDecoder(self._dispatcher, SEND_HEADERS, Request)
        self._pool = self._dispatcher.pool("send")

    def process_jobs(self, jobs: Sequence[Job]) -> None:
        """Store the messages of all jobs and answer them.

        All single messages share one write, unless a batch comes between.
        """
        now_ms = self._broker.now_ms()
        clock_ms = self._broker.clock_ms()
        answers: list[tuple[Connection, bytes]] = []
        requests: list[Request] = []
        messages: list[MessageInner] = []
        self._answers.refresh()
        self._requests.refresh()
        decode = self._requests.decode
        has_hooks = bool(self._hooks.send)
        limit_ms = self._settings.broker.wait_time_mills_in_send_queue
        for job in jobs:
            connection = job.connection
            age_ms = clock_ms - job.received_ms
            is_late = age_ms > limit_ms
            for frame in job.frames:
                try:
                    request = decode(connection, frame)
                except Exception as error:
                    if self._dispatcher.answers.frame_failed(connection, error):
                        break
                    continue
                if request is None:
                    continue
                if has_hooks:
                    self._call_hooks(request, frame[2])
                try:
                    if is_late and not request.is_oneway:
                        raise self._too_old(age_ms)
                    if request.header.batch:
                        self._store_singles(requests, messages, answers)
                        self._store_batch(request, frame[2], now_ms, answers)
                    else:
                        messages.append(self._build_single(request, frame[2], now_ms))
                        requests.append(request)
                except Exception as error:
                    self._refuse(request, error, answers)
        self._store_singles(requests, messages, answers)
        if len(jobs) == 1 or self._pool.loop is not None:
            write_answers(answers)
        else:
            self._deliver(answers, here=False)

    def _call_hooks(self, request: Request, body: bytes) -> None:
        header = request.header
        context = request.context = SendMessageContext(
            producer_group=header.producer_group,
            topic=header.topic,
            queue_id=header.queue_id,
            properties=header.properties or "",
            body_length=len(body),
            born_host=request.connection.address,
            born_timestamp=header.born_timestamp,
            broker_address=self._broker.address,
            is_batch=header.batch,
        )
        self._hooks.before_send(context)
        header.properties = context.properties

    def _refuse(self, request: Request, error: Exception, answers: list[tuple[Connection, bytes]]) -> None:
        """Answer a failed request. An unexpected error is logged and does not affect the other requests."""
        if not isinstance(error, RequestError):
            self._dispatcher.answers.peer_log.failure(
                f"failed send: {type(error).__name__}",
                "{address}: a send to {topic} failed",
                Failure(error),
                address=request.connection.address,
                topic=request.header.topic,
            )
            code = RequestCode.SEND_BATCH_MESSAGE if request.header.batch else RequestCode.SEND_MESSAGE_V2
            error = remoting_problems.PROCESSOR_FAILED.error(code=int(code))
        elif error.code == ResponseCode.SYSTEM_BUSY and not request.is_oneway:
            self._dispatcher.answers.was_busy("send", error)
        self._answers.refused(request, error, answers)

    # ------------------------------------------------------------ build

    def _too_old(self, age_ms: int) -> RequestError:
        queued = self._dispatcher.pool("send").queued_requests
        return send_too_old(self._settings.broker, age_ms, queued, self._broker.slowest_recent_step())

    def _build_single(self, request: Request, body: bytes, now_ms: int) -> MessageInner:
        """Check a send and build its message. Raises RequestError."""
        header = request.header
        connection = request.connection
        destination = self._check.destination(header, request.version, connection.address, now_ms)
        request.queue_id = destination.queue_id
        if header.properties and props.TRAN_MSG in header.properties and self._check.is_half_message(header):
            header.sys_flag |= TRANSACTION_PREPARED  # prevents a delay before the commit
            message = self._builder.single(header, destination, connection.host, body, now_ms)
            turn_into_half(message, header.properties, destination.topic, destination.queue_id)
        else:
            message = self._builder.single(header, destination, connection.host, body, now_ms)
        if self._has_further_queues and (fault := fault_of_further(message.properties)) is not None:
            # Without this check the store would report the fault only after a delayed message reaches its topic.
            limit = self._settings.store.max_message_size
            raise problems.MESSAGE_ILLEGAL.error(limit=limit, found=fault)
        return message

    def _store_batch(self, request: Request, body: bytes, now_ms: int, answers: list[tuple[Connection, bytes]]) -> None:
        """Check, store and answer a batch. Raises RequestError."""
        header = request.header
        topic = self._check.topic_for_send(header, request.connection.address, now_ms)
        request.queue_id = choose_queue(header, topic)
        self._check.check_batch(header)
        destination = Destination(header.topic, request.queue_id, added_flags(topic))
        try:
            messages = self._builder.batch(header, destination, request.connection.host, body, now_ms)
        except BatchFormatError as error:
            raise self._check.illegal_batch(error) from error
        if not messages:
            raise self._check.illegal_batch("the batch is empty")
        results = self._broker.store.put_batch(messages)
        self._broker.broker_stats.count_batch(messages, results)
        if self._waits or self._new_topics:
            self._answer_when_safe([(request, results, messages[0])], answers)
        else:
            self._answers.stored(request, results, answers)

    # ------------------------------------------------------------ store and answer

    def _store_singles(
        self, requests: list[Request], messages: list[MessageInner], answers: list[tuple[Connection, bytes]]
    ) -> None:
        """Append the messages gathered so far with one write and answer their requests. Both lists are empty then."""
        if not messages:
            return
        try:
            results = self._broker.store.put_messages(messages)
            self._broker.broker_stats.count_sends(messages, results)
        except Exception as error:
            for request in requests:
                self._refuse(request, error, answers)
        else:
            if self._waits or self._new_topics:
                self._answer_when_safe(
                    [
                        (request, (result,), message)
                        for request, message, result in zip(requests, messages, results, strict=True)
                    ],
                    answers,
                )
            else:
                self._answers.singles_stored(requests, results, answers)
        requests.clear()
        messages.clear()

    def _answer_when_safe(
        self,
        stored: list[tuple[Request, Sequence[PutResult], MessageInner]],
        answers: list[tuple[Connection, bytes]],
    ) -> None:
        """Answer each send now, or once its messages and any topics it created are durable."""
        unsafe: list[_Stored] = []
        to_new_topics: list[_Stored] = []
        new = self._new_topics
        for request, results, message in stored:
            if results[-1].status is not PutStatus.PUT_OK:
                self._answers.stored(request, results, answers)
            elif new and (request.header.topic in new or message.topic in new):
                to_new_topics.append((request, results, message))
            elif self._waits and message.wait:
                unsafe.append((request, results, message))
            else:
                self._answers.stored(request, results, answers)
        if unsafe:
            self._when_safe(unsafe, lambda status: self._answer_late(unsafe, status))
        if to_new_topics:
            self._answer_when_durable(to_new_topics)

    def _when_safe(self, stored: Sequence[_Stored], callback: Callable[[PutStatus], None]) -> None:
        last = stored[-1][1][-1]
        self._durability.when_safe(last.physical_offset + last.size, callback, len(stored))

    def _answer_when_durable(self, stored: Sequence[_Stored]) -> None:
        """Answer sends to new topics when the topics are durable. Messages with WAIT must be durable as well."""
        names = {name for request, _, message in stored for name in (request.header.topic, message.topic)}

        def wait_for_topics(status: PutStatus, group: Sequence[_Stored]) -> None:
            def answer(topics: PutStatus) -> None:
                self._answer_late(group, topics if status is PutStatus.PUT_OK else status)

            self._new_name_durability.when_durable(names, answer)

        waiting = [entry for entry in stored if self._waits and entry[2].wait]
        others = [entry for entry in stored if not (self._waits and entry[2].wait)]
        if waiting:
            self._when_safe(waiting, lambda status: wait_for_topics(status, waiting))
        if others:
            wait_for_topics(PutStatus.PUT_OK, others)

    def _answer_late(self, stored: Sequence[_Stored], status: PutStatus) -> None:
        """Answer a group of sends. Runs in the thread that reports the last missing status."""
        late: list[tuple[Connection, bytes]] = []
        for request, results, _ in stored:
            self._answers.stored(request, results, late, status)
        # Reports of slaves arrive in the reactor thread. The thread that flushes must not spend its time on sockets.
        self._deliver(late, here=len(late) == 1 or not self._flushes)

    def _deliver(self, answers: list[tuple[Connection, bytes]], *, here: bool) -> None:
        """Write the answers here, or in one call of the thread that reads most of their connections."""
        if here:
            write_answers(answers)
        elif answers:
            loop = self._pool.loop
            call = self._dispatcher.call_from_thread if loop is None else loop.call
            call(write_answers, answers)


def write_answers(answers: list[tuple[Connection, bytes]]) -> None:
    """Write answers, grouped by connection. Any thread."""
    if len(answers) == 1:
        connection, data = answers[0]
        connection.write((data,))
        return
    grouped: dict[Connection, list[bytes]] = {}
    for connection, data in answers:
        grouped.setdefault(connection, []).append(data)
    for connection, parts in grouped.items():
        connection.write((b"".join(parts),))
