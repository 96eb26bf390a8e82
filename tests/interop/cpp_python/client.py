"""The interop ring's C++ program: send and consume with Apache's C++ client, through the wheel that carries it."""

import argparse
import json
import sys
import threading

from rocketmq.client import Message, Producer, PushConsumer, SendStatus

# All that the sender sets: this client can look a property up but not list them.
USER_PROPERTIES = ("index", "from")


def print_line(fields):
    sys.stdout.write(json.dumps(fields, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def message(topic, index):
    built = Message(topic)
    built.set_body(f"message {index}: žluťoučký kůň, 消息, 🚀")
    built.set_tags("TagB" if index % 2 else "TagA")
    built.set_keys(f"key-{index}")
    built.set_property("index", str(index))
    built.set_property("from", "cpp")
    return built


def send(options):
    producer = Producer(options.group)
    producer.set_namesrv_addr(options.namesrv)
    producer.start()
    try:
        for index in range(options.count):
            result = producer.send_sync(message(options.topic, index))
            status = "SEND_OK" if result.status == SendStatus.OK else result.status.name
            print_line({"index": index, "msgId": result.msg_id, "queueOffset": result.offset, "status": status})
    finally:
        producer.shutdown()
    return 0


def consume(options):
    distinct = set()
    lock = threading.Lock()
    enough = threading.Event()

    def take(received):
        index = int(received.get_property("index"))
        fields = {
            "index": index,
            "body": received.body.decode(),
            "tags": received.tags.decode(),
            "keys": received.keys.decode(),
            "properties": {name: received.get_property(name).decode() for name in USER_PROPERTIES},
            "queueId": received.queue_id,
            "queueOffset": received.queue_offset,
            "reconsumeTimes": received.reconsume_times,
        }
        with lock:
            print_line(fields)
            distinct.add(index)
            if len(distinct) == options.count:
                enough.set()

    consumer = PushConsumer(options.group)
    consumer.set_namesrv_addr(options.namesrv)
    consumer.subscribe(options.topic, take, options.tag)
    consumer.start()
    try:
        return 0 if enough.wait(options.timeout) else 1
    finally:
        consumer.shutdown()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["send", "consume"])
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--tag", default="*")
    options = parser.parse_args()
    return {"send": send, "consume": consume}[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
