"""``rocketd produce`` reads any kind of standard input, and sends again only if no broker has stored the message."""

import os
from contextlib import asynccontextmanager, redirect_stdout
from io import StringIO
from unittest.mock import patch

import click
from twisted.internet.defer import Deferred, fail
from twisted.trial.unittest import SynchronousTestCase, TestCase

from rocketd.client.errors import BrokerError
from rocketd.common.command_line.errors import CommandError
from rocketd.remoting.errors import RemotingConnectError, RemotingSendRequestError, RemotingTimeoutError
from rocketd.remoting.wire.codes import ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.tools.messages.produce import LineReader, Production, _read_file
from tests.support.client_cluster import ClientTestCase

BUSY = RemotingCommand.response(ResponseCode.SYSTEM_BUSY, "busy")


class SendAgainTests(ClientTestCase):
    """The first try of each send has another outcome, and the second meets a busy broker."""

    @asynccontextmanager
    async def client_of_test(self, reactor, hooks=()):
        yield self.client

    def sends_after(self, outcome):
        """Send a message for some seconds. Return the number of sends, and the Deferred of the command."""
        access = type("Access", (), {"client": staticmethod(self.client_of_test)})
        outcomes, sends = [outcome], []

        def answer(address, request, fields):
            sends.append(address)
            return outcomes.pop() if outcomes else BUSY

        self.cluster.answer_310 = answer
        with redirect_stdout(StringIO()):
            work = Deferred.fromCoroutine(Production("T", [b"body"]).send_all(self.clock, access))
            for _ in range(20):
                self.clock.advance(0.1)
        return len(sends), work

    def test_message_that_may_be_stored_is_not_sent_again_to_a_busy_broker(self):
        for error in (RemotingTimeoutError("late"), RemotingSendRequestError("a:10911", "closed")):
            self.setUp()
            sends, work = self.sends_after(fail(error))
            self.assertEqual(sends, 2)
            self.assertEqual(self.failureResultOf(work, BrokerError).value.code, ResponseCode.SYSTEM_BUSY)

    def test_message_that_may_be_stored_after_a_system_error_is_not_sent_again(self):
        sends, work = self.sends_after(RemotingCommand.response(ResponseCode.SYSTEM_ERROR, "a fault"))
        self.assertEqual(sends, 2)
        self.failureResultOf(work, BrokerError)

    def test_message_that_no_broker_stored_is_sent_again_to_a_busy_broker(self):
        for outcome in (
            fail(RemotingConnectError("a:10911")),
            RemotingCommand.response(ResponseCode.SERVICE_NOT_AVAILABLE, "not yet"),
        ):
            self.setUp()
            sends, work = self.sends_after(outcome)
            self.assertGreater(sends, 2)
            work.addErrback(lambda _: None)
            work.cancel()


class ReadFileTests(SynchronousTestCase):
    def test_closed_standard_input_raises_usage_error(self):
        with patch("sys.stdin", None):
            error = self.assertRaises(click.UsageError, _read_file, "-")
        self.assertEqual(str(error), "--file -: standard input is closed")


class LineReaderTests(TestCase):
    """Real descriptors, read in the reader's threads."""

    def pipe(self):
        from twisted.internet import reactor

        read, write = os.pipe()
        self.addCleanup(os.close, read)
        return LineReader(reactor, read), open(write, "wb", buffering=0)

    async def all_lines(self, reader):
        lines = []
        while (line := await reader.next_line()) is not None:
            lines.append(line)
        return lines

    async def test_lines_end_anywhere(self):
        for written, lines in (
            (b"", []),
            (b"one\ntwo\n", [b"one", b"two"]),
            (b"one\r\n\ntwo", [b"one", b"", b"two"]),
            (b"\n", [b""]),
        ):
            reader, file = self.pipe()
            with file:
                file.write(written)
            self.assertEqual(await self.all_lines(reader), lines)
            self.assertIsNone(await reader.next_line())

    async def test_a_line_comes_in_pieces(self):
        reader, file = self.pipe()
        with file:
            waiting = Deferred.fromCoroutine(reader.next_line())
            file.write(b"one, ")
            self.assertNoResult(waiting)
            file.write(b"two\nthree\nfo")
            self.assertEqual(await waiting, b"one, two")
            self.assertEqual(await reader.next_line(), b"three")
            file.write(b"u" * 50_000 + b"r\n")
        self.assertEqual(await self.all_lines(reader), [b"fo" + b"u" * 50_000 + b"r"])

    async def test_non_blocking_input_is_read(self):
        reader, file = self.pipe()
        os.set_blocking(reader._descriptor, False)
        with file:
            waiting = Deferred.fromCoroutine(reader.next_line())
            self.assertNoResult(waiting)
            file.write(b"late\n")
            self.assertEqual(await waiting, b"late")

    async def test_unreadable_input_raises(self):
        from twisted.internet import reactor

        directory = os.open(".", os.O_RDONLY)
        self.addCleanup(os.close, directory)
        waiting = Deferred.fromCoroutine(LineReader(reactor, directory).next_line())
        error = await self.assertFailure(waiting, CommandError)
        self.assertEqual(str(error), "standard input: Is a directory")
