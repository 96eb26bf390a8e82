"""`rocketd.client.sync` under the loads of `load`."""

import time

import load

from rocketd.client import Message
from rocketd.client.sync import Consumer, Producer


class Loads:
    def __init__(self, producer: Producer, namesrv: str, name: str) -> None:
        self._producer, self._namesrv, self._name = producer, namesrv, name

    def send(self, seconds: str) -> int:
        count, end = 0, time.monotonic() + float(seconds)
        while time.monotonic() < end:
            self._producer.send(Message(load.TOPIC, load.BODY))
            count += 1
        return count

    def batch(self, seconds: str) -> int:
        count, end = 0, time.monotonic() + float(seconds)
        while time.monotonic() < end:
            self._producer.send_batch([Message(load.TOPIC, load.BODY) for _ in range(load.BATCH)])
            count += load.BATCH
        return count

    def consume(self, topic: str, wanted: str) -> int:
        countdown = load.Countdown(int(wanted))
        group = load.new_group(self._name)
        with Consumer(group, self._namesrv, topics=topic, begin="earliest", handler=countdown.handle):
            countdown.wait()
        return int(wanted)


def main() -> None:
    given = load.arguments()
    with Producer(f"{given.name}_producer", given.namesrv) as producer:
        loads = Loads(producer, given.namesrv, given.name)
        load.answer_all({"send": loads.send, "batch": loads.batch, "consume": loads.consume})


if __name__ == "__main__":
    main()
