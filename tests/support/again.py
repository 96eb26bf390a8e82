"""Failed tests run again, each alone in a fresh process, at the end of a run.

A test that then passes twice is unsteady. It counts as passed, and the end of the run shows all its outputs under the
heading "unsteady". A run with more than three such tests fails, like a run with a test that fails again. Nothing else is
repeated. So luck does not decide about a change, and unsteady tests stay visible.
"""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

MAX_UNSTEADY = 3
"""Of one run, and of all parts of ``.ci/run``, which reads this line."""
TIMES = 2
SECONDS = 900.0
"""Limit of one repetition."""
LINES = 60
"""Lines that are kept of a repetition."""
_CATEGORIES = ("failed", "error")
_DEATH = "???"
"""The phase in pytest-xdist's report of a test that ended its process."""


@dataclass
class Repetitions:
    """A failed test, its reports, and the output of each repetition."""

    name: str
    reports: list[pytest.TestReport]
    outputs: list[str] = field(default_factory=list)
    is_unsteady: bool = False


class FailedTestsAgain:
    """The plugin, for the process that has the reports of all workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._repeated: list[Repetitions] = []
        self._remark = ""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Repeat what failed. The terminal's summary, which comes after this hook, counts unsteady tests apart."""
        if exitstatus != pytest.ExitCode.TESTS_FAILED or session.shouldfail or session.shouldstop:
            return  # some tests did not run
        failed = self._failed()
        deadly = next((test for test in failed if any(report.when == _DEATH for report in test.reports)), None)
        if deadly is not None:
            self._remark = f"{deadly.name} ended its process: none was run again, since other tests did not run"
            return
        if len(failed) > MAX_UNSTEADY:
            self._remark = (
                f"{len(failed)} tests failed: none was run again, since at most {MAX_UNSTEADY} may be unsteady"
            )
            return
        for test in failed:
            self._repeated.append(test)
            test.is_unsteady = all(self._passes(test) for _ in range(TIMES))
        self._count_apart([test for test in self._repeated if test.is_unsteady])
        if not any(self._stats().get(category) for category in _CATEGORIES):
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the outputs of each repeated test."""
        if self._remark:
            terminalreporter.section("not run again")
            terminalreporter.line(self._remark)
        for title, wanted in (("unsteady", True), ("failed again", False)):
            tests = [test for test in self._repeated if test.is_unsteady is wanted]
            if tests:
                terminalreporter.section(title)
            for test in tests:
                for line in _lines_of(test):
                    terminalreporter.line(line)

    def _stats(self) -> dict[str, list[pytest.TestReport]]:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        assert reporter is not None
        return reporter.stats

    def _failed(self) -> list[Repetitions]:
        tests: dict[str, Repetitions] = {}
        for category in _CATEGORIES:
            for report in self._stats().get(category, ()):
                if isinstance(report, pytest.TestReport):
                    tests.setdefault(report.nodeid, Repetitions(report.nodeid, [])).reports.append(report)
        return list(tests.values())

    def _passes(self, test: Repetitions) -> bool:
        command = [sys.executable, "-m", "pytest", "-n", "0", "--no-again", test.name]
        try:
            done = subprocess.run(
                command,
                cwd=self._config.rootpath,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            test.outputs.append(f"not done in {SECONDS:g} s")
            return False
        test.outputs.append("\n".join(done.stdout.splitlines()[-LINES:]))
        return done.returncode == 0

    def _count_apart(self, tests: list[Repetitions]) -> None:
        stats = self._stats()
        for test in tests:
            for category in _CATEGORIES:
                kept = [report for report in stats.pop(category, []) if report not in test.reports]
                if kept:
                    stats[category] = kept
            stats.setdefault("unsteady", []).append(test.reports[0])


def _lines_of(test: Repetitions) -> Iterator[str]:
    state = "UNSTEADY" if test.is_unsteady else "FAILED AGAIN"
    yield f"{state} {test.name}"
    for report in test.reports:
        yield f"--- in the run ({report.when})"
        yield from report.longreprtext.splitlines()
        for title, content in report.sections:
            yield f"--- {title}"
            yield from content.splitlines()[-LINES:]
    for number, output in enumerate(test.outputs, 1):
        yield f"--- alone, {number}"
        yield from output.splitlines()
