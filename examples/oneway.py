"""Send without waiting for an answer: fast, and nobody says whether a message was stored."""

import sys

from rocketd.client import Message
from rocketd.client.sync import Consumer, Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR

with Producer("example_oneway_producer", CLUSTER, send_timeout=30) as producer:
    producer.send(Message("ExampleOneway", b"makes the topic"))
    for number in range(9):
        producer.send_oneway(Message("ExampleOneway", b"line %d" % number))
with Consumer("example_oneway", CLUSTER, topics="ExampleOneway", begin="earliest") as consumer:
    print("consumed", len([next(consumer) for _ in range(10)]), "messages")
