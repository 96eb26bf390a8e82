"""``rocketd consume`` as a process: it waits for its topic, counts exactly, and prints messages in several forms."""

import json
import os
import pty
import subprocess
import time

import pytest

from rocketd.common.names import PRESET_GROUPS
from tests.support.cli_processes import COMMAND, DEADLINE, CommandTestCase
from tests.support.ports import free_port


class ConsumeTestCase(CommandTestCase):
    def start(self, *arguments, **more):
        """Start a command that reads from the cluster of ``up``."""
        process = subprocess.Popen(
            [*COMMAND, *arguments, "--namesrv", self.namesrv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env,
            **more,
        )
        self.addCleanup(self.end, process)
        return process

    def behind(self, group):
        """Return how many messages of T the group has not consumed."""
        status, lines, err = self.call("lag", group, "-t", "T")
        self.assertEqual((status, err), (0, []))
        return int(lines[-1].split("\t")[3])


class WaitTests(ConsumeTestCase):
    def test_consume_before_servers_and_topic_waits_for_both(self):
        port = str(free_port())
        self.namesrv = f"127.0.0.1:{port}"
        processes = [self.start("consume", "T", "--count", "1", *group) for group in ((), ("--group", "g"))]
        for process in processes:
            line = process.stderr.readline()
            self.assertIn("rocketd consume: waiting for topic T: no name server can be reached", line)
        self.up("--namesrv-port", port)
        for process in processes:
            line = process.stderr.readline()
            while line and not line.endswith(": waiting for topic T\n"):
                line = process.stderr.readline()  # for a moment no broker is registered
        self.assertEqual(self.call("produce", "T", "hello")[0], 0)
        for process in processes:
            out, err = process.communicate(timeout=DEADLINE)
            self.assertEqual((process.returncode, out), (0, "hello\n"), err)

    def test_wait_for_topic_ends_at_timeout(self):
        self.up()
        status, got, err = self.call("consume", "T", "--count", "2", "--timeout", "1")
        self.assertEqual((status, got), (1, []))
        texts = ["waiting for topic T", "0 of 2 messages came within 1 s"]
        self.assertEqual(err, [f"rocketd consume: {text}" for text in texts])

    def test_wait_for_topic_ends_at_ctrl_c(self):
        self.up()
        process = self.start("consume", "T")
        self.assertIn("waiting", process.stderr.readline())
        process.send_signal(subprocess.signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE)
        self.assertEqual((process.returncode, out, err), (0, "", ""))


class CountTests(ConsumeTestCase):
    BACKLOG = 300

    def test_count_with_backlog_prints_and_commits_exactly_so_many(self):
        self.up()
        lines = "".join(f"{number}\n" for number in range(self.BACKLOG))
        self.assertEqual(self.call("produce", "T", stdin=lines)[0], 0)
        seen = set()
        for count in (7, 100):
            status, got, err = self.call("consume", "T", "-g", "g", "--count", str(count), "--timeout", "30")
            self.assertEqual((status, len(got), err), (0, count, []))
            self.assertEqual(seen & set(got), set())
            seen.update(got)
        self.assertEqual(self.behind("g"), self.BACKLOG - len(seen))
        status, got, err = self.call("consume", "T", "--count", "7", "--timeout", "30")
        self.assertEqual((status, len(set(got)), err), (0, 7, []))


class GroupTests(ConsumeTestCase):
    def test_consume_without_group_leaves_nothing_on_the_broker(self):
        process = self.up()
        self.assertEqual(self.call("produce", "T", "one", "two")[0], 0)
        for _ in range(2):
            status, got, _ = self.call("consume", "T", "--count", "2", "--timeout", "30")
            self.assertEqual((status, sorted(got)), (0, ["one", "two"]))
        self.stop(process, subprocess.signal.SIGTERM)
        directory = os.path.join(self.data, "store", "config")
        with open(os.path.join(directory, "subscriptionGroup.json")) as file:
            self.assertEqual(set(json.load(file)["subscriptionGroupTable"]), set(PRESET_GROUPS))
        with open(os.path.join(directory, "topics.json")) as file:
            self.assertEqual([name for name in json.load(file)["topicConfigTable"] if "%" in name], [])
        with open(os.path.join(directory, "consumerOffset.json")) as file:
            self.assertEqual(json.load(file)["offsetTable"], {})

    def test_consume_without_group_reads_on_after_a_restart_of_the_servers(self):
        servers = self.up()
        self.assertEqual(self.call("produce", "T", "one")[0], 0)
        process = self.start("consume", "T", "--count", "2")
        self.assertEqual(process.stdout.readline(), "one\n")
        self.stop(servers, subprocess.signal.SIGTERM)
        self.assertIn("trying again", process.stderr.readline())
        self.up("--namesrv-port", self.namesrv.rpartition(":")[2], "--broker-port", self.broker_port)
        self.assertEqual(self.call("produce", "T", "two")[0], 0)
        self.assertEqual(process.communicate(timeout=DEADLINE)[0], "two\n")


class StartTests(ConsumeTestCase):
    def read(self, start, *more):
        status, got, _ = self.call("consume", "T", "--from", start, "--timeout", "2", *more)
        self.assertEqual(status, 0)
        return got

    @pytest.mark.long
    def test_from_offset_time_and_ends(self):
        self.up("-o", "defaultTopicQueueNums=1")
        self.assertEqual(self.call("produce", "T", "one", "two")[0], 0)
        time.sleep(1.1)
        between = time.strftime("%Y-%m-%dT%H:%M:%S")
        time.sleep(1.1)
        self.assertEqual(self.call("produce", "T", "three")[0], 0)
        for start, bodies in (
            ("earliest", ["one", "two", "three"]),
            ("1", ["two", "three"]),
            (between, ["three"]),
            ("-1h", ["one", "two", "three"]),
            ("latest", []),
        ):
            self.assertEqual(self.read(start), bodies, start)
        self.assertEqual(self.read(between, "--group", "g"), ["three"])
        process = self.start("consume", "T", "--from", "latest", "--count", "1", "--timeout", "30")
        for _ in range(20):
            self.assertEqual(self.call("produce", "T", "four")[0], 0)
            if process.poll() is not None:
                break
        self.assertEqual(process.communicate(timeout=DEADLINE), ("four\n", ""))


class FormTests(ConsumeTestCase):
    BODIES = (b"text", b"two\nlines\t\x1b[31m", b"\xff\xfe", "wörld".encode())

    def setUp(self):
        super().setUp()
        self.up("-o", "defaultTopicQueueNums=1")
        words = [os.fsdecode(body) for body in self.BODIES]
        self.assertEqual(self.call("produce", "T", *words, "--tags", "A", "--keys", "k1 k2")[0], 0)

    def bytes_of(self, *options):
        words = ["consume", "T", "--count", str(len(self.BODIES)), "--timeout", "30", "--namesrv", self.namesrv]
        done = subprocess.run([*COMMAND, *words, *options], env=self.env, capture_output=True, timeout=DEADLINE)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return done.stdout

    def test_pipe_gets_bodies_as_they_are(self):
        self.assertEqual(self.bytes_of(), b"".join(body + b"\n" for body in self.BODIES))
        self.assertEqual(self.bytes_of("--end", r"\0"), b"".join(body + b"\0" for body in self.BODIES))

    def test_template_prints_fields(self):
        got = self.bytes_of(
            "--format", r"{{{topic}}} {queue}:{offset}\t{tags} {keys}{properties.none} {size} {body_base64}"
        )
        self.assertEqual(got.splitlines()[2], b"{T} 0:2\tA k1 k2 2 //4=")

    def test_json_is_lossless(self):
        lines = [json.loads(line) for line in self.bytes_of("--json").splitlines()]
        self.assertEqual([line.get("body") for line in lines], ["text", "two\nlines\t\x1b[31m", None, "wörld"])
        self.assertEqual(lines[2]["body_base64"], "//4=")
        self.assertEqual((lines[0]["tags"], lines[0]["keys"], lines[0]["offset"]), ("A", ["k1", "k2"], 0))

    def test_terminal_shows_bodies_without_control_characters(self):
        master, slave = pty.openpty()
        words = [*COMMAND, "consume", "T", "--count", str(len(self.BODIES)), "--namesrv", self.namesrv]
        process = subprocess.Popen(words, stdout=slave, env=self.env)
        self.addCleanup(process.kill)
        os.close(slave)
        self.assertEqual(process.wait(DEADLINE), 0)
        shown = os.read(master, 1 << 16)
        os.close(master)
        self.assertEqual(shown.decode(), "text\r\ntwo\r\nlines\t\\x1b[31m\r\n\\xff\\xfe\r\nwörld\r\n")
