"""For the tests of the command line: commands as processes, against a cluster that ``rocketd up`` is."""

import os
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

import rocketd

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(rocketd.__file__)))
COMMAND = [sys.executable, "-c", "from rocketd.tools.cli import main; raise SystemExit(main())"]
DEADLINE = 60


class CommandTestCase(SynchronousTestCase):
    """Runs commands as processes. ``up`` gets free ports and a directory of its own."""

    def setUp(self):
        self.data = os.path.abspath(self.mktemp())
        self.env = {**os.environ, "PYTHONPATH": ROOT}

    def up(self, *settings):
        process = subprocess.Popen(
            [
                *COMMAND,
                "up",
                "--data",
                self.data,
                "--namesrv-port",
                "0",
                "--broker-port",
                "0",
                "-o",
                "brokerIP1=127.0.0.1",
                *settings,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env,
        )
        self.addCleanup(self.end, process)
        self.namesrv = process.stdout.readline().split()[-1]
        broker = process.stdout.readline()
        self.assertIn("broker", broker)
        self.broker_port = broker.split()[1].rpartition(":")[2]
        while not process.stdout.readline().startswith("stop"):
            pass
        return process

    def end(self, process):
        process.kill()
        process.communicate()

    def stop(self, process, number, *warnings):
        """Stop ``up``; beside the warnings it may only complain that its address is a loopback one."""
        process.send_signal(number)
        out, err = process.communicate(timeout=DEADLINE)
        known = ("loopback address", *warnings)
        complaints = [line for line in err.splitlines() if not any(text in line for text in known)]
        self.assertEqual((process.returncode, out, complaints), (0, "", []))
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
