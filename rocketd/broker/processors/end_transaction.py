"""The end of a transaction: END_TRANSACTION (37), and asking again about one that was given up (323).

Answers to Apache's EndTransactionProcessor and to AdminBrokerProcessor.resumeCheckHalfMessage, remarks included. Both
append, so they run in the storage thread.
"""

from collections.abc import Sequence
from typing import Any

from twisted.logger import Logger
from zope.interface import implementer

from rocketd.broker import problems
from rocketd.broker.processors.admin import NOT_SET_REMARK
from rocketd.broker.send_answers import store_error
from rocketd.broker.transaction import half_messages
from rocketd.broker.transaction.half_messages import QUEUE_ID
from rocketd.broker.transaction.service import End
from rocketd.common import properties as names
from rocketd.common.names import TRANS_HALF_TOPIC
from rocketd.common.properties import encode_properties
from rocketd.common.sysflag import TRANSACTION_COMMIT, TRANSACTION_NOT
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.dispatch import CommandHandler
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers import EndTransactionRequestHeader, ResumeCheckHalfMessageRequestHeader, read_header
from rocketd.remoting.interfaces import IJobProcessor, IRequestProcessor
from rocketd.remoting.pools import Job
from rocketd.store.errors import StoreError
from rocketd.store.message import MessageInner, PutStatus
from rocketd.store.record import MessageExt, decode_message

END_CODES = (RequestCode.END_TRANSACTION,)
RESUME_CODES = (RequestCode.RESUME_CHECK_HALF_MESSAGE,)

_STORED_TOGETHER = 1 << 18
"""Bytes of half messages whose ends are one write."""

_NOT_FOUND = "Find prepared transaction message failed"
_PUT_BACK_FAILED = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."
_PUT_BACK_RAISED = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."


@implementer(IJobProcessor)
class EndTransactionProcessor:
    """Commits and rolls back. Storage thread only."""

    _log = Logger()

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self._commands = CommandHandler(broker.dispatcher)
        self._commands.processors.update(dict.fromkeys(END_CODES, self))
        self._ends: list[tuple[End, Any]] = []
        self._size = 0

    def process_jobs(self, jobs: Sequence[Job]) -> None:
        """Handle every frame, then store what they end together. By this handler of their own fast failure tells them
        from sends.
        """
        self._commands.process_jobs(jobs)
        self._store()

    def process(self, request: RemotingCommand, context: Any) -> RemotingCommand | None:
        """Handle one END_TRANSACTION, but for storing it. That a transaction is undecided is not answered."""
        header = read_header(EndTransactionRequestHeader, request)
        broker = self._broker
        if broker.settings.store.broker_role == "SLAVE":
            return RemotingCommand.response(ResponseCode.SLAVE_NOT_AVAILABLE, NOT_SET_REMARK)
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
        """Store the ends that were gathered, and answer their requests."""
        broker = self._broker
        ends, self._ends, self._size = self._ends, [], 0
        if not ends:
            return
        try:
            results = broker.transactions.put_ends([end for end, _ in ends])
        except Exception as error:
            for _, context in ends:
                context.answer(broker.dispatcher.error_response(context.connection, context.request, error))
            return
        for ((_, final), context), result in zip(ends, results, strict=True):
            if result.status is PutStatus.PUT_OK:
                # Apache's forgets the remark of a rollback.
                context.answer(RemotingCommand.response(remark=NOT_SET_REMARK if final is None else None))
            else:
                refusal = store_error(broker, result)
                context.answer(RemotingCommand.response(refusal.code, refusal.remark))

    def _half(self, header: EndTransactionRequestHeader) -> MessageExt:
        record = self._broker.store.look_message(header.commit_log_offset)
        try:
            half = None if record is None else decode_message(record)
        except StoreError as error:
            self._log.error("the half message at {offset}: {error}", offset=header.commit_log_offset, error=error)
            half = None
        # Apache's takes any record there; one that is not hidden must not be shown once more.
        if half is None or half.topic != TRANS_HALF_TOPIC:
            raise RequestError(ResponseCode.SYSTEM_ERROR, _NOT_FOUND)
        return half

    def _check(self, header: EndTransactionRequestHeader, half: MessageExt, table: dict[str, str]) -> None:
        if table.get(names.PGROUP) != header.producer_group:
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
        self._broker.message_builder.delay(message, table, self._broker.now_ms())
        if message.topic != topic:
            message.properties = encode_properties(table).encode()
        return message


@implementer(IRequestProcessor)
class ResumeCheckProcessor:
    """Puts a half message that was given up back among those that producers are asked about. Storage thread only."""

    _log = Logger()

    def __init__(self, broker: Any) -> None:
        self._broker = broker

    def process(self, request: RemotingCommand, context: Any) -> RemotingCommand:
        """Handle one RESUME_CHECK_HALF_MESSAGE."""
        header = read_header(ResumeCheckHalfMessageRequestHeader, request)
        try:
            message = self._again(header.msg_id)
        except (StoreError, ValueError) as error:
            self._log.error("message {id} cannot be checked again: {error}", id=header.msg_id, error=error)
            raise RequestError(ResponseCode.SYSTEM_ERROR, _PUT_BACK_RAISED) from error
        result = self._broker.store.put_messages([message])[0]
        if result.status is not PutStatus.PUT_OK:
            raise RequestError(ResponseCode.SYSTEM_ERROR, _PUT_BACK_FAILED)
        return RemotingCommand.response()

    def _again(self, message_id: str | None) -> MessageInner:
        if message_id is None or len(message_id) not in (32, 56):
            raise ValueError("that is no message id")
        record = self._broker.store.look_message(int(message_id[-16:], 16))
        if record is None:
            raise ValueError("no message begins there")
        stored = decode_message(record)
        table = stored.properties_map()
        half_messages.destination(table)
        table[names.TRANSACTION_CHECK_TIMES] = "0"
        message = half_messages.renewed(stored, table)
        message.topic, message.queue_id = TRANS_HALF_TOPIC, QUEUE_ID
        return message
