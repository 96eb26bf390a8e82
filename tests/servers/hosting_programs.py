"""Programs of test_client_hosting.py: each is a process of its own, which is told the address of a name server.

A program prints one word when all is as it should be; warnings are errors, and nothing may be on standard error.
"""

import asyncio
import gc
import multiprocessing
import os
import sys
import threading

from rocketd.client.errors import ForkedClientError
from rocketd.client.hosting.asyncio_host import AsyncioHost, to_future
from rocketd.client.hosting.fork import ForkGuard
from rocketd.client.hosting.thread_host import ThreadHost
from rocketd.remoting.client import RemotingClient
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.settings import TlsConfig
from rocketd.remoting.tls import ClientTLS

SECONDS = 60.0


class Client:
    """A blocking client as small as can be. ``tls`` encrypts its connections."""

    def __init__(self, address, tls=False):
        self.address = address
        self.tls = tls
        self.guard = ForkGuard()

    def start(self):
        self.guard.begin()
        self.host = ThreadHost.acquire()
        self.remoting = make_remoting(self.host.reactor, self.tls)
        self.host.call_soon(self.remoting.startService)
        return self

    def ask(self):
        self.guard.check()
        return self.host.call(ask, self.remoting, self.address, timeout=SECONDS)

    def stop(self):
        self.host.call(stop_remoting, self.remoting, timeout=SECONDS)
        self.host.release()


def make_remoting(reactor, tls):
    return RemotingClient(reactor, tls=ClientTLS(TlsConfig()) if tls else None)


async def stop_remoting(remoting):
    await remoting.stopService()


async def ask(remoting, address):
    request = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)
    answer = await remoting.invoke_sync(address, request, SECONDS * 1000)
    return answer.code == ResponseCode.SUCCESS


def no_reactor_is_installed():
    return "twisted.internet.reactor" not in sys.modules


def imports(address):
    """Importing has begun nothing."""
    assert threading.active_count() == 1
    assert not any(link.startswith(("socket:", "anon_inode:")) for link in links())
    assert no_reactor_is_installed()


def links():
    names = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return [os.readlink(name) for name in names if os.path.islink(name)]


def thread(address):
    """Requests over a thread, plain and with TLS, by address and by host name."""
    before = len(links())
    for target in (address, address.replace("127.0.0.1", "localhost")):
        for tls in (False, True):
            client = Client(target, tls).start()
            assert client.ask()
            client.stop()
    assert threading.active_count() == 1
    assert len(links()) == before
    assert no_reactor_is_installed()


def never_stopped(address):
    """A client with an open connection, and a pool, is left to the interpreter's exit."""
    client = Client(address.replace("127.0.0.1", "localhost")).start()
    assert client.ask()
    worker = threading.Thread(target=lambda: client.ask() or os._exit(3))
    worker.start()  # outlives the main thread


def stuck_pool(address):
    """The exit waits for no thread of the pool, where a look-up of a host name may hang."""
    client = Client(address).start()
    stuck = threading.Event()

    def hang():
        stuck.set()
        threading.Event().wait()

    client.host.call_soon(lambda: client.host.reactor.callInThread(hang))
    assert stuck.wait(SECONDS)


def loop(address):
    """Requests over an asyncio loop in debug mode."""

    async def main():
        host = AsyncioHost.acquire()
        try:
            for tls in (False, True):
                remoting = make_remoting(host.reactor, tls)
                remoting.startService()
                assert await to_future(ask(remoting, address.replace("127.0.0.1", "localhost")))
                await to_future(remoting.stopService())
        finally:
            await host.release()

    before = len(links())
    asyncio.run(main(), debug=True)
    gc.collect()
    assert threading.active_count() == 1
    assert len(links()) == before
    assert no_reactor_is_installed()


def loop_never_stopped(address):
    """A loop that ends with an open connection and a pool."""

    async def main():
        host = AsyncioHost.acquire()
        remoting = make_remoting(host.reactor, False)
        remoting.startService()
        assert await to_future(ask(remoting, address.replace("127.0.0.1", "localhost")))
        return remoting

    globals()["kept"] = asyncio.run(main())


def forked(address, method):
    """A child of multiprocessing cannot use the parent's client, but one of its own; the parent goes on."""
    context = multiprocessing.get_context(method)
    started, only_made = Client(address).start(), Client(address)
    assert started.ask()
    inherited = (started, only_made) if method == "fork" else (None, only_made)
    child = context.Process(target=in_child, args=(address, *inherited))
    child.start()
    child.join(SECONDS)
    assert child.exitcode == 0, child.exitcode
    assert started.ask()
    started.stop()


def in_child(address, started, only_made):
    if started is not None:
        try:
            started.ask()
        except ForkedClientError:
            pass
        else:
            raise AssertionError("the parent's client was used")
    for client in (only_made, Client(address, tls=True)):
        client.start()
        assert client.ask()
        client.stop()


def application(environ, start_response):
    """A WSGI application for gunicorn: its clients are started before and after the workers are forked."""
    try:
        answer = str(preloaded.ask())
    except ForkedClientError:
        answer = "forked"
    global own
    if own is None:
        own = Client(preloaded.address).start()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{answer} {own.ask()} {os.getpid()}".encode()]


own = None
if "NAME_SERVER" in os.environ:
    preloaded = Client(os.environ["NAME_SERVER"]).start()
    assert preloaded.ask()


if __name__ == "__main__":
    program, *arguments = sys.argv[1:]
    globals()[program](*arguments)
    print("right", flush=True)
