"""`rocketd up --brokers N`: several brokers of one cluster, each in a process."""

import os
import re
import signal
import socket
import time
from urllib.request import urlopen

from tests.support.cli_processes import DEADLINE, CommandTestCase
from tests.support.ports import free_ports

BROKERS = 2


def children_of(process):
    """The process ids of a process's children."""
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
        return [int(number) for number in file.read().split()]


def is_alive(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{number}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"


class BrokersTests(CommandTestCase):
    def up_brokers(self):
        process = self.up("--namesrv-port", "0", "--broker-port", "0", "--brokers", str(BROKERS), "-o", "brokerName=b")
        self.assertEqual(len(children_of(process)), BROKERS)
        return process

    def wait_until_gone(self, numbers):
        end = time.monotonic() + DEADLINE
        while any(map(is_alive, numbers)):
            self.assertLess(time.monotonic(), end, "brokers outlive rocketd up")
            time.sleep(0.05)

    def test_brokers_register_as_one_cluster_with_separate_stores(self):
        process = self.up_brokers()
        count = 16
        status, sent, err = self.call("produce", "T", "hello", "--count", str(count))
        self.assertEqual((status, len(sent), err), (0, count, []))
        self.assertEqual({line.split()[1] for line in sent}, {"b-0", "b-1"})
        status, got, err = self.call("consume", "T", "--count", str(count), "--timeout", "30")
        self.assertEqual((status, got, err), (0, ["hello"] * count, []))
        for number in range(BROKERS):
            self.assertIn("T", os.listdir(os.path.join(self.data, f"broker-{number}", "store", "consumequeue")))
        brokers = children_of(process)
        self.stop(process, signal.SIGHUP)
        self.wait_until_gone(brokers)
        for number in range(BROKERS):
            self.assertFalse(os.path.exists(os.path.join(self.data, f"broker-{number}", "store", "abort")))

    def test_broker_that_ends_ends_the_command(self):
        process = self.up_brokers()
        killed, other = children_of(process)
        os.kill(killed, signal.SIGKILL)
        out, err = process.communicate(timeout=DEADLINE)
        self.assertEqual((process.returncode, out), (1, ""))
        (line,) = [line for line in err.splitlines() if "ended" in line]
        self.assertTrue(re.fullmatch(r"rocketd up: b-\d ended with status -9; see .*rocketd\.log", line), line)
        self.wait_until_gone([other])

    def test_brokers_end_if_the_command_is_killed(self):
        process = self.up_brokers()
        brokers = children_of(process)
        process.kill()
        self.wait_until_gone(brokers)

    def test_each_server_has_metrics_at_its_own_port(self):
        for brokers in (1, BROKERS):
            with self.subTest(brokers=brokers):
                first = free_ports(brokers + 1)
                process = self.up("--brokers", str(brokers), "-o", "brokerName=b", "-o", f"metricsPort={first}")
                urls = [line.split()[1] for line in self.more if line.startswith("metrics")]
                self.assertEqual(urls, [f"http://127.0.0.1:{first + number}/metrics" for number in range(brokers + 1)])
                for number, url in enumerate(urls):
                    with urlopen(url, timeout=DEADLINE) as page:
                        self.assertEqual(b"rocketd_messages_stored_total" in page.read(), number < brokers, url)
                self.stop(process, signal.SIGTERM)

    def test_port_of_metrics_in_use_is_named_with_its_setting(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            ports = ("--namesrv-port", "0", "--broker-port", "0")
            status, _, err = self.call("up", "--data", self.data, *ports, "-o", f"metricsPort={port}")
        self.assertEqual(status, 1)
        self.assertIn(f"cannot listen on port {port}: it is in use by another process", err[-1])
        self.assertIn("set another -o metricsPort", err[-1])

    def test_port_of_metrics_beyond_the_last_is_refused(self):
        status, _, err = self.call("up", "--data", self.data, "-o", "metricsPort=65535")
        self.assertEqual(status, 1)
        self.assertIn("metricsPort = 65536", err[0])
        self.assertFalse(os.path.exists(self.data))

    def test_setting_that_brokers_cannot_share_is_refused(self):
        status, out, err = self.call("up", "--data", self.data, "--brokers", "2", "-o", "storePathRootDir=x")
        self.assertEqual((status, out), (2, []))
        self.assertIn("-o storePathRootDir: with --brokers, each broker has another one", err[0])
        self.assertFalse(os.path.exists(self.data))

    def test_ports_beyond_the_last_are_refused(self):
        status, _, err = self.call("up", "--data", self.data, "--brokers", "3", "--broker-port", "65520")
        self.assertEqual(status, 2)
        self.assertIn("the last of 3 brokers would get port 65540", err[0])
