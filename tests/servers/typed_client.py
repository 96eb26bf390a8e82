"""A program for type checkers, as an application's: every name of the three faces, and common mistakes.

A comment `# refused: CODE` says that mypy refuses the line; pyright does so as well. Nothing runs it.
"""

from collections.abc import Awaitable
from datetime import datetime, timedelta
from typing import assert_type

from rocketd.client import (
    BYTES,
    TEXT,
    Admin,
    BrokerAccount,
    ClientConfig,
    Codec,
    ConsumeMessageContext,
    Consumer,
    ConsumeReturnType,
    ConsumerHook,
    ConsumerStats,
    Credentials,
    DeadLetter,
    EndTransactionContext,
    FilterMessageContext,
    FlowLimits,
    GroupClient,
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
    ProducerStats,
    PullConsumer,
    PullResult,
    PullStatus,
    QueueEnds,
    QueueProgress,
    ReceivedMessage,
    RedriveResult,
    RedriveTarget,
    Reject,
    RequestHook,
    Retry,
    RocketMQError,
    SelectMessageQueueByHash,
    SelectMessageQueueByRandom,
    SendMessageContext,
    SendResult,
    SendStatus,
    ServerAnswer,
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
from rocketd.client.codecs import MsgspecCodec, PydanticCodec
from rocketd.client.once import MemoryStore, once
from rocketd.client.sync import Message as SyncMessage
from rocketd.client.sync import run as run_sync
from rocketd.remoting.wire.command import RemotingCommand

CONFIG = ClientConfig(namesrv="a:1", credentials=Credentials("key", "secret"))
CODECS: tuple[Codec[bytes], Codec[str]] = (BYTES, TEXT)
SELECTORS = (SelectMessageQueueByHash(), SelectMessageQueueByRandom)


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


def see(queues: list[MessageQueue]) -> None:
    print(queues[0].topic)


async def see_soon(queues: list[MessageQueue]) -> None:
    see(queues)


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
        assert_type(result.status, SendStatus)
        assert_type(producer.stats(), ProducerStats)
        assert_type(producer.send_in_transaction(Message("T", "text")), TransactionSendResult)
        producer.send(Message("T", 1))  # refused: arg-type
    with sync.LitePullConsumer("g", CONFIG, topics={"T": Sql("a > 1")}, codec=TEXT) as polled:
        assert_type(polled.poll(timeout=1), list[ReceivedMessage[str]])
        assert_type(polled.stats(), ConsumerStats)
        polled.seek(result.queue, "0")  # refused: arg-type
        polled.seek(result.queue, "earliest")
        assert_type(next(polled), ReceivedMessage[str])
    with sync.Consumer("g", CONFIG, topics="T", codec=TEXT, on_assigned=see, on_revoked=see_soon) as consumer:
        consumer.seek(result.queue, datetime.now())
        consumer.seek(result.queue, None)  # refused: arg-type
        consumer.commit({result.queue: 7})
        assert_type(consumer.committed(result.queue), int | None)
        assert_type(consumer.position(result.queue), int)
        assert_type(consumer.lag(), dict[MessageQueue, int])
        assert_type(next(consumer).extend(timedelta(minutes=1)), bool)
    sync.LitePullConsumer("g", CONFIG, on_lost=of_once)  # refused: arg-type
    with sync.PullConsumer("g", CONFIG, codec=TEXT) as pulled:
        found = pulled.pull(result.queue, None, 0)
        assert_type(found, PullResult[str])
        assert_type(found.status, PullStatus)
    assert_type(MsgspecCodec(Order).decode(b"{}"), Order)
    sync.Producer[int]("g", CONFIG, codec=PydanticCodec(int), compression="zstd")
    sync.Producer[int]("g", CONFIG, codec=PydanticCodec(str))  # refused: arg-type
    with sync.Admin(CONFIG) as admin:
        assert_type(admin.max_offset(result.queue), int)
        assert_type(next(iter(admin.dead_letters("g"))), DeadLetter)
        target: RedriveTarget = "topic"
        assert_type(admin.redrive("g", to=target), RedriveResult)
        assert_type(admin.consumers("g"), list[GroupClient])
        assert_type(admin.ask("broker-a", 9001, {"who": "you"}), ServerAnswer)
        assert_type(admin.accounts("b"), list[BrokerAccount])
        assert_type(admin.topic_stats("T"), dict[MessageQueue, QueueEnds])
        assert_type(admin.group_progress("g"), dict[MessageQueue, QueueProgress])
        assert_type(sync.Admin(CONFIG).start(), sync.Admin)
        admin.stop()
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
        assert_type(await polled.lag(), dict[MessageQueue, int])
        async for text in polled:
            assert_type(text.body, str)
        assert_type(await admin.topics(), list[str])
        assert_type(await aio.Admin(CONFIG).start(), aio.Admin)
        await admin.stop()
    async with aio.PullConsumer("g", CONFIG, codec=TEXT) as pulled:
        assert_type(await pulled.pull(MessageQueue("T", "a", 0), "TagA", 0), PullResult[str])
    await run_aio(aio.Consumer("g", CONFIG, topics="T", handler=pay_soon, order="queue"))


async def of_twisted() -> None:
    try:
        async with Producer("g", CONFIG) as producer, Admin(CONFIG) as admin:
            assert_type(await producer.send(Message("T", b"x")), SendResult)
            assert_type(await admin.topics(), list[str])
            assert_type(await Admin(CONFIG).start(), Admin)
            await admin.stop()
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


class Marking:
    def before_request(self, address: str, request: RemotingCommand) -> None:
        assert_type(request.code, int)

    def after_response(self, address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        pass


def options_of_other_types() -> None:
    marking: RequestHook = Marking()
    ClientConfig(hooks=[marking, Marking()])
    ClientConfig(hooks=[Hook()])  # refused: list-item
    ClientConfig(tls=TlsConfig(test_mode_enable=False), remoting=NettyClientConfig(connect_timeout_millis=100))
    sync.Producer[bytes]("g", send_hooks=[Hook()])
    sync.Consumer[bytes]("g", limits=FlowLimits(messages=10), consume_hooks=[Hook()])
    assert IRPCHook.__name__
