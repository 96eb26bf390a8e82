"""``rocketd produce`` as a process: it outlives a restart of the broker, and ends on Ctrl-C while it waits for a line."""

import os
import pty
import signal
import termios
from fcntl import ioctl
from subprocess import PIPE, Popen, run

from tests.support.cli_processes import COMMAND, DEADLINE, CommandTestCase
from tests.support.ports import free_port


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
        # A send whose answer is late on a busy machine is repeated, and then stored twice.
        self.assertEqual((status, sorted(set(got))), (0, ["before", "meanwhile"]))

    def test_retry_timeout_ends_the_command(self):
        self.namesrv = "127.0.0.1:1"
        process = self.produce(PIPE, "--retry-timeout", "0.5")
        out, err = process.communicate("hello\n", timeout=DEADLINE)
        self.assertEqual((process.returncode, out, err.count("\n")), (1, "", 2), err)
        self.assertIn("sending again for 0.5 s", err)

    def write_line(self, process, text):
        process.stdin.write(f"{text}\n")
        process.stdin.flush()


class WaitTests(ProduceTestCase):
    def test_produce_before_the_servers_waits_for_them(self):
        port = str(free_port())
        self.namesrv = f"127.0.0.1:{port}"
        process = self.produce(None, "hello", "--retry-timeout", "60")
        self.assertIn("sending again for 60 s", process.stderr.readline())
        self.up("--namesrv-port", port)
        out, err = process.communicate(timeout=DEADLINE)
        self.assertEqual((process.returncode, out.split()[-2:], err), (0, ["offset", "0"], ""))


class PartsTests(ProduceTestCase):
    def test_parts_of_a_message_arrive(self):
        self.up()
        body = b"\xff\n\n\0end\n"
        words = ["produce", "T", "--namesrv", self.namesrv, "--file", "-", "--property", "a=b c", "--queue", "2"]
        done = run([*COMMAND, *words], input=body, env=self.env, capture_output=True, timeout=DEADLINE)
        self.assertEqual(
            (done.returncode, done.stdout.split()[2:], done.stderr), (0, [b"queue", b"2", b"offset", b"0"], b"")
        )
        words = ["consume", "T", "--namesrv", self.namesrv, "--count", "1", "--end", "", "--format"]
        done = run([*COMMAND, *words, "{properties.a}|{body}"], env=self.env, capture_output=True, timeout=DEADLINE)
        self.assertEqual(done.stdout, b"b c|" + body)
        self.assert_fails("topic T does not have queue 9; its queues are ", "produce", "T", "x", "--queue", "9")


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
