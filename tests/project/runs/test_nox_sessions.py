"""The noxfile: its sessions are those that CONTRIBUTING describes, and each ring of tests has one."""

import ast
import os
import re
import shutil
import sys
from pathlib import Path
from xml.etree import ElementTree

from twisted.trial.unittest import SynchronousTestCase

from tests.support.fresh_python import run_python
from tests.support.lacking import need_package
from tests.support.places import ROOT

SESSIONS = [
    *("lint", "types", "test", "long", "smoke", "crash", "fuzz", "interop", "spark", "trial", "compiled"),
    *("bench", "docs", "dist", "full"),
]

RING = """
from pathlib import Path

def test_right():
    pass

def test_wrong():
    assert Path("mended").exists()
"""


def is_session(node):
    return isinstance(node, ast.FunctionDef) and any(
        ast.unparse(decorator).startswith("nox.session") for decorator in node.decorator_list
    )


class NoxSessionTests(SynchronousTestCase):
    def setUp(self):
        self.module = ast.parse((ROOT / "noxfile.py").read_text())
        self.sessions = {node.name: node for node in self.module.body if is_session(node)}

    def test_sessions_equal_those_in_contributing(self):
        table = re.findall(r"(?m)^\| `nox -s (\w+)` \|", (ROOT / "CONTRIBUTING.md").read_text())
        self.assertEqual(table, SESSIONS)
        self.assertEqual(list(self.sessions), SESSIONS)

    def test_every_package_has_sessions_in_contributing(self):
        rows = dict(re.findall(r"(?m)^\| `(rocketd/\w+)` \| (.*) \|$", (ROOT / "CONTRIBUTING.md").read_text()))
        packages = {f"rocketd/{path.parent.name}" for path in ROOT.glob("rocketd/*/__init__.py")}
        self.assertEqual(set(rows), packages)
        for package, cell in rows.items():
            names = re.sub(r" \(.*?\)", "", cell).split(", ")
            self.assertIn("test", names, package)
            self.assertEqual(set(names) - set(SESSIONS), set(), package)

    def test_sessions_have_docstrings(self):
        for name, node in self.sessions.items():
            self.assertTrue(ast.get_docstring(node), name)

    def test_every_ring_of_tests_has_a_session(self):
        rings = {path.relative_to(ROOT / "tests").parts[0] for path in ROOT.glob("tests/**/test_*.py")}
        self.assertGreater(len(rings), 5)
        for name in rings - {"unit", "project", "servers"}:  # pytest alone runs these, in the session test
            self.assertIn(f"'tests/{name}'", ast.unparse(self.sessions[name]))

    def test_smoke_list_names_tests_of_each_slow_ring(self):
        lines = (ROOT / "tests" / "smoke.txt").read_text().splitlines()
        tests = [line for line in lines if line and not line.startswith("#")]
        self.assertEqual(len(set(tests)), len(tests))
        for line in tests:
            path, _, rest = line.partition("::")
            name = rest.partition("[")[0]
            self.assertRegex((ROOT / path).read_text(), rf"(?m)^(async )?def {name}\(", line)
        rings = {line.split("/")[1] for line in tests}
        self.assertLessEqual({"servers", "crash", "fuzz", "interop", "spark"}, rings)

    def test_default_sessions_are_quick_ones(self):
        defaults = [
            ast.literal_eval(node.value)
            for node in self.module.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "nox.options.sessions"
        ]
        self.assertEqual(defaults, [["lint", "types", "test"]])


class RingTests(SynchronousTestCase):
    """Runs the session crash in a small project."""

    def setUp(self):
        need_package("nox")
        self.directory = Path(self.mktemp()).resolve()
        ring = self.directory / "tests" / "crash"
        ring.mkdir(parents=True)
        (ring / "conftest.py").write_text("from tests.conftest import *\n")
        (ring / "test_it.py").write_text(RING)
        (self.directory / "setup.cfg").write_text(f"[tool:pytest]\npythonpath = {ROOT}\n")
        shutil.copy(ROOT / "noxfile.py", self.directory)

    def crash(self, *arguments):
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        return run_python("-m", "nox", "--no-venv", "-s", "crash", "--", *arguments, cwd=self.directory, PATH=path)

    def test_ring_tells_its_time_and_writes_a_report(self):
        code, output = self.crash("-k", "right")
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"about [1-9]\d* min on two idle cores")
        report = ElementTree.parse(self.directory / "build" / "reports" / "crash.xml")
        self.assertEqual([case.get("name") for case in report.iter("testcase")], ["test_right"])

    def test_failed_option_runs_what_failed_until_nothing_fails(self):
        for mended, options, end in (
            (False, ("--failed",), "1 failed, 1 passed"),  # without a report, everything runs
            (False, ("--failed",), "1 failed"),
            (True, ("--failed",), "1 passed"),
            (True, ("--failed",), "2 deselected"),
            (True, (), "2 passed"),
        ):
            if mended:
                (self.directory / "mended").touch()
            code, output = self.crash(*options)
            self.assertEqual(code, 0 if mended else 1, output)
            self.assertRegex(output, rf"(?m)^=+ {end} in ")
