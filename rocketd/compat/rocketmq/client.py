"""The classes of the wheels' module ``client``, on `rocketd.client.sync`.

Methods of both versions are here; where only the name differs, there are both names. Any thread may call a client that was
started. Callbacks run in threads.
"""

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple, Self

from twisted.logger import Logger

from rocketd import client as rocketd_client
from rocketd.client import ClientConfig, Credentials, MessageQueue, PullStatus, Retry, TransactionState, sync
from rocketd.client.errors import RocketMQError
from rocketd.client.runtime.tracebacks import LoggedError
from rocketd.common import message_properties as props
from rocketd.compat.rocketmq import exceptions
from rocketd.compat.rocketmq.consts import MessageProperty
from rocketd.compat.rocketmq.ffi import MessageModel

__all__ = (
    "ConsumeStatus",
    "Message",
    "MessageModel",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "ReceivedMessage",
    "RecvMessage",
    "SendResult",
    "SendStatus",
    "TransactionMQProducer",
    "TransactionStatus",
)

log = Logger()

Text = str | bytes

SENDERS = 8
"""Threads of a producer for ``send_async``."""


class SendStatus(IntEnum):
    """The status of a stored message."""

    OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3


_STATUS = {
    rocketd_client.SendStatus.SEND_OK: SendStatus.OK,
    rocketd_client.SendStatus.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    rocketd_client.SendStatus.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    rocketd_client.SendStatus.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class TransactionStatus(IntEnum):
    """The result of a local transaction. After UNKNOWN, the broker asks again."""

    COMMIT = 0
    ROLLBACK = 1
    UNKNOWN = 2


_STATES = {
    TransactionStatus.COMMIT: TransactionState.COMMIT,
    TransactionStatus.ROLLBACK: TransactionState.ROLLBACK,
    TransactionStatus.UNKNOWN: TransactionState.UNKNOWN,
}


class ConsumeStatus(IntEnum):
    """The result of a callback. After RECONSUME_LATER, the message comes again."""

    CONSUME_SUCCESS = 0
    RECONSUME_LATER = 1


class SendResult(NamedTuple):
    """The result of a send: its status, the id of the message and its offset in the queue."""

    status: SendStatus
    msg_id: str
    offset: int


def _text(value: Text) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _result(sent: rocketd_client.SendResult) -> SendResult:
    return SendResult(_STATUS[sent.status], sent.msg_id, sent.queue_offset)


class Message:
    """A message to send."""

    def __init__(self, topic: Text) -> None:
        self._message = rocketd_client.Message(_text(topic), b"", properties={})

    def set_keys(self, keys: Text) -> None:
        """Set the keys, separated by blanks."""
        self._message.keys = _text(keys).split()

    def set_tags(self, tags: Text) -> None:
        """Set the tag."""
        self._message.tags = _text(tags) or None

    def set_body(self, body: Text) -> None:
        """Set the body."""
        self._message.body = body.encode() if isinstance(body, str) else body

    def set_property(self, key: Text, value: Text) -> None:
        """Set a property of the application."""
        self._message.properties[_text(key)] = _text(value)

    def set_delay_time_level(self, delay_time_level: int) -> None:
        """Set the delay level, from 1 on."""
        self._message.delay_level = delay_time_level


class ReceivedMessage:
    """A message in a callback."""

    def __init__(self, message: rocketd_client.ReceivedMessage[bytes]) -> None:
        self._message = message
        self.topic = message.topic
        self.body = message.body
        self.id = message.msg_id
        self.queue_id = message.queue.queue_id
        self.queue_offset = message.queue_offset
        self.commit_log_offset = message.physical_offset
        self.reconsume_times = message.reconsume_times
        self.store_size = message.store_size
        self.born_timestamp = message.born_timestamp
        self.store_timestamp = message.store_timestamp

    @property
    def tags(self) -> bytes:
        """The tag; empty if there is none."""
        return self.get_property(props.TAGS)

    @property
    def keys(self) -> bytes:
        """The keys, separated by blanks."""
        return self.get_property(props.KEYS)

    @property
    def delay_time_level(self) -> int:
        """The delay level; 0 without one."""
        return int(self.get_property(props.DELAY) or 0)

    @property
    def prepared_transaction_offset(self) -> int:
        """Always 0: rocketd's client does not tell it."""
        return 0

    def get_property(self, prop: Text | MessageProperty) -> bytes:
        """Return a property; empty if there is none."""
        name = prop.value if isinstance(prop, MessageProperty) else _text(prop)
        return self._message.properties.get(name, "").encode()

    def __getitem__(self, key: Text | MessageProperty) -> bytes:
        return self.get_property(key)

    def __str__(self) -> str:
        return self.body.decode()

    def __bytes__(self) -> bytes:
        return self.body

    def __repr__(self) -> str:
        return f"<{type(self).__name__} topic={self.topic!r} id={self.id!r} body={self.body!r}>"


RecvMessage = ReceivedMessage
"""The name of 0.4.4."""


def _local(message: rocketd_client.Message[bytes], transaction_id: str) -> ReceivedMessage:
    """Return a message in its local transaction, which has no place yet."""
    return ReceivedMessage(
        rocketd_client.ReceivedMessage(
            topic=message.topic,
            body=message.body,
            properties=message.wire_properties(transaction_id),
            msg_id=transaction_id,
            offset_msg_id="",
            queue=MessageQueue(message.topic, "", 0),
            queue_offset=0,
            physical_offset=0,
            flag=message.flag,
            sys_flag=0,
            born_timestamp=0,
            store_timestamp=0,
            born_host="",
            store_host="",
            store_size=0,
            reconsume_times=0,
        )
    )


class _Client(ABC):
    """The common part: the cluster, the account, starting and stopping."""

    _start_error: ClassVar[type[exceptions.RocketMQException]]

    def __init__(self, group_id: Text) -> None:
        self._group = _text(group_id)
        self._cluster: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()

    def set_group(self, group_id: Text) -> None:
        """Set another group. Before ``start``."""
        self._group = _text(group_id)

    def set_name_server_address(self, addr: Text) -> None:
        """Set the name servers, separated by semicolons. Before ``start``."""
        self._cluster["namesrv"] = _text(addr)

    def set_name_server_domain(self, domain: Text) -> None:
        """Set the web page with the addresses of the name servers. Before ``start``."""
        self._cluster["name_server_url"] = _text(domain)

    def set_session_credentials(self, access_key: Text, access_secret: Text, channel: Text) -> None:
        """Set the account. ``channel`` is ignored. Before ``start``."""
        self._cluster["credentials"] = Credentials(_text(access_key), _text(access_secret))

    set_namesrv_addr = set_name_server_address
    set_namesrv_domain = set_name_server_domain

    def start(self) -> None:
        """Start. Raises the start error of the class."""
        try:
            self._open(ClientConfig(**self._cluster))
        except RocketMQError as error:
            raise self._start_error(str(error)) from error

    @abstractmethod
    def _open(self, config: ClientConfig) -> None:
        """Open the client of rocketd."""

    @abstractmethod
    def shutdown(self) -> None:
        """Stop. Do nothing if it does not run."""


def hashing_queue_selector(mq_size: int, msg: object, arg: int) -> int:  # noqa: ARG001 - as every selector
    """Return the number of the queue for a number, of which ``arg`` is the address."""
    return int(ctypes.cast(arg, ctypes.POINTER(ctypes.c_int))[0]) % mq_size


QueueSelector = Callable[[int, ReceivedMessage, int], int]
"""Gets the number of queues, the message and the address of a C int. Returns the number of a queue."""


class Producer(_Client):
    """A producer."""

    _start_error = exceptions.ProducerStartFailed

    def __init__(
        self,
        group_id: Text,
        orderly: bool = False,
        timeout: int | None = None,
        compress_level: int | None = None,
        max_message_size: int | None = None,
    ) -> None:
        """Create a producer. ``timeout`` is in ms. ``orderly`` and ``compress_level`` are ignored."""
        super().__init__(group_id)
        self._options: dict[str, Any] = {}
        self._producer: sync.Producer[bytes] | None = None
        self._senders = ThreadPoolExecutor(SENDERS, "send_async")
        if timeout is not None:
            self.set_timeout(timeout)
        if max_message_size is not None:
            self.set_max_message_size(max_message_size)

    def set_timeout(self, timeout: int) -> None:
        """Set the timeout of a send in ms. Before ``start``."""
        self._options["send_timeout"] = timeout / 1000

    def set_compress_level(self, level: int) -> None:
        """Do nothing: the level does not change the result."""

    def set_max_message_size(self, max_size: int) -> None:
        """Set the maximum size of a body in bytes. Before ``start``."""
        self._options["max_message_size"] = max_size

    def _open(self, config: ClientConfig) -> None:
        self._producer = sync.Producer(self._group, config, **self._options).open()

    def shutdown(self) -> None:
        """Stop, after the sends in progress. Do nothing if it does not run."""
        self._senders.shutdown()
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    @property
    def _running(self) -> sync.Producer[bytes]:
        if self._producer is None:
            raise exceptions.ProducerException("this producer is not started")
        return self._producer

    def send_sync(self, msg: Message) -> SendResult:
        """Send a message. Raises ProducerSendSyncFailed."""
        try:
            return _result(self._running.send(msg._message))
        except RocketMQError as error:
            raise exceptions.ProducerSendSyncFailed(str(error)) from error

    def send_batch(self, msgs: Sequence[Message]) -> SendResult:
        """Send messages of one topic together. The ids in the result are separated by commas.

        Raises ProducerSendSyncFailed.
        """
        try:
            results = self._running.send_batch([msg._message for msg in msgs])
        except RocketMQError as error:
            raise exceptions.ProducerSendSyncFailed(str(error)) from error
        ids = ",".join(result.msg_id for result in results)
        return SendResult(_STATUS[results[0].status], ids, results[0].queue_offset)

    def send_oneway(self, msg: Message) -> None:
        """Send a message without waiting for the result. Raises ProducerSendOnewayFailed."""
        try:
            self._running.send_oneway(msg._message)
        except RocketMQError as error:
            raise exceptions.ProducerSendOnewayFailed(str(error)) from error

    def send_async(
        self,
        msg: Message,
        success_callback: Callable[[SendResult], object] | None,
        exception_callback: Callable[[exceptions.ProducerSendAsyncFailed], object] | None,
    ) -> None:
        """Send a message in a thread, and call back from there."""
        producer = self._running
        self._senders.submit(self._send_and_call, producer, msg, success_callback, exception_callback)

    def _send_and_call(
        self,
        producer: sync.Producer[bytes],
        msg: Message,
        success_callback: Callable[[SendResult], object] | None,
        exception_callback: Callable[[exceptions.ProducerSendAsyncFailed], object] | None,
    ) -> None:
        try:
            try:
                sent = _result(producer.send(msg._message))
            except RocketMQError as error:
                failure = exceptions.ProducerSendAsyncFailed(str(error))
                failure.__cause__ = error
                if exception_callback is None:
                    raise failure from error
                exception_callback(failure)
            else:
                if success_callback is not None:
                    success_callback(sent)
        except Exception:
            log.failure("send_async failed, or its callback")

    def _chosen(self, msg: Message, arg: int, queue_selector: QueueSelector) -> MessageQueue:
        queues = self._running.publish_queues(msg._message.topic)
        number = ctypes.c_int(arg)
        message = _local(msg._message, "")
        return queues[queue_selector(len(queues), message, ctypes.addressof(number))]

    def send_orderly(
        self, msg: Message, arg: int, retry_times: int = 3, queue_selector: QueueSelector = hashing_queue_selector
    ) -> SendResult:
        """Send a message to the queue of a number. Raises ProducerSendOrderlyFailed. ``retry_times`` is ignored."""
        try:
            return _result(self._running.send(msg._message, queue=self._chosen(msg, arg, queue_selector)))
        except RocketMQError as error:
            raise exceptions.ProducerSendOrderlyFailed(str(error)) from error

    def send_oneway_orderly(
        self, msg: Message, arg: int, queue_selector: QueueSelector = hashing_queue_selector
    ) -> None:
        """Send a message to the queue of a number, without waiting. Raises ProducerSendOnewayFailed."""
        try:
            self._running.send_oneway(msg._message, queue=self._chosen(msg, arg, queue_selector))
        except RocketMQError as error:
            raise exceptions.ProducerSendOnewayFailed(str(error)) from error

    def send_orderly_with_sharding_key(self, msg: Message, sharding_key: Text) -> SendResult:
        """Send a message to the queue of a key. Raises ProducerSendOrderlyFailed."""
        try:
            return _result(self._running.send(msg._message, key=_text(sharding_key)))
        except RocketMQError as error:
            raise exceptions.ProducerSendOrderlyFailed(str(error)) from error


class TransactionMQProducer(Producer):
    """A producer of messages in transactions. ``checker_callback`` gets the message of an earlier one."""

    def __init__(
        self,
        group_id: Text,
        checker_callback: Callable[[ReceivedMessage], TransactionStatus],
        user_args: object = None,
        timeout: int | None = None,
        compress_level: int | None = None,
        max_message_size: int | None = None,
    ) -> None:
        super().__init__(group_id, False, timeout, compress_level, max_message_size)
        self._options["transactions"] = _LocalTransactions(checker_callback)

    def send_message_in_transaction(
        self,
        message: Message,
        local_execute: Callable[[ReceivedMessage, object], TransactionStatus],
        user_args: object = None,
    ) -> SendResult:
        """Send a message, run the local transaction, and commit or roll back. Raises ProducerSendSyncFailed."""
        try:
            return _result(self._running.send_in_transaction(message._message, (local_execute, user_args)))
        except RocketMQError as error:
            raise exceptions.ProducerSendSyncFailed(str(error)) from error


class _LocalTransactions:
    """The listener of a TransactionMQProducer. An exception of the application is logged, and counts as UNKNOWN."""

    def __init__(self, checker_callback: Callable[[ReceivedMessage], TransactionStatus]) -> None:
        self._checker = checker_callback

    def execute(
        self,
        message: rocketd_client.Message[bytes],
        arg: tuple[Callable[[ReceivedMessage, object], TransactionStatus], object],
        transaction_id: str,
    ) -> TransactionState:
        """Run the local transaction."""
        local_execute, user_args = arg
        return self._state(lambda: local_execute(_local(message, transaction_id), user_args))

    def check(self, message: rocketd_client.ReceivedMessage[bytes]) -> TransactionState:
        """Tell the state of an earlier transaction."""
        return self._state(lambda: self._checker(ReceivedMessage(message)))

    def _state(self, call: Callable[[], TransactionStatus]) -> TransactionState:
        try:
            return _STATES[TransactionStatus(call())]
        except Exception as error:
            log.warn(
                "a local transaction or its check failed: {error!r}; its state is UNKNOWN{trace}",
                error=error,
                trace=LoggedError(error),
            )
            return TransactionState.UNKNOWN


class PushConsumer(_Client):
    """A consumer with callbacks."""

    _start_error = exceptions.PushConsumerStartFailed

    def __init__(
        self, group_id: Text, orderly: bool = False, message_model: MessageModel = MessageModel.CLUSTERING
    ) -> None:
        super().__init__(group_id)
        self._options: dict[str, Any] = {"order": "queue"} if orderly else {}
        self._callbacks: dict[str, Callable[[ReceivedMessage], object]] = {}
        self._topics: dict[str, str | None] = {}
        self._consumer: sync.Consumer[bytes] | None = None
        self.set_message_model(message_model)

    def set_message_model(self, model: MessageModel) -> None:
        """Set whether all consumers get all messages. Before ``start``."""
        self._options["broadcast"] = model == MessageModel.BROADCASTING

    def set_thread_count(self, thread_count: int) -> None:
        """Set the maximum number of callbacks running at the same time. Before ``start``."""
        self._options["concurrency"] = thread_count

    def set_message_batch_max_size(self, max_size: int) -> None:
        """Do nothing: a callback gets one message."""

    def set_instance_name(self, name: Text) -> None:
        """Set the instance name in the client id. Before ``start``."""
        self._cluster["instance_name"] = _text(name)

    def subscribe(self, topic: Text, callback: Callable[[ReceivedMessage], object], expression: Text = "*") -> None:
        """Consume a topic, or the messages with tags such as ``TagA || TagB``. Before ``start``."""
        wanted = _text(expression)
        self._callbacks[_text(topic)] = callback
        self._topics[_text(topic)] = None if wanted == "*" else wanted

    def _open(self, config: ClientConfig) -> None:
        self._consumer = sync.Consumer(
            self._group, config, topics=self._topics, handler=self._handle, **self._options
        ).open()

    def _handle(self, message: rocketd_client.ReceivedMessage[bytes]) -> Retry | None:
        result = self._callbacks[message.topic](ReceivedMessage(message))
        if result is None or result == ConsumeStatus.CONSUME_SUCCESS:
            return None
        if result != ConsumeStatus.RECONSUME_LATER:
            log.error("a callback returned {result!r}, not a ConsumeStatus: the message comes again", result=result)
        return Retry()

    def shutdown(self) -> None:
        """Stop, after the running callbacks. Do nothing if it does not run."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()


class PullConsumer(_Client):
    """A consumer that asks for messages. Offsets are kept in memory, for all pull consumers of the process."""

    _start_error = exceptions.PullConsumerStartFailed

    offset_table: ClassVar[dict[tuple[str, MessageQueue], int]] = {}
    """The next offset of each group in each queue."""

    def __init__(self, group_id: Text) -> None:
        super().__init__(group_id)
        self._consumer: sync.PullConsumer[bytes] | None = None

    def _open(self, config: ClientConfig) -> None:
        self._consumer = sync.PullConsumer(self._group, config).open()

    def shutdown(self) -> None:
        """Stop. Do nothing if it does not run."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def get_message_queue_offset(self, mq: MessageQueue) -> int:
        """Return the offset of the next pull from a queue."""
        return self.offset_table.get((self._group, mq), 0)

    def set_message_queue_offset(self, mq: MessageQueue, offset: int) -> None:
        """Set the offset of the next pull from a queue."""
        self.offset_table[self._group, mq] = offset

    def pull(self, topic: Text, expression: Text = "*", max_num: int = 32) -> Iterator[ReceivedMessage]:
        """Yield the new messages of all queues of a topic, without waiting for more.

        Raises PullConsumerFetchMQFailed and PullConsumerFetchMessageFailed.
        """
        if self._consumer is None:
            raise exceptions.ConsumerException("this consumer is not started")
        wanted = None if _text(expression) == "*" else _text(expression)
        try:
            queues = self._consumer.fetch_subscribe_queues(_text(topic))
        except RocketMQError as error:
            raise exceptions.PullConsumerFetchMQFailed(str(error)) from error
        for queue in queues:
            status = PullStatus.FOUND
            while status is not PullStatus.NO_NEW_MSG:
                try:
                    result = self._consumer.pull(queue, wanted, self.get_message_queue_offset(queue), max_num)
                except RocketMQError as error:
                    raise exceptions.PullConsumerFetchMessageFailed(str(error)) from error
                self.set_message_queue_offset(queue, result.next_begin_offset)
                status = result.status
                yield from map(ReceivedMessage, result.messages)
