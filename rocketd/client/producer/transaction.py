"""Transactions: half message, local transaction, its end, and checks by brokers.

Counterpart: `sendMessageInTransaction`, `checkTransactionState` and `endTransaction` of `DefaultMQProducerImpl` (Apache).
"""

from enum import Enum
from typing import Any, Generic, NamedTuple, Protocol

from msgspec.structs import asdict
from twisted.internet.defer import CancelledError, Deferred, ensureDeferred
from twisted.logger import Logger

from rocketd.client.errors import (
    BrokerError,
    ConnectionLostError,
    IllegalMessageError,
    NoRouteError,
    RequestTimeoutError,
    RocketMQError,
    UnreachableError,
    check_response,
)
from rocketd.client.hooks import EndTransactionContext, ProducerHooks
from rocketd.client.instance.all_of import all_of
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.codec import Codec
from rocketd.client.messages.message import SEND_OK, Message, ReceivedMessage, SendResult, T
from rocketd.client.messages.namespace import with_namespace, without_namespace
from rocketd.client.messages.received import received_message
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.request_reply import GREETING_SHARE
from rocketd.client.runtime.listeners import Invoke
from rocketd.client.settings.config import milliseconds
from rocketd.common.event_loop import timers
from rocketd.common.message_properties import UNIQ_KEY
from rocketd.common.record_host import physical_offset
from rocketd.common.sysflag import TRANSACTION_COMMIT, TRANSACTION_NOT, TRANSACTION_ROLLBACK
from rocketd.protocol.transaction import check_answer_header, end_header
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.headers.client import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.store.format.record import MessageExt

END_PAUSES = (0.5, 1.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0)
"""Pauses in seconds before a broker is told again. Brokers ask for open transactions once a minute."""

MAX_ENDING = 1000
"""Maximum number of transactions whose end is not confirmed. The ends of others are told once, without an answer."""


STOP_SECONDS = 1.0
"""Maximum time for which a stop waits for answers."""


class TransactionState(Enum):
    """The result of a local transaction. With UNKNOWN, the broker asks again later."""

    COMMIT = TRANSACTION_COMMIT
    ROLLBACK = TRANSACTION_ROLLBACK
    UNKNOWN = TRANSACTION_NOT


class TransactionSendResult(SendResult, frozen=True):
    """The place of the half message, and the result of the local transaction."""

    state: TransactionState = TransactionState.UNKNOWN

    @property
    def send_result(self) -> SendResult:
        """The place of the half message alone."""
        return SendResult(*(getattr(self, field) for field in SendResult.__struct_fields__))


class TransactionListener(Protocol[T]):
    """The application's part of a transaction. Either method may be a coroutine function."""

    def execute(self, message: Message[T], arg: Any, transaction_id: str) -> Any:
        """Run the local transaction and return its TransactionState. An exception counts as UNKNOWN, and is raised again."""

    def check(self, message: ReceivedMessage[T]) -> Any:
        """Return the TransactionState of an earlier transaction, perhaps of another process of the group."""


class HalfSender(Protocol[T]):
    """The producer of transactions."""

    group: str
    instance: ClientInstance
    options: ProducerOptions
    codec: Codec[T]
    hooks: ProducerHooks

    async def send_half(self, message: Message[T]) -> SendResult:
        """Send the half message of a transaction."""


class _Ending(NamedTuple):
    """The end of a transaction. ``telling`` fires when the broker has confirmed it, or is told no more."""

    broker_name: str
    header: EndTransactionRequestHeader
    telling: Deferred[Any]


class ProducerTransactions(Generic[T]):
    """The transactions of one producer. Reactor thread; ``invoke`` runs the listener."""

    _log = Logger()

    def __init__(self, producer: HalfSender[T], listener: TransactionListener[T], invoke: Invoke) -> None:
        self._producer = producer
        self._instance = producer.instance
        self._listener = listener
        self._invoke = invoke
        self._ending: dict[str, _Ending] = {}
        """The ends of transactions that brokers have not confirmed yet, by unique key."""
        self._pausing: set[Deferred[None]] = set()
        self._stopped = False

    async def send(self, message: Message[T], arg: object) -> TransactionSendResult:
        """See ``Producer.send_in_transaction``."""
        if message.delay_level or message.deliver_at is not None or message.deliver_after is not None:
            raise IllegalMessageError("a message of a transaction cannot be delayed")
        result = await self._producer.send_half(message)
        # Brokers check transactions with producers known by heartbeat. Silent brokers do not delay the transaction.
        await self._instance.greet(milliseconds("send_timeout", self._producer.options.send_timeout) / GREETING_SHARE)
        state = TransactionState.ROLLBACK
        failure: BaseException | None = None
        if result.status == SEND_OK:
            state = TransactionState.UNKNOWN
            try:
                state = _state_of(await self._invoke(self._listener.execute, message, arg, result.msg_id))
            except Exception as error:
                failure = error
        header = end_header(
            self._producer.group,
            result.queue.broker_name,
            state.value,
            state_offset=result.queue_offset,
            commit_log_offset=physical_offset(result.offset_msg_id),
            unique_key=result.msg_id,
            transaction_id=result.transaction_id,
        )
        broker_name = result.queue.broker_name
        told_later = state is not TransactionState.UNKNOWN and not self._stopped and len(self._ending) < MAX_ENDING
        try:
            address = self._instance.master(broker_name)
            if self._producer.hooks.ending:
                self._tell_hooks(address, header, message, message.wire_properties(result.msg_id), result.msg_id)
            if not told_later:
                await self._tell(address, header)
        except RocketMQError as error:
            if not told_later:  # or the first try of telling it warns
                self._warn(header, error)
        if told_later:
            self._begin_ending(result.msg_id, broker_name, header)
        if failure is not None:
            raise failure
        return TransactionSendResult(**asdict(result), state=state)

    def _begin_ending(self, unique_key: str, broker_name: str, header: EndTransactionRequestHeader) -> None:
        """Tell a broker the end of a transaction, again and again if needed, without waiting for it."""
        telling: Deferred[Any] = Deferred.fromCoroutine(self._end(broker_name, header))
        self._ending[unique_key] = _Ending(broker_name, header, telling)
        telling.addErrback(lambda failure: failure.trap(CancelledError))
        telling.addErrback(lambda failure: self._log.failure("the end of a transaction failed", failure))
        telling.addCallback(self._told, unique_key)

    async def _end(self, broker_name: str, header: EndTransactionRequestHeader) -> None:
        """Tell a broker the end of a transaction until it answers.

        A connection that breaks before the answer may have taken the request along, so it is told again, too. If it was
        carried out all the same, Apache's broker stores the message of a commit twice. A broker that does not answer in
        time has the request, or asks later. If a broker asks first, the answer tells the end.
        """
        for number, pause in enumerate((0.0, *END_PAUSES)):
            if pause:
                await self._pause(pause)
            if self._stopped and number:
                return
            try:
                address = self._instance.master(broker_name)
                answer = await self._instance.ask(address, RequestCode.END_TRANSACTION, header)
                check_response(address, answer)
            except RocketMQError as error:
                if not _is_worth_repeating(error):
                    if not isinstance(error, RequestTimeoutError):
                        self._warn(header, error)
                    return
                if number == 0:
                    self._warn(header, error)
                continue
            if number:
                self._log.info("the broker was told the end of transaction {id}", id=header.msg_id)
            return

    async def _pause(self, seconds: float) -> None:
        pausing: Deferred[None] = timers.deferLater(self._instance.reactor, seconds, lambda: None)
        self._pausing.add(pausing)
        try:
            await pausing
        finally:
            self._pausing.discard(pausing)

    def _warn(self, header: EndTransactionRequestHeader, error: RocketMQError) -> None:
        """Log that the broker was not told: it is told again, or asks later."""
        self._log.warn(
            "transaction {id} is {state}, but the broker was not told yet: {error}",
            id=header.msg_id,
            state=TransactionState(header.commit_or_rollback),
            error=error,
        )

    def _told(self, _: object, unique_key: str) -> None:
        del self._ending[unique_key]

    async def stop(self) -> None:
        """Wait a second for the answers of brokers that were just told an end. Tell unreachable brokers nothing more."""
        self._stopped = True
        for pausing in list(self._pausing):
            pausing.cancel()
        limit = self._instance.reactor.callLater(STOP_SECONDS, self._cancel_all)
        await all_of(ending.telling for ending in list(self._ending.values()))
        if limit.active():
            limit.cancel()

    def _cancel_all(self) -> None:
        for ending in list(self._ending.values()):
            ending.telling.cancel()

    def check(self, address: str, asked: CheckTransactionStateRequestHeader, record: MessageExt) -> None:
        """Answer a broker's check, with the listener's answer or a decision not told yet.

        After a failure the broker asks again.
        """
        checking = ensureDeferred(self._check(address, asked, record))
        checking.addErrback(lambda failure: self._log.failure("the check of a transaction failed", failure))

    async def _check(self, address: str, asked: CheckTransactionStateRequestHeader, record: MessageExt) -> None:
        namespace = self._instance.config.namespace
        queue = MessageQueue(with_namespace(namespace, record.topic), "", record.queue_id)
        message = received_message(record, queue, self._producer.codec, namespace)
        unique_key = message.properties.get(UNIQ_KEY, message.msg_id)
        ending = self._ending.get(unique_key)
        if ending is None:
            state = _state_of(await self._invoke(self._listener.check, message))
        else:
            ending.telling.cancel()
            state = TransactionState(ending.header.commit_or_rollback)
        header = check_answer_header(self._producer.group, asked, state.value, unique_key)
        if self._producer.hooks.ending:
            transaction_id = message.properties.get(UNIQ_KEY)
            self._tell_hooks(address, header, message, message.properties, transaction_id)
        try:
            await self._tell(address, header)
        except UnreachableError:
            if ending is not None and not self._stopped:
                self._begin_ending(unique_key, ending.broker_name, ending.header)
            raise

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

    async def _tell(self, address: str, header: EndTransactionRequestHeader) -> None:
        """Tell an end without an answer: brokers do not answer that a transaction is open."""
        await self._instance.tell(address, RequestCode.END_TRANSACTION, header)


def _is_worth_repeating(error: RocketMQError) -> bool:
    """Whether the broker may not have the end, but may have it later."""
    busy = isinstance(error, BrokerError) and error.code == ResponseCode.SYSTEM_BUSY
    return busy or isinstance(error, UnreachableError | ConnectionLostError | NoRouteError)


def _state_of(answer: object) -> TransactionState:
    """Return the state from a listener's result. Any other value counts as UNKNOWN."""
    return answer if isinstance(answer, TransactionState) else TransactionState.UNKNOWN
