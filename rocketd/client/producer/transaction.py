"""Transactions: a half message, the local transaction, its end, and the brokers' questions about it.

Answers to sendMessageInTransaction, checkTransactionState and endTransaction of DefaultMQProducerImpl.
"""

from enum import Enum
from typing import Any, Generic, Protocol

import msgspec
from twisted.internet.defer import ensureDeferred
from twisted.logger import Logger

from rocketd.client.config import milliseconds
from rocketd.client.errors import IllegalMessageError, RocketMQError
from rocketd.client.hooks import EndTransactionContext
from rocketd.client.listeners import Invoke
from rocketd.client.message import SEND_OK, Message, ReceivedMessage, SendResult, T
from rocketd.client.namespace import with_namespace, without_namespace
from rocketd.client.producer.request_reply import GREETING_SHARE
from rocketd.client.wire_message import received_message
from rocketd.common.properties import UNIQ_KEY
from rocketd.common.sysflag import TRANSACTION_COMMIT, TRANSACTION_NOT, TRANSACTION_ROLLBACK
from rocketd.remoting.bodies import MessageQueue
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.headers import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from rocketd.store.record import MessageExt


class TransactionState(Enum):
    """How a local transaction ended. UNKNOWN lets the broker ask again later."""

    COMMIT = TRANSACTION_COMMIT
    ROLLBACK = TRANSACTION_ROLLBACK
    UNKNOWN = TRANSACTION_NOT


class TransactionSendResult(msgspec.Struct, frozen=True):
    """Where the half message is, and how the local transaction ended."""

    send_result: SendResult
    state: TransactionState


class TransactionListener(Protocol[T]):
    """What an application does in a transaction; either method may be a coroutine function."""

    def execute(self, message: Message[T], arg: Any, transaction_id: str) -> Any:
        """Do the local transaction; return its TransactionState. An exception counts as UNKNOWN, and is raised again."""

    def check(self, message: ReceivedMessage[T]) -> Any:
        """Return the TransactionState of a transaction that was begun, perhaps by another process of the group."""


class Transactions(Generic[T]):
    """The transactions of one producer. Reactor thread; ``invoke`` runs the listener."""

    _log = Logger()

    def __init__(self, producer: Any, listener: TransactionListener[T], invoke: Invoke) -> None:
        self._producer = producer
        self._instance = producer.instance
        self._listener = listener
        self._invoke = invoke

    async def send(self, message: Message[T], arg: Any) -> TransactionSendResult:
        """See ``Producer.send_in_transaction``."""
        if message.delay_level or message.deliver_at is not None or message.deliver_after is not None:
            raise IllegalMessageError("a message of a transaction cannot be delayed")
        result = await self._producer.send_half(message)
        # The broker asks about transactions whom it knows by a heartbeat; others that are silent keep nobody waiting.
        await self._instance.greet(milliseconds("send_timeout", self._producer.options.send_timeout) / GREETING_SHARE)
        state = TransactionState.ROLLBACK
        failure: BaseException | None = None
        if result.status == SEND_OK:
            state = TransactionState.UNKNOWN
            try:
                state = _state_of(await self._invoke(self._listener.execute, message, arg, result.msg_id))
            except Exception as error:
                failure = error
        offset = int(result.offset_msg_id[-16:], 16)
        header = EndTransactionRequestHeader(
            producer_group=self._producer.group,
            tran_state_table_offset=result.queue_offset,
            commit_log_offset=offset,
            commit_or_rollback=state.value,
            msg_id=result.msg_id,
            transaction_id=result.transaction_id or result.msg_id,
            bname=result.queue.broker_name,
        )
        try:
            address = self._instance.master(result.queue.broker_name)
            if self._producer.hooks.ending:
                self._tell_hooks(address, header, message, message.wire_properties(result.msg_id), result.msg_id)
            await self._end(address, header)
        except RocketMQError as error:
            # The broker asks about it later.
            self._log.warn(
                "transaction {id} is {state}, not told yet: {error}", id=result.msg_id, state=state, error=error
            )
        if failure is not None:
            raise failure
        return TransactionSendResult(result, state)

    def check(self, address: str, asked: CheckTransactionStateRequestHeader, record: MessageExt) -> None:
        """Answer a broker's question. It is asked again where that fails."""
        checking = ensureDeferred(self._check(address, asked, record))
        checking.addErrback(lambda failure: self._log.failure("the check of a transaction failed", failure))

    async def _check(self, address: str, asked: CheckTransactionStateRequestHeader, record: MessageExt) -> None:
        namespace = self._instance.config.namespace
        queue = MessageQueue(with_namespace(namespace, record.topic), "", record.queue_id)
        message = received_message(record, queue, self._producer.codec, namespace)
        state = _state_of(await self._invoke(self._listener.check, message))
        header = EndTransactionRequestHeader(
            producer_group=self._producer.group,
            tran_state_table_offset=asked.tran_state_table_offset,
            commit_log_offset=asked.commit_log_offset,
            commit_or_rollback=state.value,
            msg_id=message.properties.get(UNIQ_KEY, message.msg_id),
            from_transaction_check=True,
            transaction_id=asked.transaction_id,
        )
        if self._producer.hooks.ending:
            transaction_id = message.properties.get(UNIQ_KEY)
            self._tell_hooks(address, header, message, message.properties, transaction_id)
        await self._end(address, header)

    def _tell_hooks(
        self,
        address: str,
        header: EndTransactionRequestHeader,
        message: Message[T] | ReceivedMessage[T],
        properties: dict[str, str],
        transaction_id: str | None,
    ) -> None:
        self._producer.hooks.end_transaction(
            EndTransactionContext(
                group=without_namespace(self._instance.config.namespace, self._producer.group),
                message=message,
                properties=properties,
                broker_address=address,
                msg_id=header.msg_id or "",
                transaction_id=transaction_id,
                commit_or_rollback=header.commit_or_rollback,
                from_check=header.from_transaction_check,
            )
        )

    async def _end(self, address: str, header: EndTransactionRequestHeader) -> None:
        await self._instance.tell(address, RequestCode.END_TRANSACTION, header)


def _state_of(answer: Any) -> TransactionState:
    """Take what a listener returned; anything but a state is none."""
    return answer if isinstance(answer, TransactionState) else TransactionState.UNKNOWN
