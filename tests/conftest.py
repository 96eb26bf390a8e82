"""Options and rules of all tests.

- ``pytest`` without a test or selection runs units, the project's rules and servers in several processes, leaves out tests
  marked ``long``, and runs failed tests again. ``--short`` and ``--again`` ask for the latter two by themselves.
- Fast rings come first, and trial's test cases, which run the reactor themselves, before pytest-twisted's, which leave it
  running. With ``-n`` (pytest-xdist), each process takes whole files in that order. The death of one ends the run.
- A module that needs a missing package is skipped with the reason; with ``CI=true`` it is an error.
- A failed test is shown with the last lines that Twisted logged in its process, and with those of its servers.
"""

import argparse
import os
from collections import deque
from pathlib import Path

import pytest
from twisted.logger import formatEventAsClassicLogText, globalLogPublisher

from tests.support import failures, lacking
from tests.support.again import FailedTestsAgain
from tests.support.lacking import all_must_be_there, lack_of, missing_package
from tests.support.process import latest_servers

HERE = Path(__file__).resolve().parent
RINGS = ("unit", "project", "servers", "crash", "fuzz", "interop", "spark")
SERVERS_SHOWN, LINES_SHOWN = 4, 20
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


def pytest_addoption(parser):
    group = parser.getgroup("rocketd")
    group.addoption("--short", action="store_true", help="leave out the tests marked long")
    again = "run each failed test again, alone: it counts as unsteady if it then passes twice"
    group.addoption("--again", action=argparse.BooleanOptionalAction, default=None, help=again)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Choose the defaults of a run that names no tests. Distribute whole files, in their order: tests share servers."""
    option = config.option
    if config.args_source is config.ArgsSource.TESTPATHS and not (option.keyword or option.markexpr or option.usepdb):
        option.short = True
        option.again = option.again is not False
        # Workers have the same command line.
        if getattr(option, "numprocesses", 0) is None and not _is_worker(config):
            option.numprocesses = 2 * len(os.sched_getaffinity(0))
    if getattr(option, "numprocesses", None) and option.dist == "no":
        option.dist = "loadfile"
        option.loadscopereorder = False
        if option.maxworkerrestart is None:
            # pytest-xdist 3.8 may wait for ever for the process that replaces a dead one (its issues 1323 and 1327).
            option.maxworkerrestart = "0"


def _is_worker(config):
    return hasattr(config, "workerinput")


def pytest_configure(config):
    if _is_worker(config):
        return
    if config.option.again:
        config.pluginmanager.register(FailedTestsAgain(config))
    # Removed, so that a run of pytest within a test does not write to these files.
    if path := os.environ.pop(failures.VARIABLE, ""):
        config.pluginmanager.register(failures.Failures(Path(path)))
    if path := os.environ.pop(lacking.VARIABLE, ""):
        config.pluginmanager.register(lacking.LackingTests(Path(path)))


def pytest_pycollect_makemodule(module_path, parent):
    return ImportedModule.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(config, items):
    def ring(item):
        name = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
        return RINGS.index(name) if name in RINGS else len(RINGS)

    items.sort(key=ring)
    if config.option.short:
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    _logged.clear()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        if _logged:
            report.sections.append(("Twisted's log", "".join(filter(None, tuple(_logged)))))
        for server in latest_servers(SERVERS_SHOWN):
            if server.log.is_file():
                report.sections.append((f"log of {server.name} {server.log}", server.tail(LINES_SHOWN)))
