"""Blocking sends in the calling threads while a real broker is killed and started again."""

import threading
from collections import Counter

from rocketd.client import Message
from rocketd.client.errors import RocketMQError
from rocketd.client.sync import LitePullConsumer, Producer
from tests.support.server_processes import TOPIC, ServerProcesses

SECONDS = 60.0
THREADS = 4


def test_direct_sends_survive_a_killed_broker(tmp_path):
    servers = ServerProcesses(tmp_path)
    acknowledged, failed = [], Counter()
    enough = threading.Event()

    def send(number):
        count = 0
        while not enough.is_set():
            count += 1
            body = b"%d-%d" % (number, count)
            try:
                producer.send(Message(TOPIC, body))
                acknowledged.append(body)
            except RocketMQError as error:
                failed[type(error).__name__] += 1
                enough.wait(0.02)

    def wait_for_more(count):
        wanted = len(acknowledged) + count
        servers.processes[-1].wait_for("sends are answered", lambda: len(acknowledged) >= wanted, SECONDS)

    try:
        servers.start_namesrv()
        broker = servers.start_broker()
        with Producer("direct", servers.namesrv_address, send_timeout=SECONDS) as producer:
            threads = [threading.Thread(target=send, args=(number,)) for number in range(THREADS)]
            for thread in threads:
                thread.start()
            wait_for_more(200)
            assert 0 < len(producer._direct.pool) <= THREADS
            broker.kill()
            servers.start_broker()
            wait_for_more(200)
            servers.processes[-1].wait_for("threads send again", lambda: len(producer._direct.pool), SECONDS)
            wait_for_more(200)
            assert 0 < len(producer._direct.pool) <= THREADS
            enough.set()
            for thread in threads:
                thread.join(SECONDS)
        assert "UnreachableError" not in failed  # sends wait for the broker within their timeout
        stored = Counter()
        with LitePullConsumer("reader", servers.namesrv_address, topics=TOPIC, begin="earliest") as consumer:
            while not stored.keys() >= set(acknowledged):
                messages = consumer.poll(SECONDS)
                assert messages, "acknowledged messages are missing"
                stored.update(message.body for message in messages)
        assert max(stored.values()) <= 1 + producer.retries
    finally:
        enough.set()
        servers.kill_all()
