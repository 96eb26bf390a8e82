"""Names of Twisted's reactors that are not public, on which the clients' reactors are built."""

import asyncio
import re
from configparser import ConfigParser

from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.trial.unittest import SkipTest, SynchronousTestCase

from rocketd.client.runtime.reactors import INTERNALS, LoopReactor, ThreadReactor
from tests.support.places import ROOT

try:
    from twisted.internet.epollreactor import EPollReactor
except ImportError:
    EPollReactor = None

SOURCE = (ROOT / "rocketd" / "client" / "runtime" / "reactors.py").read_text()


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

    def test_every_private_name_of_twisted_is_listed(self):
        own = {"_known", "_waking", *re.findall(r"def (_\w+)", SOURCE)}
        used = set(re.findall(r"self\.(_\w+)", SOURCE)) - own
        self.assertLessEqual(used, {name for names in INTERNALS.values() for name in names})

    def test_version_of_twisted_has_an_upper_bound(self):
        settings = ConfigParser()
        settings.read(ROOT / "setup.cfg")
        self.assertRegex(settings["options"]["install_requires"], r"(?m)^twisted >= [\d.]+, < \d+$")
