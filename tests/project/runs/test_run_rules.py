"""Rules of a run of the tests: failed tests run again, long ones are left out, failures are told in a file."""

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.support.fresh_python import run_python
from tests.support.places import ROOT

STEADY = "def test_right():\n    pass\n\n\ndef test_wrong():\n    assert 1 == 2, 'never right'\n"
UNSTEADY = """
import pathlib
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_lucky(number):
    runs = pathlib.Path(__file__).with_name(f"runs-{{number}}")
    runs.open("a").write("x")
    print("run", len(runs.read_text()))
    assert len(runs.read_text()) in {passes}
"""
DEADLY = """
import os
import pathlib

def test_deadly():
    if not (mark := pathlib.Path(__file__).with_name("mark")).exists():
        mark.touch()
        os.abort()
"""
SERVER = """
import sys
import pathlib
from tests.support.process import ServerProcess

def test_server(tmp_path):
    code = "import time; print('said by the server', flush=True); time.sleep(60)"
    server = ServerProcess("sleeper", [sys.executable, "-c", code], tmp_path / "log", tmp_path)
    try:
        server.wait_for("it speaks", lambda: "said" in server.tail(), 60)
        assert 1 == 2
    finally:
        server.kill()
"""
LACKING = """
from tests.support.lacking import end_test_lacking, need_package

def test_other():
    need_package("nothing_like_it")

def test_tool():
    end_test_lacking("needs a tool")

def test_it():
    pass
"""
LACKING_MODULE = """
import pytest
from tests.support.lacking import lack_of

pytest.skip(lack_of("nothing_like_it"), allow_module_level=True)
"""
LONG = "import pytest\n\n\n@pytest.mark.long\ndef test_slow():\n    pass\n\n\ndef test_quick():\n    pass\n"


class RunRulesTests(SynchronousTestCase):
    def setUp(self):
        self.directory = Path(self.mktemp()).resolve()
        self.directory.mkdir()
        (self.directory / "conftest.py").write_text("from tests.conftest import *\n")
        self.failures = self.directory / "failures"
        self.lacking = self.directory / "lacking"

    def run_pytest(self, text, *options):
        (self.directory / "test_it.py").write_text(text)
        (self.directory / "setup.cfg").write_text(
            f"[tool:pytest]\ntestpaths = .\npythonpath = {ROOT}\nmarkers = long: x\n"
        )
        return run_python(
            *("-m", "pytest", "-rf", *options),
            cwd=self.directory,
            CI="",
            ROCKETD_FAILURES=str(self.failures),
            ROCKETD_LACKING=str(self.lacking),
        )

    def test_test_that_passes_twice_alone_is_unsteady_and_run_passes(self):
        code, output = self.run_pytest(UNSTEADY.format(count=1, passes=(2, 3)), "--again", "test_it.py")
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"=+ unsteady =+\nUNSTEADY test_it.py::test_lucky\[0\]")
        for text in ("--- in the run (call)", "run 1", "--- alone, 1", "--- alone, 2"):
            self.assertIn(text, output)
        self.assertRegex(output.splitlines()[-1], r"1 unsteady in ")
        self.assertTrue(self.failures.read_text().startswith("UNSTEADY test_it.py::test_lucky[0]\n"))

    def test_test_that_passes_once_of_twice_fails(self):
        code, output = self.run_pytest(UNSTEADY.format(count=1, passes=(2,)), "--again", "test_it.py")
        self.assertEqual(code, 1, output)
        self.assertIn("FAILED AGAIN test_it.py::test_lucky[0]", output)
        self.assertRegex(output.splitlines()[-1], r"1 failed in ")

    def test_steadily_failing_test_fails_after_one_repetition(self):
        code, output = self.run_pytest(STEADY, "--again", "test_it.py")
        self.assertEqual(code, 1, output)
        self.assertEqual(output.count("--- alone, "), 1)
        account = self.failures.read_text()
        self.assertRegex(
            account, r"^FAILED test_it.py::test_wrong\n    \S+test_it.py:6\n    AssertionError: never right\n"
        )

    def test_more_than_three_failed_tests_are_not_run_again(self):
        code, output = self.run_pytest(UNSTEADY.format(count=4, passes=(2, 3)), "--again", "test_it.py")
        self.assertEqual(code, 1, output)
        self.assertIn("4 tests failed: none was run again, since at most 3 may be unsteady", output)

    def test_run_that_stopped_at_a_failure_repeats_nothing(self):
        """Otherwise it would pass, although the other tests did not run."""
        code, output = self.run_pytest(UNSTEADY.format(count=2, passes=(2, 3)), "--again", "-x", "test_it.py")
        self.assertEqual(code, 1, output)
        self.assertNotIn("alone", output)

    def test_three_unsteady_tests_pass_in_several_workers(self):
        code, output = self.run_pytest(UNSTEADY.format(count=3, passes=(2, 3)), "--again", "-n", "2", "test_it.py")
        self.assertEqual(code, 0, output)
        self.assertRegex(output.splitlines()[-1], r"3 unsteady in ")

    def test_death_of_a_worker_ends_the_run_and_is_never_unsteady(self):
        (self.directory / "test_first.py").write_text(STEADY.partition("\n\n\n")[0])
        code, output = self.run_pytest(DEADLY, "--again", "-n", "1", "test_first.py", "test_it.py")
        self.assertEqual(code, 1, output)
        self.assertIn("test_it.py::test_deadly ended its process: none was run again", output)
        self.assertTrue(self.failures.read_text().startswith("FAILED test_it.py::test_deadly\n"))

    def test_named_test_is_not_run_again(self):
        code, output = self.run_pytest(UNSTEADY.format(count=1, passes=(2, 3)), "test_it.py")
        self.assertEqual(code, 1, output)
        self.assertNotIn("alone", output)

    def test_error_in_a_module_fails_the_run(self):
        code, output = self.run_pytest("import nothing_like_it\n", "--again", "test_it.py")
        self.assertEqual(code, 2, output)
        self.assertIn("ERROR test_it.py", self.failures.read_text())

    def test_pytest_alone_leaves_long_tests_out_and_repeats(self):
        code, output = self.run_pytest(LONG + "\n\n" + UNSTEADY.format(count=1, passes=(2, 3)))
        self.assertEqual(code, 0, output)
        self.assertRegex(output.splitlines()[-1], r"1 passed, 1 deselected, 1 unsteady in |1 passed, 1 unsteady in ")
        self.assertRegex(output, r"created: \d+/\d+ workers|\d+ workers \[")

    def test_named_module_runs_its_long_tests(self):
        code, output = self.run_pytest(LONG, "test_it.py")
        self.assertEqual(code, 0, output)
        self.assertRegex(output.splitlines()[-1], r"2 passed in ")
        code, output = self.run_pytest(LONG, "--short", "test_it.py")
        self.assertRegex(output.splitlines()[-1], r"1 passed, 1 deselected in ")

    def test_tests_that_lack_a_package_are_listed_and_can_be_run(self):
        (self.directory / "test_module.py").write_text(LACKING_MODULE)
        for options in ((), ("-n", "2")):
            code, output = self.run_pytest(LACKING, *options)
            self.assertEqual(code, 0, output)
            self.assertEqual(self.lacking.read_text(), "test_it.py::test_other\ntest_module.py\n")
        code, output = self.run_pytest(LACKING, f"@{self.lacking}")
        self.assertRegex(output.splitlines()[-1], r"2 skipped in ")

    def test_log_of_a_server_is_in_the_account(self):
        code, output = self.run_pytest(SERVER, "test_it.py")
        self.assertEqual(code, 1, output)
        account = self.failures.read_text()
        self.assertTrue(re.search(r"--- log of sleeper \S+/log\n    said by the server\n", account), account)
