"""The end of a transaction (END_TRANSACTION, 37), and checks after a give-up (RESUME_CHECK_HALF_MESSAGE, 323).

Both append, so they run in the storage thread. The remarks are Apache's.

Counterpart: `EndTransactionProcessor`, `AdminBrokerProcessor.resumeCheckHalfMessage` (Apache).
"""

from collections.abc import Sequence

from twisted.logger import Logger
from zope.interface import implementer

from rocketd.broker.base import problems
from rocketd.broker.send import half_messages
from rocketd.broker.send.answers import STORED_CODES, store_error
from rocketd.broker.send.durability import Durability
from rocketd.broker.send.half_messages import QUEUE_ID
from rocketd.broker.send.message_builder import delay_level
from rocketd.broker.tables.implied_topics import is_topic_deleted, make_topic_of
from rocketd.broker.transaction.parts import TransactionParts
from rocketd.broker.transaction.service import End
from rocketd.common import message_properties as props
from rocketd.common.logs.throttle import event_log
from rocketd.common.message_properties import encode_properties
from rocketd.common.names import TRANS_HALF_TOPIC
from rocketd.common.sysflag import TRANSACTION_COMMIT, TRANSACTION_NOT
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers.client import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
    read_header,
)
from rocketd.remoting.interfaces import IJobProcessor, IRequestContext, IRequestProcessor
from rocketd.remoting.serving.command_jobs import CommandHandler
from rocketd.remoting.serving.pools import Job
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.base.errors import StoreError
from rocketd.store.format.message import MessageInner, PutResult, PutStatus
from rocketd.store.format.record import MessageExt, decode_message

_STORED_TOGETHER = 1 << 18
"""Maximum bytes of half messages whose ends share one write."""

_NOT_FOUND = "Find prepared transaction message failed"
_PUT_BACK_FAILED = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."
_PUT_BACK_RAISED = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."

_Outcome = tuple[IRequestContext, MessageInner | None, PutResult]
"""The context of a request, the message of a commit (None for a rollback), and the result of the append."""


@implementer(IJobProcessor, IRequestProcessor)
class EndTransactionProcessor:
    """Commits and rolls back. Storage thread only."""

    _log = Logger()

    def __init__(self, broker: TransactionParts) -> None:
        self._broker = broker
        self._events = event_log(self._log)
        self._commands = CommandHandler(broker.dispatcher.answers)
        self._commands.processors[RequestCode.END_TRANSACTION] = self
        self._durability = Durability(broker)
        self._ends: list[tuple[End, IRequestContext]] = []
        self._size = 0

    def process_jobs(self, jobs: Sequence[Job]) -> None:
        """Handle every frame, then store the ends together.

        The handler is separate from that of sends, so that fast failure can tell the two apart.
        """
        self._commands.process_jobs(jobs)
        self._store()

    def process(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand | None:
        """Handle one END_TRANSACTION, except the storing. An undecided transaction gets no answer."""
        header = read_header(EndTransactionRequestHeader, request)
        broker = self._broker
        if broker.settings.store.broker_role == "SLAVE":
            return RemotingCommand.response(ResponseCode.SLAVE_NOT_AVAILABLE, problems.NOT_SET_REMARK)
        if header.commit_or_rollback == TRANSACTION_NOT:
            return None
        half = self._half(header)
        table = half.properties_map()
        self._check(header, half, table)
        final = None
        if header.commit_or_rollback == TRANSACTION_COMMIT:
            final = self._committed(half, table)
        self._ends.append(((half, final), context))
        self._size += half.store_size
        if self._size > _STORED_TOGETHER:
            self._store()
        return None

    def _store(self) -> None:
        """Store the gathered ends and answer their requests."""
        broker = self._broker
        ends, self._ends, self._size = self._ends, [], 0
        if not ends:
            return
        try:
            results = broker.transactions.put_ends([end for end, _ in ends])
        except Exception as error:
            for _, context in ends:
                context.answer(broker.dispatcher.answers.error_response(context.connection, context.request, error))
            return
        durability = broker.topics.new_name_durability
        topics = durability.names.intersection([final.topic for (_, final), _ in ends if final is not None])
        waits = bool(topics) or self._durability.needed
        waiting: list[_Outcome] = []
        others: list[_Outcome] = []
        for ((_, final), context), result in zip(ends, results, strict=True):
            is_safe_later = waits and result.status is PutStatus.PUT_OK and not context.request.is_oneway
            (waiting if is_safe_later else others).append((context, final, result))
        self._answer(others, PutStatus.PUT_OK)
        if not waiting:
            return

        def safe(status: PutStatus) -> None:
            if topics and status is PutStatus.PUT_OK:
                durability.when_durable(topics, lambda status: self._answer(waiting, status))
            else:
                self._answer(waiting, status)

        if self._durability.needed:
            # The store has counted these puts already, because none of them waits.
            last = waiting[-1][2]
            self._durability.when_safe(last.physical_offset + last.size, safe, puts=0)
        else:
            safe(PutStatus.PUT_OK)

    def _answer(self, outcomes: Sequence[_Outcome], safety: PutStatus) -> None:
        """Answer requests from the results of their ends. Any thread.

        ``safety`` is the outcome of waiting for log and topics, if they had to wait.
        """
        for context, final, result in outcomes:
            if result.status is PutStatus.PUT_OK:
                # Apache's broker leaves the default remark in the answer to a rollback.
                remark = problems.NOT_SET_REMARK if final is None else None
                code = STORED_CODES.get(safety, ResponseCode.SYSTEM_ERROR)
                context.answer(RemotingCommand.response(code, remark))
            else:
                refusal = store_error(self._broker, result)
                context.answer(RemotingCommand.response(refusal.code, refusal.remark))

    def _half(self, header: EndTransactionRequestHeader) -> MessageExt:
        record = self._broker.store.look_message(header.commit_log_offset)
        try:
            half = None if record is None else decode_message(record)
        except StoreError as error:
            self._events.error(
                "damaged", "the half message at {offset}: {error}", offset=header.commit_log_offset, error=error
            )
            half = None
        # Apache's broker accepts any record there. A visible one must not be shown a second time.
        if half is None or half.topic != TRANS_HALF_TOPIC:
            raise RequestError(ResponseCode.SYSTEM_ERROR, _NOT_FOUND)
        return half

    def _check(self, header: EndTransactionRequestHeader, half: MessageExt, table: dict[str, str]) -> None:
        if table.get(props.PGROUP) != header.producer_group:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.queue_offset != header.tran_state_table_offset:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        if half.physical_offset != header.commit_log_offset:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "The commit log offset wrong")

    def _committed(self, half: MessageExt, table: dict[str, str]) -> MessageInner:
        try:
            message = half_messages.committed(half, table)
        except ValueError as error:
            limit = self._broker.settings.store.max_message_size
            raise problems.MESSAGE_ILLEGAL.error(limit=limit, found=str(error)) from error
        topic = message.topic
        if not make_topic_of(self._broker, topic, message.queue_id, half.physical_offset, half.store_timestamp):
            self._broker.transactions.put_ends([(half, None)])
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] was deleted")
        message.queue_id = self._broker.topics.shown_queue(topic, message.queue_id)
        try:
            delay_level(table)
        except ValueError as error:
            # A send is refused for it, but Apache's broker has stored such half messages.
            self._events.warn(
                "delay",
                "the half message at {offset} is not delayed: {error}",
                offset=half.physical_offset,
                error=error,
            )
            del table[props.DELAY]
        self._broker.message_builder.delay(message, table, self._broker.now_ms())
        if message.topic != topic:
            message.properties = encode_properties(table).encode()
        return message


@implementer(IRequestProcessor)
class ResumeCheckProcessor:
    """Puts a half message that was given up back into the queue of half messages. Storage thread only."""

    _log = Logger()

    def __init__(self, broker: TransactionParts) -> None:
        self._broker = broker
        self._events = event_log(self._log)

    def process(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        """Handle one RESUME_CHECK_HALF_MESSAGE."""
        header = read_header(ResumeCheckHalfMessageRequestHeader, request)
        try:
            message = self._again(header.msg_id)
        except (StoreError, ValueError) as error:
            self._events.error("again", "message {id} cannot be checked again: {error}", id=header.msg_id, error=error)
            raise RequestError(ResponseCode.SYSTEM_ERROR, _PUT_BACK_RAISED) from error
        result = self._broker.store.put_messages([message])[0]
        if result.status is not PutStatus.PUT_OK:
            raise RequestError(ResponseCode.SYSTEM_ERROR, _PUT_BACK_FAILED)
        self._broker.audit.note(request, context, "check half message again", header.msg_id or "")
        return RemotingCommand.response()

    def _again(self, message_id: str | None) -> MessageInner:
        if message_id is None or len(message_id) not in (32, 56):
            raise ValueError("that is not a message id")
        record = self._broker.store.look_message(int(message_id[-16:], 16))
        if record is None:
            raise ValueError("no message begins there")
        stored = decode_message(record)
        table = stored.properties_map()
        topic, _ = half_messages.destination(table)
        if is_topic_deleted(self._broker, topic, stored.physical_offset, stored.store_timestamp):
            raise ValueError(f"topic {topic} was deleted")
        table[props.TRANSACTION_CHECK_TIMES] = "0"
        message = half_messages.renewed(stored, table)
        message.topic, message.queue_id = TRANS_HALF_TOPIC, QUEUE_ID
        return message
