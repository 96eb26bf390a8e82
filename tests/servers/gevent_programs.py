"""Programs of test_client_hosting.py in which gevent has patched the standard library: in time, too late, or in part."""

import os
import sys
import warnings

import gevent
from gevent import monkey

if __name__ == "__main__":
    program, name_server = sys.argv[1:]
    if program == "patched_late":
        import rocketd.client  # noqa: F401
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if program == "patched_late" else "error")
        monkey.patch_all(thread=program != "patched_in_part")

from time import sleep

from rocketd.client import Message
from rocketd.client.errors import UsageError
from tests.servers.hosting_programs import (
    SECONDS,
    TOPIC,
    aio,
    exchange,
    group,
    nothing_is_left,
    pair,
    sync,
    text,
    threading,
)


def patched(address):
    """Greenlets share a producer, handlers are greenlets, and others run while these wait."""
    ticks = []

    def tick():
        while True:
            sleep(0.001)
            ticks.append(None)

    ticking = gevent.spawn(tick)
    bodies, got, done = {text() for _ in range(50)}, set(), threading.Event()

    def handle(message):
        if message.body in bodies:
            sleep(0.001)
            got.add(message.body)
            if got == bodies:
                done.set()

    producer, consumer = pair(sync, address.replace("127.0.0.1", "localhost"), tls="unverified")
    with producer, consumer, sync.Consumer(group(), address, topics=TOPIC, begin="earliest", handler=handle):
        before = len(ticks)
        gevent.joinall([gevent.spawn(producer.send, Message(TOPIC, body)) for body in bodies], raise_error=True)
        exchange(producer, consumer)
        assert done.wait(SECONDS)
        assert len(ticks) > before
    ticking.kill()
    assert threading.active_count() == 1
    pair(sync, address)[0].open()  # and left to the interpreter's exit


def patched_late(address):
    refused(address, "first of all")


def patched_in_part(address):
    refused(address, "patched queue, select, socket, time, but not threading")


def refused(address, words):
    for face in (sync, aio):
        for client in pair(face, address):
            try:
                opening = client.open()
                if face is aio:
                    opening.send(None)
            except UsageError as error:
                if words not in str(error):
                    raise
            else:
                raise AssertionError(f"{client} was opened")
    assert nothing_is_left()


def application(environ, start_response):
    """A WSGI application for gunicorn's gevent workers, of which many requests run at once."""
    global of_worker
    with opening:
        if of_worker is None:
            of_worker, _ = pair(sync, os.environ["GEVENT_NAME_SERVER"])
            of_worker.open()
    with pair(sync, os.environ["GEVENT_NAME_SERVER"])[1] as consumer:
        exchange(of_worker, consumer)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"exchanged"]


of_worker, opening = None, threading.Lock()


if __name__ == "__main__":
    globals()[program](name_server)
    print("right", flush=True)
