"""The commands as processes, against a separate cluster."""

import json
import os
import signal
import subprocess
import sys

from tests.support import wire
from tests.support.cli_processes import COMMAND, DEADLINE, CommandTestCase


def closed_pipe():
    reader, writer = os.pipe()
    os.close(reader)
    return open(writer, "wb")


def full():
    return open("/dev/full", "wb")


class InterruptedTests(CommandTestCase):
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
        done = subprocess.run(
            [sys.executable, "-c", code, at, *arguments], env=self.env, capture_output=True, text=True, timeout=DEADLINE
        )
        self.assertEqual((done.stdout, done.stderr), ("", ""))
        return done.returncode

    def test_commands(self):
        run = "from rocketd.__main__ import main; raise SystemExit(main())"
        for at in ("rocketd.tools.cli", "click", "rocketd.tools.servers.up"):
            self.assertEqual(self.interrupted(run, at, "up", "--data", self.data), 130)
        self.assertFalse(os.path.exists(self.data))

    def test_daemons(self):
        run = "from twisted.scripts.twistd import run; run()"
        for at in ("rocketd.broker.service", "rocketd.remoting.serving.dispatch"):
            status = self.interrupted(run, at, "-n", "--pidfile=", "rocketd-broker", "-o", "listenPort=0")
            self.assertEqual(status, -signal.SIGINT)


class HelpTests(CommandTestCase):
    def test_help_into_closed_pipe_ends_silently(self):
        # Output is buffered, so that something is left to be written at the end.
        env = {**self.env, "PYTHONUNBUFFERED": ""}
        with closed_pipe() as stdout:
            done = subprocess.run(
                [*COMMAND, "up", "--help"], stdout=stdout, stderr=subprocess.PIPE, env=env, timeout=DEADLINE
            )
        self.assertEqual((done.returncode, done.stderr), (1, b""))


class ClusterTests(CommandTestCase):
    def test_messages_come_back_and_outlive_a_restart(self):
        process = self.up()
        status, sent, err = self.call("produce", "T", "hello", "wörld", "--tags", "A", "--keys", "k1 k2")
        self.assertEqual((status, len(sent), err), (0, 2, []))
        msg_id, broker, _, queue, _, offset = sent[0].split()
        self.assertEqual((len(msg_id), queue.isdigit(), offset), (32, True, "0"))
        self.assertTrue(broker)
        self.assertEqual(self.call("produce", "T", stdin="first\n\nsecond\nthird", namesrv=self.namesrv)[0], 0)
        text = "{tags}|{keys}|{body}"
        status, got, err = self.call("consume", "T", "-g", "g", "--count", "5", "--timeout", "30", "--format", text)
        self.assertEqual((status, err), (0, []))
        self.assertEqual(sorted(got), ["A|k1 k2|hello", "A|k1 k2|wörld", "||first", "||second", "||third"])
        self.stop(process, signal.SIGHUP)
        self.assertFalse(os.path.exists(os.path.join(self.data, "store", "abort")))

        process = self.up()
        self.assertEqual(self.call("produce", "T", "new", "--tags", "B", "--count", "2")[0], 0)
        status, got, err = self.call("consume", "T", "-g", "g", "--count", "2", "--timeout", "30")
        self.assertEqual((status, got, err), (0, ["new", "new"], []))
        status, got, err = self.call(
            "consume", "T", "--group", "g2", "--tags", "A || C", "--count", "2", "--timeout", "30"
        )
        self.assertEqual((status, len(got), err), (0, 2, []))
        self.stop(process, signal.SIGINT)

    def test_audit(self):
        self.up()
        for queues in ("2", "3"):
            self.assertEqual(self.call("topic", "create", "T", "--queues", queues)[0], 0)
        self.assertEqual(self.call("kv", "put", "SPACE", "k", "v")[0], 0)
        status, lines, err = self.call("audit", "--count", "2", "--json")
        self.assertEqual((status, err), (0, []))
        first, second, third = map(json.loads, lines)
        self.assertEqual(
            [(row["action"], row["subject"], row["account"]) for row in (first, second, third)],
            [("set topic", "T", None), ("set topic", "T", None), ("set key-value entry", "SPACE/k", None)],
        )
        self.assertEqual((first["before"], first["after"]), (None, second["before"]))
        self.assertEqual((second["after"]["writeQueueNums"], third["server"]), (3, self.namesrv))
        status, lines, err = self.call("audit")
        self.assertEqual(lines[0].split("\t")[:3], ["time", "server", "address"])
        self.assertEqual(lines[-1].split("\t")[4:], ["set key-value entry", "SPACE/k", "-", '"v"'])

    def test_closed_or_full_output_ends_the_command(self):
        self.up()
        for stdout, lines in ((closed_pipe(), 0), (full(), 1)):
            with stdout:
                status, _, err = self.call("produce", "T", "x", "--count", "5000", stdout=stdout)
                self.assertEqual((status, len(err)), (1, lines), err)
        self.assertEqual(self.call("produce", "U", "one", "two", "three")[0], 0)
        for stdout, lines in ((closed_pipe(), 0), (full(), 1)):
            with stdout:
                for group in ((), ("--group", "g")):
                    status, _, err = self.call("consume", "U", "--count", "3", *group, stdout=stdout)
                    self.assertEqual((status, len(err)), (1, lines), err)
        self.assertIn("rocketd consume: standard output: No space left on device", err)
        # Not one of them was given back: then it would come only after ten seconds.
        status, got, err = self.call("consume", "U", "--group", "g", "--count", "3", "--timeout", "8")
        self.assertEqual((status, sorted(got), err), (0, ["one", "three", "two"], []))

    def test_lag(self):
        self.up()
        for tag in ("A", "B", "A"):
            self.assertEqual(self.call("produce", "T", "x", "--tags", tag)[0], 0)
        status, got, err = self.call("consume", "T", "-g", "g", "--tags", "A", "--count", "2", "--timeout", "30")
        self.assertEqual((status, len(got), err), (0, 2, []))
        self.assertEqual(self.call("produce", "T", "x", "y", "--tags", "A")[0], 0)
        status, lines, err = self.call("lag", "g", "-t", "T")
        self.assertEqual((status, err), (0, []))
        first, *queues, last = [line.split("\t") for line in lines]
        self.assertEqual(first, ["broker", "topic", "queue", "behind", "seconds", "consumed", "end"])
        self.assertEqual([line[1:3] for line in queues], [["T", str(queue_id)] for queue_id in range(4)])
        self.assertEqual(sum(int(line[6]) for line in queues), 5)
        self.assertEqual(last[:3], ["all", "offline", ""])
        self.assertEqual(sum(int(line[3]) for line in queues), int(last[3]))
        self.assertEqual(last[3], "2")
        rows = [json.loads(line) for line in self.call("lag", "g", "-t", "T", "--json")[1]]
        self.assertEqual([list(row) for row in rows], [first] * 5)
        self.assertEqual([row["queue"] for row in rows], [0, 1, 2, 3, ""])
        self.assertEqual((rows[-1]["topic"], rows[-1]["behind"]), ("offline", 2))
        for command in (("lag", "none"), ("groups", "none")):
            self.assert_fails("no broker knows the group none", *command)
        self.assert_fails("no broker has the topic NoTopic", "lag", "g", "-t", "NoTopic")
        self.assertEqual(self.call("groups", "g"), (0, [], []))
        status, lines, err = self.call("doctor", "--max-behind", "1")
        self.assertEqual((status, err), (1, []))
        (found,) = [line.split("\t")[2] for line in lines if line.startswith("wrong\tgroup g\t")]
        # Unlike the lag, it counts the message with the other tag if the group has not passed it.
        self.assertRegex(found, "^no member is online, and [23] messages wait$")

    def test_impossible_commands_print_one_line(self):
        self.up()
        self.assert_fails("no route for topic Nope", "consume", "Nope", "--no-wait")
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


class HostTests(CommandTestCase):
    def accepting(self, host):
        """Return which ports of the servers accept connections to an address: name server, broker, its two others."""
        broker = int(self.broker_port)
        ports = (int(self.namesrv.rpartition(":")[2]), broker, broker - 2, broker + 1)
        return [port for port in ports if wire.accepts(f"{host}:{port}")], list(ports)

    def test_up_listens_on_loopback_and_announces_it(self):
        process = self.up()
        reached, ports = self.accepting("127.0.0.1")
        self.assertEqual(reached, ports)
        self.assertEqual(self.accepting("127.0.0.2")[0], [])
        self.assertEqual(self.namesrv.rpartition(":")[0], "127.0.0.1")
        self.stop(process, signal.SIGTERM)

    def test_up_with_host_listens_on_that_address_or_all(self):
        process = self.up("--host", "127.0.0.2")
        reached, ports = self.accepting("127.0.0.2")
        self.assertEqual(reached, ports)
        self.assertEqual(self.accepting("127.0.0.1")[0], [])
        self.assertEqual(self.namesrv.rpartition(":")[0], "127.0.0.2")
        self.assertEqual(self.call("produce", "T", "x")[0], 0)
        self.stop(process, signal.SIGTERM)
        process = self.up("--host", "0.0.0.0", "-o", "brokerIP1=127.0.0.1")
        self.assertEqual(self.accepting("127.0.0.2")[0], self.accepting("127.0.0.2")[1])
        self.stop(process, signal.SIGTERM, "the servers listen on all addresses", "loopback address")

    def test_up_with_foreign_host_names_the_option(self):
        cause = (
            "cannot listen on 192.0.2.99: it is not an address of this machine; set another bindAddress, or another "
        )
        self.assert_fails(cause, "up", "--data", self.data, "--host", "192.0.2.99", "--namesrv-port", "0")


class DataTests(CommandTestCase):
    def test_unusable_data_directory_is_named(self):
        path = self.data
        os.makedirs(os.path.join(path, "rocketd.log"))
        with open(os.path.join(path, "file"), "w"):
            pass
        for data, cause in (
            (path, f"--data {path}: {path}/rocketd.log: Is a directory; "),
            (path + "/file", f"--data {path}/file: it is not a directory; "),
            (path + "/file/below", f"--data {path}/file/below: Not a directory; "),
            ("", "--data: accepted is a directory; "),
        ):
            status, _, err = self.call("up", "--data", data)
            self.assertEqual(status, 2)
            self.assertEqual(err, [f"rocketd up: {cause}try rocketd up --help"])

    def test_refused_setting_leaves_no_files(self):
        for setting in ("brokerPermission=9", "serverWorkerThreads=x"):
            self.assert_fails(setting.partition("=")[0], "up", "--data", self.data, "-o", setting)
            self.assertFalse(os.path.exists(self.data))


class TLSClusterTests(CommandTestCase):
    def test_messages_go_encrypted(self):
        process = self.up("-o", "tls.server.mode=enforcing")
        self.assertEqual(self.call("produce", "--tls-unverified", "T", "x" * 10_000)[0], 0)
        status, got, err = self.call("consume", "--tls-unverified", "T", "--count", "1", "--timeout", "30")
        self.assertEqual((status, got, err), (0, ["x" * 10_000], []))
        self.assert_fails("connection closed", "produce", "T", "x", "--retry-timeout", "0.1")
        # The certificate made at the start is of no authority.
        self.assert_fails("certificate", "produce", "--tls", "T", "x", "--retry-timeout", "0.1")
        self.stop(process, signal.SIGTERM, "it is plain, and tls.server.mode is enforcing")


class NoClusterTests(CommandTestCase):
    def test_no_name_server(self):
        for command in (("produce", "T", "x", "--retry-timeout", "0.1"), ("consume", "T", "--no-wait")):
            self.assert_fails("connect to 127.0.0.1:1 failed: Connection refused", *command, namesrv="127.0.0.1:1")
        for command in (("groups",), ("lag", "G")):
            status, out, err = self.call(*command, namesrv="127.0.0.1:1")
            self.assertEqual((status, out, len(err)), (3, [], 1))
            self.assertTrue(err[0].startswith(f"rocketd {command[0]}: connect to "), err)
