"""Names of Twisted that are not public, on which the reactors of clients and lanes, and the client's log, are built."""

import ast
import asyncio
import sys
import warnings
from configparser import ConfigParser
from io import StringIO
from time import monotonic

from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.logger import LogBeginner, LogPublisher
from twisted.trial.unittest import SkipTest, SynchronousTestCase

from rocketd.client.runtime.reactors import INTERNALS, LoopReactor, ThreadReactor
from tests.support.places import ROOT

try:
    from twisted.internet.epollreactor import EPollReactor
except ImportError:
    EPollReactor = None

SOURCES = [
    *sorted((ROOT / "rocketd" / "client" / "runtime").glob("*.py")),
    ROOT / "rocketd" / "remoting" / "serving" / "lane_reactor.py",
]
OF_PYTHON = {"_getframe"}
"""Private names of Python itself."""


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def private_names(source):
    """Return the private attributes that a module uses, and its own ones: methods, and what ``__init__`` sets."""
    used, own = set(), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            used.add(node.attr)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            own.add(node.name)
            if node.name == "__init__":
                own.update(
                    each.attr
                    for each in ast.walk(node)
                    if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
                )
    return set(filter(is_private, used)), own


def private_modules(source):
    """Return the modules with private names, and the private names, that a module imports from Twisted."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(each.name for each in node.names)]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        else:
            continue
        if names[0].startswith("twisted"):
            found.update(name for name in names if any(map(is_private, name.split("."))))
    return found


class InternalsTests(SynchronousTestCase):
    def assert_there(self, reactor, *kinds):
        missing = [name for kind in kinds for name in INTERNALS[kind] if not hasattr(reactor, name)]
        self.assertEqual(missing, [])

    def test_thread_reactor_finds_its_names(self):
        if EPollReactor is None:
            raise SkipTest("epoll is on Linux alone")
        reactor = ThreadReactor()
        self.addCleanup(reactor.close)
        self.assertIsInstance(reactor, EPollReactor)
        self.assert_there(reactor, "both", "epoll")

    def test_loop_reactor_finds_its_names(self):
        loop = asyncio.new_event_loop()
        self.addCleanup(loop.close)
        reactor = LoopReactor(loop)
        self.addCleanup(reactor.close)
        self.assertIsInstance(reactor, AsyncioSelectorReactor)
        self.assert_there(reactor, "both", "asyncio")

    def test_lane_reactor_finds_its_names(self):
        if EPollReactor is None:
            raise SkipTest("epoll is on Linux alone")
        from rocketd.remoting.serving.lane_reactor import LaneReactor

        reactor = LaneReactor(monotonic)
        self.addCleanup(reactor.close)
        self.assert_there(reactor, "both", "epoll", "lane")

    def test_log_finds_its_names(self):
        self.assert_there(LogBeginner(LogPublisher(), StringIO(), sys, warnings), "log")

    def test_every_private_name_of_twisted_is_listed(self):
        names = [private_names(source.read_text()) for source in SOURCES]
        own = {name for _, own in names for name in own}
        used = {name for used, _ in names for name in used} - own - OF_PYTHON
        overridden = {"_POLL_IN", "_registerAsIOThread"}  # which the modules name without an attribute access
        self.assertEqual(used | overridden, {name for names in INTERNALS.values() for name in names})

    def test_no_private_name_of_twisted_is_imported(self):
        self.assertEqual({name for source in SOURCES for name in private_modules(source.read_text())}, set())

    def test_version_of_twisted_has_an_upper_bound(self):
        settings = ConfigParser()
        settings.read(ROOT / "setup.cfg")
        self.assertRegex(settings["options"]["install_requires"], r"(?m)^twisted >= [\d.]+, < \d+$")
