"""Sign requests, for brokers with aclEnable=true. The account's name and secret come from the environment."""

import os
import sys

from rocketd.client import ClientConfig, Credentials, Message, RocketMQError
from rocketd.client.sync import Consumer, Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR
ACCOUNT = Credentials(os.environ.get("ACCESS_KEY", "RocketMQ"), os.environ.get("SECRET_KEY", "12345678"))

config = ClientConfig(namesrv=CLUSTER, credentials=ACCOUNT)
with Producer("example_acl_producer", config) as producer:
    producer.send(Message("ExampleAcl", b"signed"))
with Consumer("example_acl", config, topics="ExampleAcl", begin="earliest") as consumer:
    print("consumed", next(consumer).body.decode())
with Producer("example_acl_producer", CLUSTER) as producer:
    try:
        producer.send(Message("ExampleAcl", b"not signed"))
        print("the broker asks for no signatures")
    except RocketMQError as error:
        print("without a signature:", type(error).__name__, error.code)
