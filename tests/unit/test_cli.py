"""The command line: options, and the commands as processes against a cluster of their own."""

import os
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

from twisted.python import usage
from twisted.trial.unittest import SynchronousTestCase

import rocketd
from rocketd import core
from rocketd.tools.cli import main
from rocketd.tools.consume import ConsumeOptions
from rocketd.tools.groups import GroupsOptions
from rocketd.tools.lag import LagOptions
from rocketd.tools.produce import ProduceOptions
from rocketd.tools.up import UpOptions
from tests.unit.cli_processes import COMMAND, DEADLINE, ROOT, CommandTestCase


def parsed(options, *arguments):
    options.parseOptions(arguments)
    return options


def closed_pipe():
    reader, writer = os.pipe()
    os.close(reader)
    return open(writer, "wb")


def full():
    return open("/dev/full", "wb")


class OptionsTests(SynchronousTestCase):
    def test_defaults(self):
        options = parsed(ConsumeOptions(), "T")
        self.assertEqual((options.topic, options["namesrv"]), ("T", ["127.0.0.1:9876"]))
        self.assertIs(options["from"], "earliest")
        self.assertIsNone(options["count"])
        up = parsed(UpOptions())
        self.assertEqual((up["namesrv-port"], up["broker-port"]), (9876, 10911))

    def test_options_may_stand_anywhere(self):
        options = parsed(ProduceOptions(), "T", "one", "--tag", "A", "-n", "h:1;g:2", "two", "--count=3")
        self.assertEqual((options.topic, options.messages), ("T", [b"one", b"two"]))
        self.assertEqual((options["tag"], options["namesrv"], options["count"]), ("A", ["h:1", "g:2"], 3))

    def test_messages_that_look_like_options(self):
        self.assertEqual(parsed(ProduceOptions(), "T", "--", "--tag", "-x").messages, [b"--tag", b"-x"])

    def test_messages_are_the_bytes_that_were_given(self):
        self.assertEqual(parsed(ProduceOptions(), "T", os.fsdecode(b"\xff\xfe")).messages, [b"\xff\xfe"])

    def test_settings(self):
        options = parsed(UpOptions(), "-o", "brokerName=b", "--option", "flushDiskType=SYNC_FLUSH")
        self.assertEqual(options.overrides, [("brokerName", "b"), ("flushDiskType", "SYNC_FLUSH")])

    def test_wrong_options_are_refused(self):
        for options, *arguments in (
            (ProduceOptions(),),
            (ConsumeOptions(),),
            (ConsumeOptions(), "T", "U"),
            (ConsumeOptions(), "T", "--count", "0"),
            (ConsumeOptions(), "T", "--count", "x"),
            (ConsumeOptions(), "T", "--timeout", "-1"),
            (ConsumeOptions(), "T", "--timeout", "nan"),
            (ConsumeOptions(), "T", "--from", "here"),
            (ConsumeOptions(), "T", "--namesrv", "nowhere"),
            (ConsumeOptions(), "T", "--nonsense"),
            (ConsumeOptions(), "bad topic"),
            (GroupsOptions(), "bad group"),
            (GroupsOptions(), "G", "H"),
            (ConsumeOptions(), "T", "--group", "bad group"),
            (ConsumeOptions(), "T", "--group", ""),
            (ConsumeOptions(), "T", "--group", "组"),
            (ConsumeOptions(), "T", "--tag", "a\x01b"),
            (LagOptions(),),
            (LagOptions(), "bad group"),
            (LagOptions(), "g", "--topic", "bad topic"),
            (ProduceOptions(), "", "x"),
            (ProduceOptions(), "bad!", "x"),
            (ProduceOptions(), "bad!"),
            (ProduceOptions(), "T", "x", ""),
            (ProduceOptions(), "T", "x", "--key", "k a\x02b"),
            (ProduceOptions(), "T", "x", "--tag", "a\x01b"),
            (UpOptions(), "--broker-port", "65536"),
            (UpOptions(), "--namesrv-port", "x"),
            (UpOptions(), "--namesrv-port", "9877", "--broker-port", "9877"),
            (UpOptions(), "--namesrv-port", "9876", "--broker-port", "9878"),
            (UpOptions(), "-o", "brokerName"),
            (UpOptions(), "-o", "listenPort=1"),
            (UpOptions(), "stray"),
        ):
            self.assertRaises(usage.UsageError, options.parseOptions, arguments)


class MainTests(SynchronousTestCase):
    def run_main(self, *arguments):
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                status = main(arguments)
            except SystemExit as left:
                status = left.code
        return status, out.getvalue(), err.getvalue()

    def test_version(self):
        self.assertEqual(self.run_main("--version"), (0, f"rocketd {rocketd.__version__} ({core.kind()})\n", ""))

    def test_every_command_names_itself_and_our_version(self):
        for command in ("up", "produce", "consume", "lag", "groups", "store", "store dump"):
            status, out, _ = self.run_main(*command.split(), "--help")
            self.assertEqual((status, out.split(" [")[0].split(" COMMAND")[0]), (0, f"Usage: rocketd {command}"))
            self.assertNotIn("Twisted", out)
            self.assertNotIn("python -m", out)
            version = f"rocketd {rocketd.__version__} ({core.kind()})\n"
            self.assertEqual(self.run_main(*command.split(), "--version"), (0, version, ""))

    def test_help_says_what_becomes_of_empty_lines(self):
        self.assertIn("Empty lines are passed over", " ".join(self.run_main("produce", "--help")[1].split()))

    def test_help_that_nobody_reads(self):
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, *filter(None, sys.path)])}
        with closed_pipe() as stdout:
            done = subprocess.run(
                [*COMMAND, "up", "--help"], stdout=stdout, stderr=subprocess.PIPE, env=env, timeout=DEADLINE
            )
        self.assertEqual((done.returncode, done.stderr), (1, b""))

    def test_help(self):
        status, out, _ = self.run_main("--help")
        self.assertEqual(status, 0)
        for command in ("up", "produce", "consume"):
            self.assertIn(command, out)
        status, out, _ = self.run_main("consume", "--help")
        self.assertEqual(status, 0)
        self.assertIn("--timeout", out)

    def test_wrong_use_is_one_line(self):
        for arguments in ((), ("nonsense",), ("produce",), ("consume", "T", "--count", "0")):
            status, out, err = self.run_main(*arguments)
            self.assertEqual((status, out, err.count("\n")), (2, "", 1))
            self.assertTrue(err.startswith("rocketd"), err)


class InterruptedTests(SynchronousTestCase):
    """Ctrl-C while modules are being imported."""

    INTERRUPT = """
import os, signal, sys

at = sys.argv.pop(1)

class Finder:
    def find_spec(self, name, *_):
        if name == at:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
"""

    def interrupted(self, run, at, *arguments):
        code = self.INTERRUPT + run
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, *filter(None, sys.path)])}
        done = subprocess.run(
            [sys.executable, "-c", code, at, *arguments], env=env, capture_output=True, text=True, timeout=DEADLINE
        )
        self.assertEqual((done.stdout, done.stderr), ("", ""))
        return done.returncode

    def test_commands(self):
        run = "from rocketd.__main__ import main; raise SystemExit(main())"
        for at in ("rocketd.tools.cli", "twisted.python.usage", "rocketd.tools.up"):
            self.assertEqual(self.interrupted(run, at, "up", "--data", "never-made"), 130)
        self.assertFalse(os.path.exists("never-made"))

    def test_daemons(self):
        run = "from twisted.scripts.twistd import run; run()"
        for at in ("rocketd.broker.service", "rocketd.remoting.dispatch"):
            status = self.interrupted(run, at, "-n", "--pidfile=", "rocketd-broker", "-o", "listenPort=0")
            self.assertEqual(status, -signal.SIGINT)


class ClusterTests(CommandTestCase):
    def test_messages_come_back_and_outlive_a_restart(self):
        process = self.up()
        status, sent, err = self.call("produce", "T", "hello", "wörld", "--tag", "A", "--key", "k1 k2")
        self.assertEqual((status, len(sent), err), (0, 2, []))
        msg_id, broker, _, queue, _, offset = sent[0].split()
        self.assertEqual((len(msg_id), queue.isdigit(), offset), (32, True, "0"))
        self.assertTrue(broker)
        self.assertEqual(self.call("produce", "T", stdin="first\n\nsecond\nthird", namesrv=self.namesrv)[0], 0)
        status, got, err = self.call("consume", "T", "--count", "5", "--timeout", "30")
        self.assertEqual((status, err), (0, []))
        self.assertEqual(sorted(got), ["\t\tfirst", "\t\tsecond", "\t\tthird", "A\tk1 k2\thello", "A\tk1 k2\twörld"])
        self.stop(process, signal.SIGTERM)
        self.assertFalse(os.path.exists(os.path.join(self.data, "store", "abort")))

        process = self.up()
        self.assertEqual(self.call("produce", "T", "new", "--tag", "B", "--count", "2")[0], 0)
        status, got, err = self.call("consume", "T", "--count", "2", "--timeout", "30")
        self.assertEqual((status, got, err), (0, ["B\t\tnew", "B\t\tnew"], []))
        status, got, err = self.call(
            "consume", "T", "--group", "g2", "--tag", "A || C", "--count", "2", "--timeout", "30"
        )
        self.assertEqual((status, len(got), err), (0, 2, []))
        self.stop(process, signal.SIGINT)

    def test_output_that_takes_no_more_ends_the_command(self):
        self.up()
        for stdout, lines in ((closed_pipe(), 0), (full(), 1)):
            with stdout:
                status, _, err = self.call("produce", "T", "x", "--count", "5000", stdout=stdout)
                self.assertEqual((status, len(err)), (1, lines), err)
        self.assertEqual(self.call("produce", "U", "one", "two", "three")[0], 0)
        for stdout, lines in ((closed_pipe(), 0), (full(), 1)):
            with stdout:
                status, _, err = self.call("consume", "U", "--count", "3", stdout=stdout)
                self.assertEqual((status, len(err)), (1, lines), err)
        self.assertIn("rocketd consume: standard output: No space left on device", err)
        # Not one of them was given back: then it would come only after ten seconds.
        status, got, err = self.call("consume", "U", "--count", "3", "--timeout", "8")
        self.assertEqual((status, sorted(got), err), (0, ["\t\tone", "\t\tthree", "\t\ttwo"], []))

    def test_lag(self):
        self.up()
        for tag in ("A", "B", "A"):
            self.assertEqual(self.call("produce", "T", "x", "--tag", tag)[0], 0)
        status, got, err = self.call("consume", "T", "-g", "g", "--tag", "A", "--count", "2", "--timeout", "30")
        self.assertEqual((status, len(got), err), (0, 2, []))
        self.assertEqual(self.call("produce", "T", "x", "y", "--tag", "A")[0], 0)
        status, lines, err = self.call("lag", "g", "-t", "T")
        self.assertEqual((status, err), (0, []))
        first, *queues, last = [line.split("\t") for line in lines]
        self.assertEqual(first, ["broker", "topic", "queue", "behind", "seconds", "consumed", "end"])
        self.assertEqual([line[1:3] for line in queues], [["T", str(queue_id)] for queue_id in range(4)])
        self.assertEqual(sum(int(line[6]) for line in queues), 5)
        self.assertEqual(last[:3], ["all", "offline", ""])
        self.assertEqual(sum(int(line[3]) for line in queues), int(last[3]))
        self.assertEqual(last[3], "2")
        for command in (("lag", "none"), ("groups", "none")):
            self.assert_fails("no broker knows the group none", *command)
        self.assert_fails("no broker has the topic NoTopic", "lag", "g", "-t", "NoTopic")
        self.assertEqual(self.call("groups", "g"), (0, [], []))

    def test_what_cannot_be_done_is_one_line(self):
        self.up()
        self.assert_fails("no route for topic Nope", "consume", "Nope")
        for command in (("produce", "bad!", "x"), ("consume", "bad!"), ("consume", "T", "-g", "bad group")):
            status, _, err = self.call(*command)
            self.assertEqual((status, len(err)), (2, 1), err)
            self.assertTrue(err[0].startswith(f"rocketd {command[0]}: "), err)
        self.assertEqual(self.call("produce", "T", "x")[0], 0)
        self.assert_fails("1 of 2 messages came within 2 s", "consume", "T", "--count", "2", "--timeout", "2")
        self.assert_fails(
            "in use by another process", "up", "--data", self.data, "--namesrv-port", "0", "--broker-port", "0"
        )
        port = self.namesrv.rpartition(":")[2]
        for option in ("--namesrv-port", "--broker-port"):
            ports = {"--namesrv-port": "0", "--broker-port": "0", option: port}
            arguments = [text for pair in ports.items() for text in pair]
            cause = f"port {port}: it is in use by another process; stop that process or set another {option}"
            self.assert_fails(cause, "up", "--data", self.data + "-2", *arguments)


class DataTests(CommandTestCase):
    def test_data_that_cannot_be_used_is_named(self):
        path = os.path.abspath(self.mktemp())
        os.makedirs(os.path.join(path, "rocketd.log"))
        with open(os.path.join(path, "file"), "w"):
            pass
        for data, cause in (
            (path, f"--data {path}: {path}/rocketd.log: Is a directory; "),
            (path + "/file", f"--data {path}/file: it is no directory; "),
            (path + "/file/below", f"--data {path}/file/below: Not a directory; "),
            ("", "--data: accepted is a directory; "),
        ):
            status, _, err = self.call("up", "--data", data)
            self.assertEqual(status, 2)
            self.assertEqual(err, [f"rocketd up: {cause}try rocketd up --help"])

    def test_a_setting_that_is_refused_leaves_no_files(self):
        for setting in ("brokerPermission=9", "serverWorkerThreads=x"):
            self.assert_fails(setting.partition("=")[0], "up", "--data", self.data, "-o", setting)
            self.assertFalse(os.path.exists(self.data))


class TLSClusterTests(CommandTestCase):
    def test_messages_go_encrypted(self):
        process = self.up("-o", "tls.server.mode=enforcing")
        self.assertEqual(self.call("produce", "--tls", "T", "x" * 10_000)[0], 0)
        status, got, err = self.call("consume", "--tls", "T", "--count", "1", "--timeout", "30")
        self.assertEqual((status, got, err), (0, ["\t\t" + "x" * 10_000], []))
        self.assert_fails("connection closed", "produce", "T", "x")
        self.stop(process, signal.SIGTERM, "it is plain, and tls.server.mode is enforcing")


class NoClusterTests(CommandTestCase):
    def test_no_name_server(self):
        for command in (("produce", "T", "x"), ("consume", "T")):
            self.assert_fails("connect to 127.0.0.1:1 failed: Connection refused", *command, namesrv="127.0.0.1:1")
        for command in (("groups",), ("lag", "G")):
            status, out, err = self.call(*command, namesrv="127.0.0.1:1")
            self.assertEqual((status, out, len(err)), (3, [], 1))
            self.assertTrue(err[0].startswith(f"rocketd {command[0]}: connect to "), err)
