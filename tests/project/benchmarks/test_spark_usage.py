"""The CPU time of a session includes ended processes for which no parent has waited."""

import signal
import subprocess
import sys

from twisted.trial import unittest

from benchmarks.spark.process_tree import SessionUsage

# Burns CPU in a child that the parent ignores the end of, as PySpark's daemon does; then waits to be ended.
_PROGRAM = f"""
import os, signal, sys, time
signal.signal({int(signal.SIGCHLD)}, signal.SIG_IGN)
if os.fork() == 0:
    while time.process_time() < 0.5:
        pass
    time.sleep(0.5)  # idle when it ends, as a worker is
    os._exit(0)
try:
    os.wait()
except ChildProcessError:
    print("ended", flush=True)
sys.stdin.read()
"""


class SessionUsageTests(unittest.SynchronousTestCase):
    def test_usage_includes_ended_processes(self):
        with subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            usage = SessionUsage(process.pid)
            try:
                self.assertEqual(process.stdout.readline(), "ended\n")
                self.assertGreaterEqual(usage.cpu_seconds(), 0.49)
            finally:
                process.stdin.close()
                process.wait()
                usage.stop()
