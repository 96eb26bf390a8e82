"""The lint settings: code that breaks a rule is found, code as the project writes it passes."""

import re
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests.support.lacking import need_package
from tests.support.places import ROOT

SECONDS = 60
GOOD = '''"""One idea."""

from dataclasses import dataclass


@dataclass
class Range:
    """Offsets of a queue."""

    first: int
    last: int

    def size(self) -> int:
        """Return the number of messages."""
        return max(0, self.last - self.first)

    def startService(self) -> None:
        """Keep a method name of Twisted's."""
'''
HEAD = '"""One idea."""\n\n'
FAULTS = {
    "F401": HEAD + "import os\n",
    "I001": HEAD + "import sys\nimport os\n\nprint(os, sys)\n",
    "E501": HEAD + f"# {'x' * 124}\n",
    "W291": HEAD + "A = 1 \n",
    "N802": HEAD + 'def sizeOf() -> None:\n    """Return nothing."""\n',
    "UP007": HEAD + "from typing import Optional, Union\n\nA: Union[int, str] = 1\nB: Optional[int] = 1\n",
    "B006": HEAD + 'def take(items: list[int] = []) -> None:\n    """Take items."""\n',
    "C408": HEAD + "A = dict()\n",
    "SIM118": HEAD + "A: dict[str, int] = {}\nB = 1 in A.keys()\n",
    "RET505": HEAD + 'def f(a: int) -> int:\n    """Do."""\n    if a:\n        return 1\n    else:\n        return 2\n',
    "PIE790": HEAD + 'def f() -> None:\n    """Do."""\n    pass\n',
    "PERF401": HEAD + "A = []\nfor b in range(3):\n    A.append(b + 1)\n",
    "RUF005": HEAD + "A = [1]\nB = [0] + A\n",
    "D103": HEAD + "def f() -> None:\n    return\n",
    "D300": HEAD + "def f() -> None:\n    '''Do.'''\n",
    "ANN201": HEAD + 'def f():\n    """Do."""\n    return 1\n',
    "PT015": HEAD + 'assert False, "never"\n',
    "TC005": HEAD + "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    pass\n",
    "A001": HEAD + "list = 1\n",
    "ARG001": HEAD + 'def f(a: int) -> None:\n    """Do."""\n    print()\n',
}
"""A rule of each group that ruff.toml selects, and code that breaks it."""


def ruff(command, text, name, *options):
    """Run ruff on a text as if it were a file of that name; its exit status and output."""
    done = subprocess.run(
        [sys.executable, "-m", "ruff", command, "--no-cache", *options, "--stdin-filename", str(ROOT / name), "-"],
        cwd=ROOT,
        input=text,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def codes(text, name="rocketd/example.py"):
    status, output = ruff("check", text, name, "--output-format=concise")
    found = set(re.findall(r"(?m)^\S+:\d+:\d+: ([A-Z]+\d+)", output))
    assert (status, bool(found)) in ((0, False), (1, True)), output
    return found


class LintSettingsTests(SynchronousTestCase):
    def setUp(self):
        need_package("ruff")

    def test_code_as_it_is_written_here_passes(self):
        self.assertEqual(codes(GOOD), set())
        self.assertEqual(ruff("format", GOOD, "rocketd/example.py", "--check")[0], 0)

    def test_a_broken_rule_of_each_group_is_found(self):
        text = (ROOT / "ruff.toml").read_text()
        selected = re.findall(r'"(\w+)"', re.search(r"(?m)^select = \[(.*)\]$", text)[1])
        groups = {re.match("[A-Z]+", code)[0] for code in FAULTS}
        self.assertEqual({re.match("[A-Z]+", group)[0] for group in selected}, groups)
        for code, fault in FAULTS.items():
            self.assertIn(code, codes(fault), code)

    def test_tests_need_neither_docstrings_nor_annotations(self):
        for code in ("D103", "ANN201", "ARG001"):
            self.assertEqual(codes(FAULTS[code], "tests/unit/example.py"), set(), code)

    def test_lines_are_formatted_to_120_columns(self):
        line = f"A = [{', '.join(['1234567'] * 12)}, {{}}]\n"
        for width, status in ((120, 0), (121, 1)):
            text = HEAD + line.format("1" * (width - len(line) + 3))
            self.assertEqual(len(text.splitlines()[-1]), width)
            self.assertEqual(ruff("format", text, "rocketd/example.py", "--check")[0], status, width)
