"""``rocketd produce`` reads its lines from whatever standard input is, and ends on Ctrl-C while it waits for one."""

import os
import pty
import signal
import termios
from fcntl import ioctl
from subprocess import PIPE, Popen

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from rocketd.tools.console import CommandError
from rocketd.tools.produce import LineReader
from tests.unit.cli_processes import COMMAND, DEADLINE, CommandTestCase


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

    async def test_what_another_process_set_to_non_blocking(self):
        reader, file = self.pipe()
        os.set_blocking(reader._descriptor, False)
        with file:
            waiting = Deferred.fromCoroutine(reader.next_line())
            self.assertNoResult(waiting)
            file.write(b"late\n")
            self.assertEqual(await waiting, b"late")

    async def test_what_cannot_be_read(self):
        from twisted.internet import reactor

        directory = os.open(".", os.O_RDONLY)
        self.addCleanup(os.close, directory)
        waiting = Deferred.fromCoroutine(LineReader(reactor, directory).next_line())
        error = await self.assertFailure(waiting, CommandError)
        self.assertEqual(str(error), "standard input: Is a directory")


class ProduceTestCase(CommandTestCase):
    def produce(self, stdin, *options, **more):
        process = Popen(
            [*COMMAND, "produce", "T", "--namesrv", self.namesrv, *options],
            stdin=stdin,
            stdout=PIPE,
            stderr=PIPE,
            text=True,
            env=self.env,
            **more,
        )
        self.addCleanup(self.end, process)
        return process


class RestartTests(ProduceTestCase):
    def test_pipe_outlives_a_restart_of_the_broker(self):
        servers = self.up()
        process = self.produce(PIPE)
        self.write_line(process, "before")
        self.assertIn("offset 0", process.stdout.readline())
        self.stop(servers, signal.SIGTERM)
        self.write_line(process, "meanwhile")
        # It is away, and the command says so once.
        self.assertIn("sending again for 60 s", process.stderr.readline())
        self.up("--namesrv-port", self.namesrv.rpartition(":")[2], "--broker-port", self.broker_port)
        self.assertIn("offset", process.stdout.readline())
        out, err = process.communicate(timeout=DEADLINE)
        self.assertEqual((process.returncode, out, err), (0, "", ""))
        status, got, _ = self.call("consume", "T", "--count", "2", "--timeout", "30")
        self.assertEqual((status, sorted(got)), (0, ["\t\tbefore", "\t\tmeanwhile"]))

    def test_retry_timeout_ends_the_command(self):
        self.namesrv = "127.0.0.1:1"
        process = self.produce(PIPE, "--retry-timeout", "0.5")
        out, err = process.communicate("hello\n", timeout=DEADLINE)
        self.assertEqual((process.returncode, out, err.count("\n")), (1, "", 2), err)
        self.assertIn("sending again for 0.5 s", err)

    def write_line(self, process, text):
        process.stdin.write(f"{text}\n")
        process.stdin.flush()


class InterruptedTests(ProduceTestCase):
    """A thread of the command waits for the next line when it is interrupted."""

    def test_ctrl_c(self):
        self.up()
        read, write = os.pipe()
        process = self.produce(read)
        os.close(read)
        with open(write, "wb", buffering=0) as lines:
            lines.write(b"hello\n")
            self.assertIn("offset", process.stdout.readline())
            process.send_signal(signal.SIGINT)
            self.assert_ended(process)

        master, slave = pty.openpty()
        process = self.produce(slave, start_new_session=True, preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        with open(master, "wb", buffering=0) as keyboard:
            keyboard.write(b"hello\n")
            self.assertIn("offset", process.stdout.readline())
            keyboard.write(b"\x03")
            self.assert_ended(process)

    def assert_ended(self, process):
        out, err = process.communicate(timeout=DEADLINE)
        self.assertEqual((process.returncode, out, err), (0, "", ""))
