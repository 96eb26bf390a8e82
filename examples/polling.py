"""Ask for messages when it suits, with a share of the queues, and say oneself what is consumed."""

import sys

from rocketd.client import Message
from rocketd.client.sync import LitePullConsumer, Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR
COUNT = 5

with Producer("example_polling_producer", CLUSTER) as producer:
    for number in range(COUNT):
        producer.send(Message("ExamplePolling", b"%d" % number))


def poll_all(consumer: LitePullConsumer) -> list[str]:
    """Poll until everything came."""
    bodies: list[str] = []
    while len(bodies) < COUNT:
        bodies += [message.body.decode() for message in consumer.poll(timeout=1)]
    return sorted(bodies)


with LitePullConsumer(
    "example_polling", CLUSTER, topics="ExamplePolling", begin="earliest", auto_commit=False
) as consumer:
    print("polled", *poll_all(consumer))
    for queue in consumer.queues():
        consumer.seek_to_begin(queue)
    print("again", *poll_all(consumer))
    consumer.commit()
    print("committed", sum(consumer.committed(queue) or 0 for queue in consumer.queues()))
