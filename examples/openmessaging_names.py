"""Send and consume under the names of OpenMessaging, for programs that come from there."""

import os
import sys

from rocketd.client.openmessaging import CONSUME_FROM, CONSUMER_ID, MESSAGE_ID, MessagingAccessPoint

CLUSTER = sys.argv[1] if len(sys.argv) > 1 else os.environ["NAMESRV_ADDR"]

access_point = MessagingAccessPoint(f"oms:rocketmq://{CLUSTER}/default:default")
producer = access_point.createProducer()
producer.startup()
sent = producer.send(producer.createBytesMessage("ExampleOms", b"hello"))
also_sent = producer.sendAsync(producer.createBytesMessage("ExampleOms", b"hello again")).result()
producer.shutdown()

consumer = access_point.createPullConsumer({CONSUMER_ID: "example_oms", CONSUME_FROM: "earliest"})
consumer.attachQueue("ExampleOms")
consumer.startup()
wanted = {sent.messageId, also_sent.messageId}
while wanted:
    message = consumer.receive()
    if message is not None:
        print(message.body.decode()) if message.sysHeaders[MESSAGE_ID] in wanted else None
        wanted.discard(message.sysHeaders[MESSAGE_ID])
        consumer.ack(message.sysHeaders[MESSAGE_ID])
consumer.shutdown()
