"""Transactions of the client whose broker dies between half message and end, in virtual time."""

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


def test_the_check_decides_where_the_broker_died_before_the_end():
    listener, bodies = Listener(), []
    with Cluster(topics=["T"]) as cluster, ThreadPoolExecutor(2) as threads:
        options = cluster.client_options()

        def consume(message):
            bodies.append(message.body)

        with (
            Producer("PG", transactions=listener, transaction_threads=2, **options) as producer,
            Consumer("CG", topics="T", handler=consume, start="earliest", **options),
        ):
            sending = [threads.submit(producer.send_in_transaction, Message("T", body)) for body in (b"yes", b"no")]
            for _ in sending:
                assert listener.begun.acquire(timeout=LIMIT)
            cluster.kill()
            listener.go_on.set()
            sent = [each.result(LIMIT) for each in sending]
            assert [each.state for each in sent] == [TransactionState.COMMIT] * 2
            cluster.restart()
            cluster.advance(seconds=5)
            assert listener.asked == []
            cluster.advance(minutes=3)
            assert bodies == [b"yes"]
            ids = [each.send_result.msg_id for each in sent]
            assert sorted(listener.asked) == sorted(zip((b"yes", b"no"), ids, strict=True))
            cluster.advance(minutes=10)
            assert (bodies, len(listener.asked)) == ([b"yes"], 2)
