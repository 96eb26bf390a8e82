"""`rocketd.client.aio` under the loads of `load`."""

import asyncio
import time

import load

from rocketd.client import Message
from rocketd.client.aio import Consumer, Producer


class Loads:
    def __init__(self, producer: Producer, namesrv: str, name: str) -> None:
        self._producer, self._namesrv, self._name = producer, namesrv, name

    async def send(self, seconds: str) -> int:
        count, end = 0, time.monotonic() + float(seconds)
        while time.monotonic() < end:
            await self._producer.send(Message(load.TOPIC, load.BODY))
            count += 1
        return count

    async def window(self, seconds: str) -> int:
        return sum(await asyncio.gather(*(self.send(seconds) for _ in range(load.WINDOW))))

    async def batch(self, seconds: str) -> int:
        count, end = 0, time.monotonic() + float(seconds)
        while time.monotonic() < end:
            await self._producer.send_batch([Message(load.TOPIC, load.BODY) for _ in range(load.BATCH)])
            count += load.BATCH
        return count

    async def consume(self, topic: str, wanted: str) -> int:
        enough = asyncio.Event()
        left = int(wanted)

        async def handle(_: object) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                enough.set()

        group = load.new_group(self._name)
        async with Consumer(group, self._namesrv, topics=topic, begin="earliest", handler=handle):
            await enough.wait()
        return int(wanted)


def main() -> None:
    given = load.arguments()
    with asyncio.Runner() as runner:
        producer = Producer(f"{given.name}_producer", given.namesrv)
        runner.run(producer.open())
        loads = Loads(producer, given.namesrv, given.name)

        def run(kind):
            return lambda *words: runner.run(kind(*words))

        load.answer_all({kind: run(getattr(loads, kind)) for kind in ("send", "window", "batch", "consume")})
        runner.run(producer.close())


if __name__ == "__main__":
    main()
