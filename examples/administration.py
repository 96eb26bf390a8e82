"""Make a topic, look at its queues, find a message again, set a group's offsets, and delete the topic."""

import sys
from time import sleep

from rocketd.client import Message
from rocketd.client.sync import Admin, Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR

with Admin(CLUSTER) as admin, Producer("example_admin_producer", CLUSTER) as producer:
    admin.create_topic("ExampleAdmin", queues=2)
    sent = producer.send(Message("ExampleAdmin", b"a needle", keys=["sharp"]))
    while admin.max_offset(sent.queue) == 0:  # until the broker has put it into its queue
        sleep(0.05)
    print("queues", len(admin.fetch_publish_queues("ExampleAdmin")))
    print("offsets", admin.min_offset(sent.queue), admin.max_offset(sent.queue))
    found = admin.view_message("ExampleAdmin", sent.offset_msg_id)
    assert found is not None
    print("found", found.body.decode(), found.keys)
    print("reset to", *sorted(admin.reset_offsets("example_admin", "ExampleAdmin", "latest").values()))
    admin.delete_topic("ExampleAdmin")
    while "ExampleAdmin" in admin.topics():
        sleep(0.05)
    print("deleted")
