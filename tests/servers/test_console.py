"""The console as a process: ``twistd rocketd-console``, and as a part of ``rocketd up``."""

import re
import socket
import subprocess
import sys
from http.client import HTTPConnection

import klein  # noqa: F401 - without it there is no console

from tests.support.cli_processes import DEADLINE, CommandTestCase


def page(port, path="/"):
    connection = HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def free_port_held():
    holder = socket.create_server(("127.0.0.1", 0))
    return holder, holder.getsockname()[1]


class UpTests(CommandTestCase):
    def console_of(self, *settings):
        process = self.up("--console", "0", *settings)
        (line,) = [line for line in self.more if line.startswith("console ")]
        return process, int(re.fullmatch(r"console +http://127\.0\.0\.1:(\d+)/\n", line)[1])

    def test_up_serves_the_console_and_twistd_does_for_the_same_cluster(self):
        process, port = self.console_of("-o", "brokerName=b")
        status, text = page(port)
        self.assertEqual(status, 200)
        self.assertIn(">b</a>", text)
        holder, taken = free_port_held()
        with holder:
            self.assert_fails(
                f"port {taken}: it is in use by another process; stop that process or set another --console",
                *(
                    "up",
                    "--data",
                    self.data + "-2",
                    "--namesrv-port",
                    "0",
                    "--broker-port",
                    "0",
                    "--console",
                    str(taken),
                ),
            )
        command = [sys.executable, "-c", "from twisted.scripts.twistd import run; run()", "--nodaemon", "--pidfile="]
        settings = ["-o", "consolePort=0", "--namesrv-addr", self.namesrv]
        other = subprocess.Popen(
            [*command, "rocketd-console", *settings],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.env,
        )
        self.addCleanup(self.end, other)
        for line in other.stdout:
            if found := re.search(r"the console is at http://127\.0\.0\.1:(\d+)/", line):
                break
        self.assertIn(">b</a>", page(int(found[1]))[1])
        other.terminate()
        other.communicate(timeout=DEADLINE)
        self.assertEqual(other.returncode, 0)
        self.stop(process, 2)

    def test_wrong_port_is_one_line(self):
        status, _, err = self.call("up", "--data", self.data, "--console", "on")
        self.assertEqual((status, len(err)), (2, 1), err)
        self.assertIn("--console 'on': accepted is a number from 0 to 65535, or off", err[0])
