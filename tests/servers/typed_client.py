"""A program whose types mypy checks, as an application's would be: every name of the three faces, and common mistakes.

A comment `# refused: CODE` says that mypy refuses the line. Nothing runs it.
"""

from collections.abc import Awaitable
from datetime import timedelta
from typing import assert_type

from rocketd.client import (
    BYTES,
    TEXT,
    Admin,
    ClientConfig,
    Codec,
    ConsumeMessageContext,
    Consumer,
    ConsumeReturnType,
    ConsumerHook,
    Credentials,
    EndTransactionContext,
    FilterMessageContext,
    FlowLimits,
    IRPCHook,
    JsonCodec,
    LitePullConsumer,
    Message,
    MessageQueue,
    MessageType,
    NettyClientConfig,
    Order,
    Producer,
    ProducerHook,
    PullConsumer,
    PullResult,
    PullStatus,
    ReceivedMessage,
    Reject,
    Retry,
    RocketMQError,
    SelectMessageQueueByHash,
    SelectMessageQueueByMachineRoom,
    SelectMessageQueueByRandom,
    SendMessageContext,
    SendResult,
    Sql,
    TlsConfig,
    TransactionListener,
    TransactionSendResult,
    TransactionState,
    aio,
    run,
    sync,
)
from rocketd.client.aio import Consumer as AioConsumer
from rocketd.client.aio import Message as AioMessage
from rocketd.client.aio import run as run_aio
from rocketd.client.once import MemoryStore, once
from rocketd.client.sync import Message as SyncMessage
from rocketd.client.sync import run as run_sync

CONFIG = ClientConfig(namesrv="a:1", credentials=Credentials("key", "secret"))
CODECS: tuple[Codec[bytes], Codec[str]] = (BYTES, TEXT)
SELECTORS = (SelectMessageQueueByHash(), SelectMessageQueueByMachineRoom, SelectMessageQueueByRandom)


class Listener:
    def execute(self, message: Message[str], arg: object, transaction_id: str) -> TransactionState:
        return TransactionState.COMMIT

    def check(self, message: ReceivedMessage[str]) -> TransactionState:
        return TransactionState.COMMIT


LISTENER: TransactionListener[str] = Listener()


@once(MemoryStore(), key=lambda message: message.keys[0])
def pay(message: ReceivedMessage[str]) -> Retry | Reject | None:
    return Reject() if message.body else Retry(delay=timedelta(seconds=3))


@once(MemoryStore())
async def pay_soon(message: ReceivedMessage[str]) -> int:
    return 1


def of_once(message: ReceivedMessage[str]) -> None:
    assert_type(pay(message), Retry | Reject | None)
    answer: Awaitable[int] = pay_soon(message)
    pay("text")  # refused: arg-type
    print(answer)


def of_sync() -> None:
    with sync.Producer("g", CONFIG, codec=TEXT, transactions=LISTENER) as producer:
        result = producer.send(SyncMessage("T", "text"), key="A17")
        assert_type(result, SendResult)
        assert_type(result.queue, MessageQueue)
        assert_type(producer.send_in_transaction(Message("T", "text")), TransactionSendResult)
        producer.send(Message("T", 1))  # refused: arg-type
    with sync.LitePullConsumer("g", CONFIG, topics={"T": Sql("a > 1")}, codec=TEXT) as polled:
        assert_type(polled.poll(timeout=1), list[ReceivedMessage[str]])
        polled.seek(result.queue, "0")  # refused: arg-type
    with sync.PullConsumer("g", CONFIG, codec=TEXT) as pulled:
        found = pulled.pull(result.queue, None, 0)
        assert_type(found, PullResult[str])
        assert_type(found.status, PullStatus)
    with sync.Admin(CONFIG) as admin:
        assert_type(admin.max_offset(result.queue), int)
    run_sync(sync.Consumer("g", CONFIG, topics="T", handler=pay, order="key"))
    sync.Consumer("g", CONFIG, topics="T", order=Order.QUEUE)
    sync.Consumer("g", CONFIG, topics="T", order="queues")  # refused: arg-type
    sync.Consumer("g", CONFIG, topics="T", handler="pay")  # refused: arg-type
    sync.Producer("g", CONFIG, send_timout=3)  # refused: call-arg
    with sync.Consumer("g", CONFIG, topics="T", codec=JsonCodec(list[int])) as lists:
        assert_type(next(lists).body, list[int])
    sync.Producer("g", CONFIG, codec=JsonCodec()).send(Message("T", {"any": "value"}))
    sync.Producer("g", CONFIG, codec=JsonCodec(int)).send(Message("T", "text"))  # refused: arg-type


async def of_aio() -> None:
    async with aio.Producer("g", CONFIG) as producer:
        assert_type(await producer.send(AioMessage("T", b"x"), selector=SelectMessageQueueByHash(), key=1), SendResult)
        assert_type(await producer.send_batch([Message("T", b"x")]), list[SendResult])
        producer.send(Message("T", b"x"))  # refused: unused-coroutine
    async with AioConsumer[dict[str, int]]("g", CONFIG, topics="T", codec=JsonCodec(dict[str, int])) as consumer:
        async for message in consumer:
            assert_type(message.body, dict[str, int])
    async with aio.LitePullConsumer("g", CONFIG, codec=TEXT) as polled, aio.Admin(CONFIG) as admin:
        assert_type(await polled.poll(), list[ReceivedMessage[str]])
        assert_type(await admin.topics(), list[str])
    async with aio.PullConsumer("g", CONFIG, codec=TEXT) as pulled:
        assert_type(await pulled.pull(MessageQueue("T", "a", 0), "TagA", 0), PullResult[str])
    await run_aio(aio.Consumer("g", CONFIG, topics="T", handler=pay_soon, order="queue"))


async def of_twisted() -> None:
    try:
        async with Producer("g", CONFIG) as producer, Admin(CONFIG) as admin:
            assert_type(await producer.send(Message("T", b"x")), SendResult)
            assert_type(await admin.topics(), list[str])
    except RocketMQError as error:
        assert_type(error.retriable, bool)
    async with LitePullConsumer("g", CONFIG) as polled, PullConsumer("g", CONFIG) as pulled:
        assert_type(await polled.poll(), list[ReceivedMessage[bytes]])
        assert_type(await pulled.fetch_consume_offset(MessageQueue("T", "a", 0)), int | None)
    await run(Consumer("g", CONFIG, topics="T", handler=pay))


class Hook(ProducerHook, ConsumerHook):
    def send_after(self, context: SendMessageContext) -> None:
        assert_type(context.message_type, MessageType)

    def end_transaction(self, context: EndTransactionContext) -> None:
        assert_type(context.from_check, bool)

    def filter_messages(self, context: FilterMessageContext) -> None:
        context.messages.clear()

    def consume_after(self, context: ConsumeMessageContext) -> None:
        assert_type(context.return_type, ConsumeReturnType)


def options_of_other_types() -> None:
    ClientConfig(tls=TlsConfig(test_mode_enable=False), remoting=NettyClientConfig(connect_timeout_millis=100))
    sync.Producer[bytes]("g", send_hooks=[Hook()])
    sync.Consumer[bytes]("g", limits=FlowLimits(messages=10), consume_hooks=[Hook()])
    assert IRPCHook.names()
