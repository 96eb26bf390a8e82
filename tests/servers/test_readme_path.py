"""The README's path "by hand": its commands in its order, and in another one."""

import re
import shlex
import signal
import subprocess

from tests.support.cli_processes import COMMAND, DEADLINE, CommandTestCase
from tests.support.places import ROOT


def steps():
    """Return the commands of the README's terminals, each with the lines shown below it."""
    text = (ROOT / "README.md").read_text()
    found = []
    for block in re.findall(r"^```\n(\$ .*?)^```$", text, re.MULTILINE | re.DOTALL):
        for step in block.split("$ ")[1:]:
            command, *lines = step.splitlines()
            found.append((shlex.split(command), lines))
    return found


class ReadmePathTests(CommandTestCase):
    def run_step(self, words):
        """Run a command as a user would, who names no name server; return its lines."""
        self.assertEqual(words[0], "rocketd")
        env = {**self.env, "NAMESRV_ADDR": self.namesrv}
        done = subprocess.run(
            [*COMMAND, *words[1:]], env=env, capture_output=True, text=True, timeout=DEADLINE, check=False
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return done.stdout.splitlines()

    def test_commands_in_their_order_print_what_the_readme_shows(self):
        (up, _), (produce, sent), (consume, got), (lag, _) = steps()
        self.assertEqual(up, ["rocketd", "up"])
        process = self.up()
        (line,) = self.run_step(produce)
        place = r"[0-9A-F]{32} \S+ queue \d+ offset 0"
        self.assertRegex(line, f"^{place}$")
        self.assertRegex(sent[0], f"^{place}$")
        self.assertEqual(self.run_step(consume), got[:1])
        rows = [row.split("\t") for row in self.run_step(lag)]
        self.assertEqual([row[3] for row in rows if row[0] == "all"], ["0"])
        self.stop(process, signal.SIGINT)

    def test_consume_before_produce_prints_the_message(self):
        _, (produce, _), (consume, got), _ = steps()
        self.up()
        env = {**self.env, "NAMESRV_ADDR": self.namesrv}
        process = subprocess.Popen(
            [*COMMAND, *consume[1:]], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.addCleanup(self.end, process)
        self.assertEqual(process.stderr.readline(), "rocketd consume: waiting for topic Hello\n")
        self.run_step(produce)
        out, err = process.communicate(timeout=DEADLINE)
        self.assertEqual((process.returncode, out, err), (0, f"{got[0]}\n", ""))
