"""The order of the rings, and modules that cannot be imported for lack of an optional package.

Fast rings come first, and trial's test cases, which run the reactor themselves, before pytest-twisted's, which leave it
running. With ``-n`` (pytest-xdist), each process takes whole files in that order. A module that needs a missing package is
skipped with the reason; with ``CI=true`` it is an error. If ``ROCKETD_SKIPPED_TESTS`` is set, the ids of skipped tests and
modules are written to this file, and ``.ci/run`` runs these again with all packages.

A test that fails is shown with the last lines that Twisted logged in its process.
"""

import os
from collections import deque
from pathlib import Path

import pytest
from twisted.logger import formatEventAsClassicLogText, globalLogPublisher

from tests.support.lacking import all_must_be_there, lack_of, missing_package

HERE = Path(__file__).resolve().parent
RINGS = ("unit", "servers", "crash", "fuzz", "interop", "spark")
_skipped = set()
_logged = deque(maxlen=60)
globalLogPublisher.addObserver(lambda event: _logged.append(formatEventAsClassicLogText(event)))


class ImportedModule(pytest.Module):
    """A module of tests, which is skipped if it imports an optional package that is not installed."""

    def collect(self):
        try:
            return super().collect()
        except self.CollectError as error:
            package = missing_package(error.__cause__)
            if package is None or all_must_be_there():
                raise
            pytest.skip(f"{self.nodeid} {lack_of(package)}")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Distribute whole files, in their order: tests of a file share servers."""
    if getattr(config.option, "numprocesses", None) and config.option.dist == "no":
        config.option.dist = "loadfile"
        config.option.loadscopereorder = False


def pytest_pycollect_makemodule(module_path, parent):
    return ImportedModule.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(items):
    def ring(item):
        name = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
        return RINGS.index(name) if name in RINGS else len(RINGS)

    items.sort(key=ring)


def pytest_collectreport(report):
    _note(report)


def pytest_runtest_logreport(report):
    _note(report)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    _logged.clear()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    outcome = yield
    report = outcome.get_result()
    if report.failed and _logged:
        report.sections.append(("Twisted's log", "".join(filter(None, tuple(_logged)))))


def pytest_sessionfinish(session):
    path = os.environ.get("ROCKETD_SKIPPED_TESTS")
    if path and not hasattr(session.config, "workerinput"):  # the process that has all reports
        Path(path).write_text("".join(f"{name}\n" for name in sorted(_skipped)))


def _note(report):
    if report.skipped:
        _skipped.add(report.nodeid)
