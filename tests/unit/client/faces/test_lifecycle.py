"""Opening and closing of clients: at the same time, in another loop, and by other names."""

import asyncio
import socket
import threading

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase, TestCase

import rocketd.client
from rocketd.client import aio, sync
from rocketd.client.errors import ClientClosedError, ClientStateError
from tests.support.left_open import LeftOpen

SECONDS = 60.0


class SilentServer:
    """A name server that takes connections and never answers. ``asked`` blocks until it was asked something."""

    def __init__(self, case):
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(SECONDS)
        case.addCleanup(self._listening.close)
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"

    def asked(self):
        connection, _ = self._listening.accept()
        connection.settimeout(SECONDS)
        connection.recv(1)
        return connection


def options(server):
    return {"topics": "T", "cluster": server.address}


class TwistedTests(TestCase):
    def test_close_during_open_ends_the_open(self):
        from twisted.internet import reactor
        from twisted.internet.threads import deferToThread

        async def run():
            server = SilentServer(self)
            consumer = rocketd.client.Consumer("G", **options(server))
            opening = consumer.open()
            connection = await deferToThread(server.asked)
            await consumer.close().addTimeout(SECONDS, reactor)
            connection.close()
            await self.assertFailure(opening.addTimeout(SECONDS, reactor), ClientClosedError)
            await self.assertFailure(consumer.open(), ClientClosedError)

        return Deferred.fromCoroutine(run())

    def test_start_and_stop_open_and_close(self):
        async def run():
            producer = rocketd.client.Producer("G", "127.0.0.1:1")
            self.assertIs(await producer.start(), producer)
            self.assertTrue(producer._engine)
            await producer.stop()
            await self.assertFailure(producer.start(), ClientClosedError)

        return Deferred.fromCoroutine(run())


class AioTests(SynchronousTestCase):
    def test_close_during_open_ends_the_open(self):
        server = SilentServer(self)
        left = LeftOpen(young=True)

        async def run():
            consumer = aio.Consumer("G", **options(server))
            opening = asyncio.ensure_future(consumer.open())
            connection = await asyncio.to_thread(server.asked)
            await asyncio.wait_for(consumer.close(), SECONDS)
            connection.close()
            with self.assertRaises(ClientClosedError):
                await asyncio.wait_for(opening, SECONDS)
            with self.assertRaises(ClientClosedError):
                await consumer.open()

        asyncio.run(run())
        self.assertEqual(left.found(), [])

    def test_use_in_another_loop_raises_at_once(self):
        server = SilentServer(self)
        left = LeftOpen(young=True)
        first = asyncio.new_event_loop()
        producer = aio.Producer("G", server.address)
        consumer = aio.Consumer("G", **options(server))
        first.run_until_complete(producer.open())
        opening = first.create_task(consumer.open())
        first.run_until_complete(asyncio.sleep(0))

        async def iterate():
            await anext(consumer)

        async def finish():
            consumer.finish()

        for use in (
            lambda: producer.send(rocketd.client.Message("T", b"x")),
            lambda: producer.publish_queues("T"),
            producer.close,
            iterate,
            finish,
        ):
            with self.assertRaisesRegex(ClientStateError, "opened in another event loop.*a client for each loop"):
                asyncio.run(use())
        first.run_until_complete(consumer.close())
        with self.assertRaises(ClientClosedError):
            first.run_until_complete(opening)
        first.run_until_complete(producer.close())
        first.close()
        self.assertEqual(left.found(), [])

    def test_start_and_stop_open_and_close(self):
        async def run():
            producer = aio.Producer("G", "127.0.0.1:1")
            self.assertIs(await producer.start(), producer)
            self.assertTrue(producer._engine)
            await producer.stop()
            with self.assertRaises(ClientClosedError):
                await producer.start()

        asyncio.run(run())


class SyncTests(SynchronousTestCase):
    def test_close_during_open_ends_the_open(self):
        server = SilentServer(self)
        left = LeftOpen(young=True)
        consumer = sync.Consumer("G", **options(server))
        caught = []

        def run():
            try:
                consumer.open()
            except ClientStateError as error:
                caught.append(error)

        opening = threading.Thread(target=run)
        opening.start()
        connection = server.asked()
        consumer.close()
        connection.close()
        opening.join(SECONDS)
        self.assertEqual([type(error) for error in caught], [ClientClosedError])
        self.assertRaises(ClientClosedError, consumer.open)
        del connection, opening, run
        self.assertEqual(left.found(), [])

    def test_start_and_stop_open_and_close(self):
        producer = sync.Producer("G", "127.0.0.1:1")
        self.assertIs(producer.start(), producer)
        self.assertTrue(producer._engine)
        producer.stop()
        self.assertRaises(ClientClosedError, producer.start)
