"""Transactions of the client with a broker that dies between half message and end, in virtual time."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event, Semaphore

from rocketd.client import Message, TransactionState
from rocketd.client.sync import Consumer, Producer
from rocketd.testing import Cluster

LIMIT = 60.0  # seconds


class Listener:
    """Commits all, but waits in between; asked later, it knows better of some."""

    def __init__(self):
        self.begun = Semaphore(0)
        self.go_on = Event()
        self.asked = []

    def execute(self, message, arg, transaction_id):
        self.begun.release()
        assert self.go_on.wait(LIMIT)
        return TransactionState.COMMIT

    def check(self, message):
        self.asked.append((message.body, message.transaction_id))
        return TransactionState.ROLLBACK if message.body == b"no" else TransactionState.COMMIT


def test_broker_that_died_before_the_end_is_told_after_its_restart():
    play(away=1, asked=(), committed=[b"no", b"yes"])


def test_check_decides_if_broker_died_before_the_end_for_long():
    play(away=60, asked=(b"yes", b"no"), committed=[b"yes"])


def play(away, asked, committed):
    """Kill the broker before the end of two transactions, and restart it after some seconds."""
    listener, bodies = Listener(), []
    with Cluster(topics=["T"]) as cluster, ThreadPoolExecutor(2) as threads:
        options = cluster.client_options()

        def consume(message):
            bodies.append(message.body)

        with (
            Producer("PG", transactions=listener, transaction_threads=2, **options) as producer,
            Consumer("CG", topics="T", handler=consume, begin="earliest", **options),
        ):
            sending = [threads.submit(producer.send_in_transaction, Message("T", body)) for body in (b"yes", b"no")]
            for _ in sending:
                assert listener.begun.acquire(timeout=LIMIT)
            cluster.kill()
            listener.go_on.set()
            sent = [each.result(LIMIT) for each in sending]
            assert [each.state for each in sent] == [TransactionState.COMMIT] * 2
            cluster.advance(seconds=away)
            cluster.restart()
            cluster.advance(seconds=5)
            assert listener.asked == []
            cluster.advance(minutes=3)
            assert sorted(bodies) == committed
            ids = {body: each.msg_id for body, each in zip((b"yes", b"no"), sent, strict=True)}
            assert sorted(listener.asked) == sorted((body, ids[body]) for body in asked)
            cluster.advance(minutes=10)
            assert (sorted(bodies), len(listener.asked)) == (committed, len(asked))


def test_end_on_a_connection_that_breaks_is_told_again():
    listener, bodies = Listener(), []
    listener.go_on.set()
    with Cluster(topics=["T"]) as cluster:
        options = cluster.client_options()
        with Consumer(
            "CG", topics="T", handler=lambda message: bodies.append(message.body), begin="earliest", **options
        ):
            with Producer("PG", transactions=listener, **options) as producer:
                with cluster.drop("end", times=1, what="connection") as lost:
                    producer.send_in_transaction(Message("T", b"yes"))
                    cluster.advance(seconds=5)
                assert lost.dropped == 1
            cluster.advance(seconds=5)  # with no producer left, nobody could answer a check
            assert bodies == [b"yes"]
            assert listener.asked == []
