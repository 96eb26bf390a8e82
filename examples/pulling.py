"""Ask each queue for messages from an offset on, and keep account of the offsets oneself."""

import sys

from rocketd.client import Message, PullStatus
from rocketd.client.sync import Producer, PullConsumer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR
COUNT = 5

with Producer("example_pulling_producer", CLUSTER) as producer:
    for number in range(COUNT):
        producer.send(Message("ExamplePulling", b"%d" % number))

bodies: list[str] = []
with PullConsumer("example_pulling", CLUSTER) as consumer:
    offsets = dict.fromkeys(consumer.fetch_queues_in_balance("ExamplePulling"), 0)  # all, as the group has one member
    while len(bodies) < COUNT:
        for queue, offset in offsets.items():
            result = consumer.pull(queue, None, offset)
            if result.status is PullStatus.FOUND:
                bodies += [message.body.decode() for message in result.messages]
            offsets[queue] = result.next_begin_offset
            consumer.update_consume_offset(queue, result.next_begin_offset)
    consumer.persist_consume_offsets()
    stored = [consumer.fetch_consume_offset(queue, from_store=True) for queue in offsets]
print("pulled", *sorted(bodies))
print("stored", stored == list(offsets.values()))
