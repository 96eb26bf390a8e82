"""Clients and hosts of the parent in a forked child."""

import asyncio
import os
import signal
import socket
import threading

from twisted.internet.defer import Deferred, succeed
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP4ServerEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.errors import ForkedClientError
from rocketd.client.runtime.asyncio_host import AsyncioHost, to_future
from rocketd.client.runtime.fork import ForkGuard, forks
from rocketd.client.runtime.thread_host import ThreadHost

SECONDS = 60


class ForkCase(SynchronousTestCase):
    def in_child(self, function):
        """Run in a forked child; fails unless it returns True within the time limit."""
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(SECONDS)
            status = 1
            try:
                status = 0 if function() is True else 2
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)


class GuardTests(ForkCase):
    def test_started_client_is_refused_in_the_child_alone(self):
        started, only_made = ForkGuard("Producer"), ForkGuard()
        started.begin()
        parent = os.getpid()

        def child():
            only_made.check()
            only_made.begin()
            only_made.check()
            try:
                started.check()
            except ForkedClientError as error:
                text = str(error)
                return "this Producer" in text and f" {parent}," in text and f" {os.getpid()}," in text
            return False

        self.in_child(child)
        started.check()

    def test_stopped_client_passes_check_in_child(self):
        guard = ForkGuard()
        guard.begin()
        guard.end()
        self.in_child(lambda: guard.check() is None)

    def test_forks_are_counted(self):
        before = forks()

        def child():
            self.in_child(lambda: forks() == before + 2)
            return forks() == before + 1

        self.in_child(child)
        self.assertEqual(forks(), before)


async def answer(value):
    await succeed(None)
    return value


class AsyncioHostTests(ForkCase):
    def test_child_gets_new_host_and_keeps_parents_host_intact(self):
        async def fresh():
            host = AsyncioHost.acquire()
            right = await to_future(answer(5)) == 5 and host.reactor.running
            await host.release()
            return right

        async def main():
            host = AsyncioHost.acquire()
            endpoint = TCP4ServerEndpoint(host.reactor, 0, interface="127.0.0.1")
            port = await to_future(endpoint.listen(Factory.forProtocol(Protocol)))
            inode = os.fstat(port.fileno()).st_ino

            def child():
                names = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
                links = {os.readlink(name) for name in names if os.path.islink(name)}
                return f"socket:[{inode}]" not in links and not host.reactor.running and asyncio.run(fresh())

            self.in_child(child)
            self.assertTrue(host.reactor.running)
            caller = socket.create_connection(("127.0.0.1", port.getHost().port), SECONDS)
            caller.close()
            await to_future(port.stopListening())
            await host.release()

        asyncio.run(main())


class ThreadHostTests(ForkCase):
    def setUp(self):
        self.host = ThreadHost.acquire()
        self.addCleanup(self.host.release)

    def test_child_call_on_old_host_raises_and_new_host_works(self):
        def child():
            try:
                self.host.call(answer, 1)
                return False
            except ForkedClientError:
                pass
            self.host.release()
            fresh = ThreadHost.acquire()
            right = fresh is not self.host and fresh.call(answer, 5, timeout=SECONDS) == 5
            fresh.release()
            return right and threading.active_count() == 1

        self.in_child(child)
        self.assertEqual(self.host.call(answer, 2, timeout=SECONDS), 2)

    def test_locks_held_at_fork_do_not_block_the_child(self):
        from rocketd.client.runtime import thread_host

        def child():
            host = ThreadHost.acquire()
            host.release()
            return True

        held, enough = threading.Event(), threading.Event()

        def hold():
            with thread_host._lock, self.host.reactor._waking:
                held.set()
                enough.wait(SECONDS)

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait(SECONDS)
        self.in_child(child)
        enough.set()
        holder.join()

    def test_fork_while_this_thread_waits(self):
        """A signal's handler forks: the child's wait ends, the parent's goes on."""
        outcome = []

        def handler(*_):
            outcome.append(os.fork())

        before = signal.signal(signal.SIGUSR1, handler)
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        main = threading.get_ident()

        async def wait():
            fired = Deferred()
            self.host.reactor.callLater(0, signal.pthread_kill, main, signal.SIGUSR1)

            def look():
                if outcome:
                    fired.callback("parent")
                else:
                    self.host.reactor.callLater(0.01, look)

            look()
            return await fired

        status = 1
        try:
            result = self.host.call(wait, timeout=SECONDS)
        except ForkedClientError:
            status = 0
        finally:
            if outcome == [0]:
                os._exit(status)
        self.assertEqual(result, "parent")
        self.assertEqual(os.waitpid(outcome[0], 0)[1], 0)

    def test_fork_in_the_reactors_thread(self):
        async def fork():
            child = os.fork()
            if child == 0:
                os._exit(0 if not self.host.reactor.running else 1)
            return os.waitpid(child, 0)[1]

        self.assertEqual(self.host.call(fork, timeout=SECONDS), 0)
        self.assertEqual(self.host.call(answer, 2, timeout=SECONDS), 2)

    def test_sockets_are_closed_in_the_child_without_a_word_on_the_wire(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        protocols = []

        class Client(Protocol):
            def connectionMade(self):
                protocols.append(self)
                self.transport.pauseProducing()  # a paused one is in no list of the reactor's
                self.lost = Deferred()

            def connectionLost(self, reason=None):
                self.lost.callback(None)

        async def connect():
            endpoint = TCP4ClientEndpoint(self.host.reactor, *listener.getsockname())
            return await endpoint.connect(Factory.forProtocol(Client))

        async def write(data):
            protocols[0].transport.resumeProducing()
            protocols[0].transport.write(data)

        async def close():
            protocols[0].transport.loseConnection()
            await protocols[0].lost

        self.host.call(connect, timeout=SECONDS)
        peer, _ = listener.accept()
        self.addCleanup(peer.close)
        peer.settimeout(SECONDS)
        listener_and_peer = {f"socket:[{os.fstat(sock.fileno()).st_ino}]" for sock in (listener, peer)}
        number = protocols[0].transport.fileno()
        inode = os.fstat(number).st_ino

        def child():
            names = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
            links = {os.readlink(name) for name in names if os.path.islink(name)}
            return f"socket:[{inode}]" not in links and listener_and_peer <= links

        self.in_child(child)
        self.host.call(write, b"still here", timeout=SECONDS)
        self.assertEqual(peer.recv(100), b"still here")
        self.host.call(close, timeout=SECONDS)
        self.assertEqual(peer.recv(100), b"")
