"""The noxfile: its sessions are those that CONTRIBUTING describes, and each ring of tests has one."""

import ast
import re

from twisted.trial.unittest import SynchronousTestCase

from tests.support.places import ROOT

SESSIONS = [
    *("lint", "types", "test", "long", "smoke", "crash", "fuzz", "interop", "spark", "trial", "compiled"),
    *("bench", "docs", "dist"),
]


def is_session(node):
    return isinstance(node, ast.FunctionDef) and "nox.session" in map(ast.unparse, node.decorator_list)


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
        for name in rings - {"unit", "servers"}:  # pytest alone runs these two, in the session test
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
