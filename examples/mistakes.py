"""Catch what goes wrong: each kind has an exception of its own, below RocketMQError."""

import sys

from rocketd.client import Message, RocketMQError
from rocketd.client.sync import Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR

producer = Producer("example_mistakes_producer", CLUSTER, send_timeout=2)


def send_after_the_end() -> None:
    """Use a closed client."""
    producer.close()
    producer.send(Message("ExampleMistakes", b"x"))


attempts = {
    "not opened": lambda: producer.send(Message("ExampleMistakes", b"x")),
    "group": lambda: Producer("no such name!", CLUSTER),
    "topic": lambda: producer.open().send(Message("no topic", b"x")),
    "too large": lambda: producer.send(Message("ExampleMistakes", bytes(5 << 20))),
    "system's topic": lambda: producer.send(Message("SCHEDULE_TOPIC_XXXX", b"x")),
    "no name server": lambda: Producer("example_nowhere", "127.0.0.1:1").open().send(Message("T", b"x")),
    "closed": send_after_the_end,
}
for what, attempt in attempts.items():
    try:
        attempt()
    except RocketMQError as error:
        print(f"{what}: {type(error).__name__}, {'later perhaps' if error.retriable else 'never'}")
