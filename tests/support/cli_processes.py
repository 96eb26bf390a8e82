"""For the tests of the command line: commands as processes, against a cluster that ``rocketd up`` is."""

import os
import shutil
import subprocess
import sys
import tempfile

from twisted.trial.unittest import SynchronousTestCase

import rocketd
from tests.support.complaints import complaints
from tests.support.ports import free_broker_port, free_port

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(rocketd.__file__)))
COMMAND = [sys.executable, "-c", "from rocketd.tools.cli import main; raise SystemExit(main())"]
DEADLINE = 60


class CommandTestCase(SynchronousTestCase):
    """Runs commands as processes. ``up`` gets free ports and a separate directory."""

    def setUp(self):
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        self.data = os.path.join(directory, "data")
        self.env = {**os.environ, "PYTHONPATH": ROOT}

    def up(self, *settings):
        process = subprocess.Popen(
            [
                *COMMAND,
                "up",
                "--data",
                self.data,
                # No outgoing connection takes such a port between a stop and a restart.
                "--namesrv-port",
                str(free_port()),
                "--broker-port",
                str(free_broker_port()),
                *([] if "--console" in settings else ["--console", "off"]),
                *settings,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env,
        )
        self.addCleanup(self.end, process)
        first = process.stdout.readline()
        if not first:
            self.fail(f"rocketd up ended: {process.communicate(timeout=DEADLINE)[1]}")
        self.namesrv = first.split()[-1]
        broker = process.stdout.readline()
        self.assertIn("broker", broker)
        self.broker_port = broker.split()[1].rpartition(":")[2]
        self.more = []
        while not (line := process.stdout.readline()).startswith("stop"):
            if not line:
                self.fail(f"rocketd up ended: {process.communicate(timeout=DEADLINE)[1]}")
            self.more.append(line)
        return process

    def end(self, process):
        process.kill()
        process.communicate()

    def stop(self, process, number, *warnings):
        """Stop ``up``; it complains of nothing but the warnings."""
        process.send_signal(number)
        out, err = process.communicate(timeout=DEADLINE)
        found = [line for line in complaints(err) if not any(text in line for text in warnings)]
        self.assertEqual((process.returncode, out, found), (0, "", []))
        for text in warnings:
            self.assertIn(text, err)

    def call(self, *arguments, stdin="", stdout=subprocess.PIPE, namesrv=None):
        """Run a command; return its status and the lines of its two outputs."""
        if arguments[0] != "up":
            arguments = (*arguments, "--namesrv", namesrv or self.namesrv)
        done = subprocess.run(
            [*COMMAND, *arguments],
            input=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env,
            timeout=DEADLINE,
            check=False,
        )
        return done.returncode, (done.stdout or "").splitlines(), done.stderr.splitlines()

    def assert_fails(self, cause, *arguments, **more):
        status, _, err = self.call(*arguments, **more)
        self.assertEqual((status, len(err)), (1, 1), err)
        self.assertTrue(err[0].startswith(f"rocketd {arguments[0]}: "), err)
        self.assertIn(cause, err[0])
