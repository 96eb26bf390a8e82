"""Former import paths of processor plugins work for one more release, and say where the modules are now."""

import importlib
import sys
import warnings

from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting.wire.codes import ResponseCode
from rocketd.remoting.wire.command import RemotingCommand


class FormerPathTests(SynchronousTestCase):
    def test_former_import_path_gives_same_objects_and_warning(self):
        for former, name, expected in (
            ("rocketd.remoting.codes", "ResponseCode", ResponseCode),
            ("rocketd.remoting.command", "RemotingCommand", RemotingCommand),
        ):
            with self.subTest(former), warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                sys.modules.pop(former, None)
                self.assertIs(getattr(importlib.import_module(former), name), expected)
                self.assertEqual([warning.category for warning in caught], [DeprecationWarning])
                self.assertIn("rocketd.remoting.wire.", str(caught[0].message))
