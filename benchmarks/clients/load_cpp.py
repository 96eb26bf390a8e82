"""Apache's C++ client under the loads of `load`, through the wheel that carries it.

What it sends as a batch, brokers store as one message: it says ``batch=1``, and for them only ``true`` is true.
"""

import os
import threading
import time

import load
from rocketmq.client import Message, Producer, PushConsumer, SendStatus


def message() -> Message:
    built = Message(load.TOPIC)
    built.set_body(load.BODY)
    return built


class Loads:
    def __init__(self, producer: Producer, namesrv: str, name: str) -> None:
        self._producer, self._namesrv, self._name = producer, namesrv, name

    def send(self, seconds: str) -> int:
        count, end = 0, time.monotonic() + float(seconds)
        while time.monotonic() < end:
            assert self._producer.send_sync(message()).status == SendStatus.OK
            count += 1
        return count

    def window(self, seconds: str) -> int:
        free = threading.Semaphore(load.WINDOW)
        sent: list[object] = []
        failed: list[Exception] = []

        def done(_: object) -> None:
            sent.append(None)
            free.release()

        def fail(error: Exception) -> None:
            failed.append(error)
            free.release()

        end = time.monotonic() + float(seconds)
        while time.monotonic() < end:
            free.acquire()
            self._producer.send_async(message(), done, fail)
        for _ in range(load.WINDOW):
            free.acquire()
        if failed:
            raise failed[0]
        return len(sent)

    def batch(self, seconds: str) -> int:
        count, end = 0, time.monotonic() + float(seconds)
        while time.monotonic() < end:
            assert self._producer.send_batch([message() for _ in range(load.BATCH)]).status == SendStatus.OK
            count += load.BATCH
        return count

    def consume(self, topic: str, wanted: str) -> int:
        countdown = load.Countdown(int(wanted))
        consumer = PushConsumer(load.new_group(self._name))
        consumer.set_namesrv_addr(self._namesrv)
        consumer.subscribe(topic, countdown.handle)
        consumer.start()
        try:
            countdown.wait()
        finally:
            consumer.shutdown()
        return int(wanted)


def main() -> None:
    given = load.arguments()
    producer = Producer(f"{given.name}_producer")
    producer.set_namesrv_addr(given.namesrv)
    producer.start()
    loads = Loads(producer, given.namesrv, given.name)
    kinds = {"send": loads.send, "window": loads.window, "batch": loads.batch, "consume": loads.consume}
    load.answer_all(kinds)
    # The interpreter's own end would wait for threads of the library.
    os._exit(0)


if __name__ == "__main__":
    main()
