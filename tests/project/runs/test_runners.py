"""The project's libraries and test runners: pytest and trial run the units, pytest-twisted the tests with a reactor."""

import ast
import configparser
import os
import re
from functools import cache
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.support.fresh_python import run_python
from tests.support.places import ROOT

CASES = ("unit", "project")
"""Folders of tests that pytest and trial run alike."""
# Small, with cases of more than one class.
EXAMPLE = "tests/unit/remoting/calling/test_permits.py"
TRIAL = {"twisted.trial.unittest.TestCase", "twisted.trial.unittest.SynchronousTestCase"}
COROUTINES = """
from twisted.internet import reactor
from twisted.internet.task import deferLater

async def test_right():
    assert await deferLater(reactor, 0, str, 1) == "1"

async def test_wrong():
    assert await deferLater(reactor, 0, str, 1) == "2"
"""


@cache
def parsed(path):
    return ast.parse(path.read_text())


def classes(path):
    return {node.name: node for node in parsed(path).body if isinstance(node, ast.ClassDef)}


def imported_from(path):
    """Name to the module that it is imported from, for names imported at the top of a module."""
    return {
        alias.asname or alias.name: node.module
        for node in parsed(path).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def imported_modules(path):
    """The modules that a module imports at its top."""
    plain = (alias.name for node in parsed(path).body if isinstance(node, ast.Import) for alias in node.names)
    return {*imported_from(path).values(), *plain}


def is_trial_case(path, name):
    """Whether a class that a module names is, by itself or by its bases, a test case of trial."""
    if name in classes(path):
        return any(is_trial_case(path, ast.unparse(base)) for base in classes(path)[name].bases)
    first, dot, rest = name.partition(".")
    module = imported_from(path).get(first)
    if module is None:
        return False
    full = f"{module}.{first}{dot}{rest}"
    module, _, name = full.rpartition(".")
    origin = ROOT / f"{module.replace('.', '/')}.py"
    return full in TRIAL or (origin.is_file() and is_trial_case(origin, name))


def shared_by_cases(path, name):
    """Whether a class is a mixin: a test case of trial in that module has it as a base."""
    users = [user for user, node in classes(path).items() if name in map(ast.unparse, node.bases)]
    return any(is_trial_case(path, user) for user in users)


def is_test(node):
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")


def takes_fixtures(function):
    """Whether pytest would have to fill an argument in: hypothesis fills those of @given, patch those of @patch."""
    return len(function.args.args) > 1 and not function.decorator_list


class RunnerTests(SynchronousTestCase):
    def test_unit_file_passes_under_pytest_and_trial_with_equal_count(self):
        written = sum(is_test(node) for node in ast.walk(parsed(ROOT / EXAMPLE)))
        directory = self.mktemp()
        os.mkdir(directory)
        code, output = run_python("-m", "pytest", "-q", ROOT / EXAMPLE, cwd=directory)
        self.assertEqual((code, re.findall(r"^(\d+) passed", output, re.MULTILINE)), (0, [str(written)]), output)
        code, output = run_python("-m", "twisted.trial", "--temp-directory=trial", ROOT / EXAMPLE, cwd=directory)
        self.assertEqual((code, re.findall(r"^Ran (\d+) tests", output, re.MULTILINE)), (0, [str(written)]), output)

    def test_unit_tests_are_methods_of_trials_cases_without_fixtures(self):
        modules = sorted(path for folder in CASES for path in (ROOT / "tests" / folder).rglob("test_*.py"))
        self.assertGreater(len(modules), 100)
        for path in modules:
            self.assertNotIn("pytest", imported_modules(path), path)
            self.assertEqual([node.name for node in parsed(path).body if is_test(node)], [], path)
            for name, node in classes(path).items():
                tests = [method for method in node.body if is_test(method)]
                if tests:
                    self.assertTrue(is_trial_case(path, name) or shared_by_cases(path, name), f"{path}: {name}")
                for method in tests:
                    self.assertFalse(takes_fixtures(method), f"{path}: {name}.{method.name}")

    def test_coroutine_tests_run_in_the_reactor_by_pytest_twisted(self):
        directory = self.mktemp()
        os.mkdir(directory)
        Path(directory, "test_coroutines.py").write_text(COROUTINES)
        code, output = run_python("-m", "pytest", "-q", cwd=directory)
        self.assertEqual(code, 1)
        self.assertRegex(output, r"(?m)^1 failed, 1 passed in ")
        modules = (ROOT / "tests" / "servers").glob("test_*.py")
        tests = [node for path in modules for node in parsed(path).body if is_test(node)]
        self.assertGreater(sum(isinstance(test, ast.AsyncFunctionDef) for test in tests), 20)

    def test_dependencies_are_declared(self):
        config = configparser.ConfigParser()
        config.read(ROOT / "setup.cfg")

        def names(text):
            return set(re.findall(r"(?m)^([\w.-]+)", text.replace("\n    ", "\n")))

        needed = {"twisted", "zope.interface", "pyopenssl", "service-identity"}
        self.assertLessEqual(needed, names(config["options"]["install_requires"]))
        self.assertLessEqual({"pytest", "pytest-twisted"}, names(config["options.extras_require"]["test"]))
