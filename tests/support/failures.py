"""A short account of the failed tests of a run, for a reader without the machine: ``ROCKETD_FAILURES`` names its file.

``.ci/run`` prints the accounts of all its parts at its end.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

VARIABLE = "ROCKETD_FAILURES"
MESSAGE_LINES = 12
LOG_LINES = 8
WIDTH = 240
_STATES = (("FAILED", "failed"), ("ERROR", "error"), ("UNSTEADY", "unsteady"))


class Failures:
    """The plugin, for the process that has the reports of all workers. It appends to the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the name, the first assertion and the last lines of the servers' logs of each failed test."""
        with self._path.open("a") as file:
            for state, category in _STATES:
                for report in terminalreporter.stats.get(category, ()):
                    file.writelines(f"{line[:WIDTH]}\n" for line in _account(state, report))


def _account(state: str, report: "pytest.TestReport | pytest.CollectReport") -> Iterator[str]:
    yield f"{state} {report.nodeid}"
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        yield from (f"    {line}" for line in report.longreprtext.splitlines()[-MESSAGE_LINES:])
    else:
        yield f"    {crash.path}:{crash.lineno}"
        yield from (f"    {line}" for line in crash.message.splitlines()[:MESSAGE_LINES])
    for title, content in report.sections:
        if title.startswith("log of "):
            yield f"    --- {title}"
            yield from (f"    {line}" for line in content.splitlines()[-LOG_LINES:])
