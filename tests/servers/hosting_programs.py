"""Programs of test_client_hosting.py: each is a process of its own, which is told the address of a name server.

A program prints one word when all is as it should be; warnings are errors, and nothing may be on standard error. Each
uses the clients of an application, against a real broker.
"""

import asyncio
import gc
import importlib
import logging
import multiprocessing
import os
import pkgutil
import sys
import threading
from itertools import count
from time import monotonic

from twisted.internet.defer import Deferred

import rocketd.client as twisted_face
from rocketd.client import ClientConfig, Message, MessageQueue, aio, sync
from rocketd.client.errors import ForkedClientError
from rocketd.client.faces.lifecycle import Face

SECONDS = 60.0
AT_ONCE = 30.0  # seconds: far below what a client would wait for an answer
TOPIC = "Hosting"
_numbers = count(1)


def group():
    """A group that no other program, process or client has."""
    return f"hosting-{os.getpid()}-{next(_numbers)}"


def text():
    return group().encode()


def run_loop(main, **options):
    """Run a coroutine function with asyncio.

    A loop in debug mode reports each step of more than 0.1 seconds, which a process on a busy machine may take to start.
    """

    async def patient_main():
        asyncio.get_running_loop().slow_callback_duration = AT_ONCE
        return await main()

    return asyncio.run(patient_main(), **options)


def pair(face, address, **options):
    """A producer, and a consumer to iterate over, that are only made."""
    config = ClientConfig(namesrv=address, **options)
    return face.Producer(group(), config, send_timeout=SECONDS), face.Consumer(
        group(), config, topics=TOPIC, begin="earliest"
    )


def exchange(producer, consumer):
    """Send a message, and consume it."""
    body = text()
    producer.send(Message(TOPIC, body))
    assert any(message.body == body for message in consumer)


async def exchange_async(producer, consumer):
    """Send a message, and consume it: with asyncio, and with Twisted."""
    body = text()
    await producer.send(Message(TOPIC, body))
    async for message in consumer:
        if message.body == body:
            return
    raise AssertionError("the iteration has ended")


def no_reactor_is_installed():
    return "twisted.internet.reactor" not in sys.modules


def links():
    names = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return [os.readlink(name) for name in names if os.path.islink(name)]


def nothing_is_left():
    """Whether there is nothing but what a program begins with: its thread, and what it reads from and writes to."""
    gc.collect()
    # libffi from 3.5 on keeps its own file open.
    left = [*threading.enumerate()[1:], *(link for link in links()[3:] if "/libffi." not in link)]
    assert not left, left
    return no_reactor_is_installed()


# ------------------------------------------------------------ what importing and making begin


def imports(address):
    """Neither importing all there is nor making clients of every kind begins anything."""
    for module in pkgutil.walk_packages(twisted_face.__path__, "rocketd.client."):
        importlib.import_module(module.name)
    for module in ("rocketd.testing", "rocketd.faststream", "rocketd.kombu"):
        importlib.import_module(module)
    assert nothing_is_left()

    from rocketd.client.logging_handler import RocketMQHandler
    from rocketd.client.openmessaging import MessagingAccessPoint

    kept = []
    for face in (twisted_face, aio, sync):
        exported = [getattr(face, name) for name in face.__all__]
        clients = {value for value in exported if isinstance(value, type) and issubclass(value, Face)}
        assert {each.__name__ for each in clients} == {
            "Admin",
            "Consumer",
            "LitePullConsumer",
            "Producer",
            "PullConsumer",
        }
        for client in clients:
            arguments = () if client is face.Admin else (group(),)
            kept.append(client(*arguments, address))
            kept.append(client(*arguments, ClientConfig(namesrv=address, tls="unverified", instance_name="one")))
        kept.extend(pair(face, address))
        kept.append(face.Consumer(group(), address, topics=TOPIC, handler=print, order="key", concurrency=4))
        kept.append(face.Producer(group(), address, trace=True))
    access_point = MessagingAccessPoint(f"oms:rocketmq://{address}/default:default")
    kept.extend((access_point.createProducer(), RocketMQHandler(TOPIC, cluster=address)))
    assert nothing_is_left()
    kept.clear()
    assert nothing_is_left()


# ------------------------------------------------------------ in one process


def thread(address):
    """Clients in the background, plain and with TLS, by address and by host name."""
    for target in (address, address.replace("127.0.0.1", "localhost")):
        for tls in (False, "unverified"):
            producer, consumer = pair(sync, target, tls=tls)
            with producer, consumer:
                exchange(producer, consumer)
    assert nothing_is_left()


def never_stopped(address):
    """Clients with open connections, handlers and a pool are left to the interpreter's exit."""
    producer, consumer = pair(sync, address.replace("127.0.0.1", "localhost"))
    exchange(producer.open(), consumer.open())
    handled = threading.Event()
    sync.Consumer(group(), address, topics=TOPIC, begin="earliest", handler=lambda message: handled.set()).open()
    assert handled.wait(SECONDS)
    worker = threading.Thread(target=lambda: producer.send(Message(TOPIC, b"late")).queue or os._exit(3))
    worker.start()  # outlives the main thread


def stuck_pool(address):
    """The exit waits for no thread of the pool, where a look-up of a host name may hang."""
    producer, _ = pair(sync, address)
    reactor = producer.open()._host.reactor
    stuck = threading.Event()

    def hang():
        stuck.set()
        threading.Event().wait()

    reactor.callFromThread(reactor.callInThread, hang)
    assert stuck.wait(SECONDS)


def loop(address):
    """Clients on an asyncio loop in debug mode."""

    async def main():
        for tls in (False, "unverified"):
            producer, consumer = pair(aio, address.replace("127.0.0.1", "localhost"), tls=tls)
            async with producer, consumer:
                await exchange_async(producer, consumer)

    run_loop(main, debug=True)
    assert nothing_is_left()


def loop_never_stopped(address):
    """A loop that ends with open connections and a pool."""

    async def main():
        producer, consumer = pair(aio, address.replace("127.0.0.1", "localhost"))
        await exchange_async(await producer.open(), await consumer.open())
        return producer, consumer

    globals()["kept"] = run_loop(main)


# ------------------------------------------------------------ forked


def refused(*uses):
    """What a child tries with its parent's clients fails at once, whether it is called or awaited."""
    begin = monotonic()
    for use in uses:
        try:
            answer = use()
            if hasattr(answer, "__await__"):
                next(answer.__await__())
        except ForkedClientError:
            continue
        except StopIteration:
            pass
        raise AssertionError(f"{use.__code__.co_names} of the parent's client was not refused")
    assert monotonic() - begin < AT_ONCE


def refuses_all(clients):
    """Refuses whatever a child may try with the parent's clients."""
    producer, consumer, admin, poller = clients
    message, queue = Message(TOPIC, b"no"), MessageQueue(TOPIC, "broker-a", 0)
    step = "__next__" if hasattr(consumer, "__next__") else "__anext__"
    refused(
        lambda: producer.send(message),
        lambda: producer.send_oneway(message),
        lambda: producer.send_batch([message]),
        lambda: producer.publish_queues(TOPIC),
        lambda: producer.open(),
        lambda: producer.close(),
        lambda: getattr(consumer, step)(),
        lambda: consumer.finish(),
        lambda: consumer.queues(),
        lambda: consumer.pause([queue]),
        lambda: consumer.suspend(),
        lambda: consumer.subscribe("Other"),
        lambda: consumer.close(),
        lambda: poller.poll(SECONDS),
        lambda: poller.commit(),
        lambda: poller.close(),
        lambda: admin.topics(),
        lambda: admin.close(),
    )


def opened(face, address):
    """Clients of every kind, for a parent to open."""
    return (*pair(face, address), face.Admin(address), face.LitePullConsumer(group(), address, topics=TOPIC))


def run_child(child):
    """Wait for a child, which has to end well."""
    child.join(SECONDS)
    if child.exitcode is None:
        child.kill()
    assert child.exitcode == 0, child.exitcode


def forked(address, method, face):
    """A child of multiprocessing cannot use the parent's clients, but its own; the parent goes on."""
    globals()[f"forked_{face}"](address, multiprocessing.get_context(method), method == "fork")
    if method == "fork" and face != "twisted":  # "spawn" keeps a pipe to what tracks its resources
        assert nothing_is_left()


def forked_sync(address, context, inherits):
    clients = opened(sync, address)
    producer, consumer, admin, poller = clients
    made = pair(sync, address)
    with producer, consumer, admin, poller:
        exchange(producer, consumer)
        child = context.Process(target=sync_child, args=(address, *((clients, made) if inherits else (None, None))))
        child.start()
        run_child(child)
        exchange(producer, consumer)


def sync_child(address, clients, made):
    if clients is not None:
        refuses_all(clients)
    for producer, consumer in filter(None, (made, pair(sync, address), pair(sync, address, tls="unverified"))):
        with producer, consumer:
            exchange(producer, consumer)


def forked_aio(address, context, inherits):
    async def main():
        clients = opened(aio, address)
        producer, consumer, admin, poller = clients
        made = pair(aio, address)
        async with producer, consumer, admin, poller:
            await exchange_async(producer, consumer)
            child = context.Process(target=aio_child, args=(address, *((clients, made) if inherits else (None, None))))
            child.start()
            await asyncio.to_thread(run_child, child)
            await exchange_async(producer, consumer)

    run_loop(main)


def aio_child(address, clients, made):
    async def main():
        if clients is not None:
            refuses_all(clients)
        for producer, consumer in filter(None, (made, pair(aio, address))):
            async with producer, consumer:
                await exchange_async(producer, consumer)

    run_loop(main)


def forked_twisted(address, context, inherits):
    """The children of a reactor that runs have no use for it: they take another face, or are spawned."""
    made = pair(twisted_face, address)
    if inherits:
        child = context.Process(target=twisted_child, args=(address, made))
        child.start()
        run_child(child)
        assert no_reactor_is_installed()
    react = importlib.import_module("twisted.internet.task").react

    async def main(reactor):
        from twisted.internet.threads import deferToThread

        clients = opened(twisted_face, address)
        producer, consumer, admin, poller = clients
        async with producer, consumer, admin, poller:
            await exchange_async(producer, consumer)
            if inherits:
                child = context.Process(target=sync_child, args=(address, clients, None))
            else:
                child = context.Process(target=twisted_child, args=(address, None))
            child.start()
            await deferToThread(run_child, child)
            await exchange_async(producer, consumer)

    try:
        react(main)
    except SystemExit as error:
        if error.code:
            raise


def twisted_child(address, made):
    async def main(reactor):
        for producer, consumer in filter(None, (made, pair(twisted_face, address))):
            async with producer, consumer:
                await exchange_async(producer, consumer)

    importlib.import_module("twisted.internet.task").react(main)


def failing_handler(address):
    """A Twisted application with a handler that fails. It has set up ``logging``, and begins no log of Twisted."""
    logging.basicConfig(format="%(levelname)s %(name)s %(message)s")

    async def main(reactor):
        failed = Deferred()

        def failing(message):
            reactor.callFromThread(lambda: failed.called or failed.callback(None))
            return 1 / 0

        consumer = twisted_face.Consumer(group(), address, topics=TOPIC, handler=failing)
        async with twisted_face.Producer(group(), address) as producer, consumer:
            await producer.send(Message(TOPIC, text()))
            await failed

    try:
        importlib.import_module("twisted.internet.task").react(lambda reactor: Deferred.fromCoroutine(main(reactor)))
    except SystemExit as error:
        if error.code:
            raise


def application(environ, start_response):
    """A WSGI application for gunicorn, with clients that its master has opened, and a producer that it has only made."""
    refuses_all(of_master)
    if not of_worker:
        _, consumer = pair(sync, name_server)
        of_worker.extend((preloaded.open(), consumer.open()))
    exchange(*of_worker)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"exchanged {os.getpid()}".encode()]


name_server = os.environ.get("NAME_SERVER")
of_worker = []
if name_server is not None:
    preloaded, _ = pair(sync, name_server)
    of_master = opened(sync, name_server)
    for each in of_master:
        each.open()
    exchange(*of_master[:2])


if __name__ == "__main__":
    program, *arguments = sys.argv[1:]
    globals()[program](*arguments)
    print("right", flush=True)
