"""Send a message and consume it, in a script without any loop."""

import sys

from rocketd.client import Message
from rocketd.client.sync import Consumer, Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR

with Producer("example_sync_producer", CLUSTER) as producer:
    for number in range(3):
        producer.send(Message("ExampleSync", b"message %d" % number))
with Consumer("example_sync", CLUSTER, topics="ExampleSync", begin="earliest") as consumer:
    bodies = sorted(next(consumer).body.decode() for _ in range(3))
print("consumed", ", ".join(bodies))
