"""mqadmin finds in rocketd, as in Apache's broker, the traces of messages sent and consumed by the Python client."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from queue import SimpleQueue

import pytest

from rocketd.client import Message, ReceivedMessage, Retry, TransactionState
from rocketd.client.sync import Consumer, LitePullConsumer, Producer, PullConsumer
from rocketd.client.trace.records import TraceType, decode_records
from tests.interop.mqadmin_sides import Both, Side

TOPIC, TRACES, CONSUMERS = "PythonTraced", "PythonTraces", "python-traced"
ASKED = "Asked"  # a tag
LIMIT = 60  # seconds


class Ledger:
    """Local transactions that all succeed."""

    def execute(self, message: Message, arg: object, transaction_id: str) -> TransactionState:
        return TransactionState.COMMIT

    def check(self, message: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN


def _send_and_consume(side: Side, clients: ExitStack) -> dict[str, str]:
    """One message of each kind, sent and consumed with traces by the Python client; their unique keys."""
    got: SimpleQueue[bytes] = SimpleQueue()

    def handle(message: ReceivedMessage) -> None:
        got.put(message.body)
        if message.body == b"refused" and not message.reconsume_times:
            raise Retry(1)

    open_client = clients.enter_context
    producer = open_client(Producer("python-tracers", side.namesrv, trace=True, transactions=Ledger()))
    other = open_client(Producer("python-tracers", side.namesrv, trace=TRACES, transactions=Ledger()))
    open_client(Consumer(CONSUMERS, side.namesrv, topics=TOPIC, begin="earliest", trace=True, handler=handle))
    ids = {
        "plain": producer.send(Message(TOPIC, b"plain", tags="TagA", keys=["plain-key"])).msg_id,
        "refused": producer.send(Message(TOPIC, b"refused")).msg_id,
        "transaction": producer.send_in_transaction(Message(TOPIC, b"transaction")).send_result.msg_id,
        "polled": producer.send(Message(TOPIC, b"polled", tags=ASKED)).msg_id,
        "elsewhere": other.send_in_transaction(Message(TOPIC, b"elsewhere")).send_result.msg_id,
    }
    bodies = sorted(got.get(timeout=LIMIT) for _ in range(6))
    assert bodies == [b"elsewhere", b"plain", b"polled", b"refused", b"refused", b"transaction"]
    lite = open_client(
        LitePullConsumer("python-polled", side.namesrv, topics={TOPIC: ASKED}, begin="earliest", trace=True)
    )
    puller = open_client(PullConsumer("python-pulled", side.namesrv, trace=True))
    (queue,) = puller.fetch_subscribe_queues(TOPIC)
    assert [message.body for message in lite.poll(LIMIT)] == [b"polled"]
    lite.poll(0)  # the messages of the last poll count as handled then
    assert [message.body for message in puller.pull(queue, ASKED, 0).messages] == [b"polled"]
    return ids


@pytest.fixture(scope="module")
def traced(both: Both) -> Iterator[Callable[[str], dict[str, str]]]:
    """The unique key of a message of a kind, at each side. The clients are open as long."""
    for topic in (TOPIC, TRACES):
        both.same("updateTopic", "-b", "BROKER", "-t", topic, "-r", "1", "-w", "1")
    for group in (CONSUMERS, "python-polled", "python-pulled"):
        both.same("updateSubGroup", "-b", "BROKER", "-g", group)
    kinds = (both.apache.kind, both.rocketd.kind)
    with ExitStack() as clients:
        sent = both.each(lambda side: _send_and_consume(side, clients))
        ids = dict(zip(kinds, sent, strict=True))
        yield lambda message: {kind: ids[kind][message] for kind in kinds}
    # How long something took stands in the traces in digits, one or more.
    both.level()


def _told(both: Both, ids: dict[str, str], lines: int, *words: str) -> list[str]:
    """Return mqadmin's lines about a message once there are so many: type, group and status."""
    wanted = rf"(?s)((Pub|Sub) .*){{{lines}}}"
    printed = both.become_same(
        "queryMsgTraceById", "-i", ids, *words, in_any_order=True, wanted=wanted, change=_without_cost, limit=LIMIT
    )
    told = [line.split() for line in printed.splitlines()]
    return sorted(f"{line[0]} {line[1]} {line[-1]}" for line in told if line and line[0] in ("Pub", "Sub"))


def _without_cost(printed: str) -> str:
    """How long it took."""
    return re.sub(r"\b\d+ms\b", "COST", printed)


def test_sent_and_consumed(both: Both, traced: Callable[[str], dict[str, str]]) -> None:
    assert _told(both, traced("plain"), 2) == ["Pub python-tracers success", "Sub python-traced success"]


def test_consumed_at_the_second_try(both: Both, traced: Callable[[str], dict[str, str]]) -> None:
    told = ["Pub python-tracers success", "Sub python-traced failed", "Sub python-traced success"]
    assert _told(both, traced("refused"), 3) == told


def test_polled_and_pulled(both: Both, traced: Callable[[str], dict[str, str]]) -> None:
    told = ["Pub python-tracers success", *(f"Sub python-{how} success" for how in ("polled", "pulled", "traced"))]
    assert _told(both, traced("polled"), 4) == told


def test_sent_in_a_transaction(both: Both, traced: Callable[[str], dict[str, str]]) -> None:
    assert _told(both, traced("transaction"), 2) == ["Pub python-tracers success", "Sub python-traced success"]


def test_trace_goes_to_chosen_topic(both: Both, traced: Callable[[str], dict[str, str]]) -> None:
    assert _told(both, traced("elsewhere"), 1, "-t", TRACES) == ["Pub python-tracers success"]
    assert both.each(_ends_of_transactions) == (["COMMIT_MESSAGE"], ["COMMIT_MESSAGE"])


def _ends_of_transactions(side: Side) -> list[str]:
    """How transactions have ended, as the topic tells that has traces of one send; mqadmin does not show it."""
    ends: SimpleQueue[str] = SimpleQueue()

    def handle(message: ReceivedMessage) -> None:
        for context in decode_records(message.body.decode()):
            if context.trace_type is TraceType.END_TRANSACTION:
                ends.put(context.beans[0].transaction_state)

    with Consumer("python-trace-readers", side.namesrv, topics=TRACES, begin="earliest", handler=handle):
        return [ends.get(timeout=LIMIT)]
