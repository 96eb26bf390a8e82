"""``rocketd dlq`` without a cluster."""

import sys
from io import StringIO

from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.command_line.commands import run_command_line
from rocketd.tools.command_groups import dlq_group


class OptionTests(SynchronousTestCase):
    def test_empty_exception_is_refused_with_one_line(self):
        for name in ("list", "redrive"):
            err = StringIO()
            self.patch(sys, "stderr", err)
            self.assertEqual(run_command_line(dlq_group, "rocketd dlq", [name, "g", "--exception", ""]), 2)
            (line,) = err.getvalue().splitlines()
            self.assertIn("--exception='': accepted is the class of an exception, or its name", line)
