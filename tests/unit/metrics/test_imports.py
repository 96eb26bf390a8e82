"""Servers without metrics do not pay for them."""

import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests.support.places import ROOT

PROGRAM = """\
import sys
import rocketd.broker.service, rocketd.namesrv.service
print("prometheus_client" in sys.modules)
"""


class ImportTests(SynchronousTestCase):
    def test_servers_without_metrics_import_no_package_for_them(self):
        ran = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False)
        self.assertEqual((ran.stdout, ran.stderr), ("False\n", ""))
