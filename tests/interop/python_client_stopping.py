"""A Python consumer that ends at SIGTERM: ``python -m tests.interop.python_client_stopping NAMESRV GROUP TOPIC FACE STYLE``.

It prints ``begin BODY`` and ``end BODY`` around the handling of each message, which for the body ``hold`` takes as long as
its standard input says nothing. FACE is sync, aio or twisted; STYLE is handler, iteration, or endless: a handler that does
not end, of a consumer with little ``grace``.
"""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from threading import Condition, Event, Thread

from rocketd import client as twisted_face
from rocketd.client import aio, sync

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 60.0  # seconds
GRACE = {"endless": 0.2}
HOLD = b"hold"


class StoppingMember:
    """Starts a member; ``begun`` and ``ended`` are the bodies with reported start and end of their handling."""

    def __init__(self, namesrv: str, group: str, topic: str, face: str, style: str) -> None:
        self.begun: list[bytes] = []
        self.ended: list[bytes] = []
        self._news = Condition()
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", __name__, namesrv, group, topic, face, style],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, body = line.split()
            with self._news:
                (self.begun if what == "begin" else self.ended).append(body.encode())
                self._news.notify_all()

    def terminate_while_it_holds(self) -> None:
        """Send SIGTERM while it has the message that takes long."""
        with self._news:
            assert self._news.wait_for(lambda: HOLD in self.begun, LIMIT), self.begun
        self._process.send_signal(signal.SIGTERM)

    def go_on(self) -> None:
        """Let the message that takes long be handled to its end."""
        assert self._process.stdin is not None
        self._process.stdin.write("go on\n")
        self._process.stdin.flush()

    def end(self) -> tuple[int, str]:
        """Return exit status and standard error, once it has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        try:
            status = self._process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        finally:
            self._reader.join()
            self._process.stdin.close()
            self._process.stdout.close()
            errors = self._process.stderr.read()
            self._process.stderr.close()
        return status, errors


def say(what, message):
    print(what, message.body.decode(), flush=True)


def handle(message):
    say("begin", message)
    if message.body == HOLD:
        sys.stdin.readline()
    say("end", message)


def handle_endlessly(message):
    say("begin", message)
    if message.body == HOLD:
        Event().wait()
    say("end", message)


async def handle_endlessly_in_the_loop(message):
    say("begin", message)
    if message.body == HOLD:
        await asyncio.Event().wait()
    say("end", message)


def run_sync(consumer, style):
    if style != "iteration":
        sync.run(consumer)
        return
    signal.signal(signal.SIGTERM, lambda *_: consumer.finish())
    with consumer:
        for message in consumer:
            handle(message)


async def run_aio(consumer, style):
    if style != "iteration":
        await aio.run(consumer)
        return
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.finish)
    async with consumer:
        async for message in consumer:
            await asyncio.to_thread(handle, message)


async def run_twisted(reactor, consumer, style):
    if style != "iteration":
        await twisted_face.run(consumer)
        return
    from twisted.internet.defer import Deferred
    from twisted.internet.threads import deferToThread

    left = Deferred()
    reactor.addSystemEventTrigger("before", "shutdown", lambda: (consumer.finish(), left)[1])
    async with consumer:
        async for message in consumer:
            await deferToThread(handle, message)
    left.callback(None)


def main(namesrv, group, topic, face, style):
    module = {"sync": sync, "aio": aio, "twisted": twisted_face}[face]
    handlers = {"handler": handle, "endless": handle_endlessly_in_the_loop if face == "aio" else handle_endlessly}
    consumer = module.Consumer(
        group,
        namesrv,
        topics=topic,
        handler=handlers.get(style),
        begin="earliest",
        order="queue",
        grace=GRACE.get(style, LIMIT),
    )
    if face == "sync":
        run_sync(consumer, style)
    elif face == "aio":
        asyncio.run(run_aio(consumer, style))
    else:
        from twisted.internet.task import react

        react(run_twisted, (consumer, style))


if __name__ == "__main__":
    main(*sys.argv[1:])
